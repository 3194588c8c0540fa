package jsonform

// inString accepts a byte of a string: valid UTF-8 without control characters.
func (a *state) inString(c byte) bool {
	key := a.mode == mFreeKey
	if a.more > 0 {
		if c < a.lo || c > a.hi {
			return false
		}
		a.more--
		a.lo, a.hi = 0x80, 0xbf
		if key {
			a.fit(c)
		}
		return true
	}
	if c == '"' {
		if !key {
			a.ended()
			return true
		}
		if a.fit(c); a.from < a.to {
			return a.took(a.from)
		}
		return a.took(-1)
	}
	if key && a.at > maxKey {
		return false
	}
	if key && c == '\\' && len(a.top.node.keys) > 0 { // an escape could spell a key that the schema names
		a.mode, a.node = mKnownKey, a.top.node
		return a.from < a.to && a.inLiteral(c)
	}
	a.lo, a.hi = 0x80, 0xbf
	switch {
	case c < 0x20:
		return false
	case c == '\\':
		a.back, a.mode = a.mode, mEscape
	case c < 0x80:
	case c >= 0xc2 && c <= 0xdf:
		a.more = 1
	case c >= 0xe0 && c <= 0xef:
		if a.more = 2; c == 0xe0 {
			a.lo = 0xa0
		} else if c == 0xed {
			a.hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		if a.more = 3; c == 0xf0 {
			a.lo = 0x90
		} else if c == 0xf4 {
			a.hi = 0x8f
		}
	default:
		return false
	}
	if key {
		a.fit(c)
	}
	return true
}

// takesText reports whether n bytes of any string content without quotes and escapes can follow, character by
// character.
func (a *state) takesText(n int) bool {
	return a.more == 0 && (a.mode == mString || a.mode == mFreeKey && a.from == a.to && a.at+n <= maxKey)
}

// fit narrows, by one byte, the schema's keys that a key of its own choice may still equal.
func (a *state) fit(c byte) {
	keys := a.top.node.keys
	fits := func(i int) bool { return len(keys[i]) > a.at && keys[i][a.at] == c }
	for a.from < a.to && !fits(a.from) {
		a.from++
	}
	for a.to > a.from && !fits(a.to-1) {
		a.to--
	}
	a.at++
}

// inHex accepts a digit of a \u escape. Surrogates (d800 to dfff) are excluded, since such characters are written
// directly.
func (a *state) inHex(c byte) bool {
	lower := c | 0x20
	if !(c >= '0' && c <= '9' || lower >= 'a' && lower <= 'f') {
		return false
	}
	switch a.hex {
	case 4:
		a.hexD = lower == 'd'
	case 3:
		if a.hexD && (c < '0' || c > '7') {
			return false
		}
	}
	if a.hex--; a.hex == 0 {
		a.mode = a.back
	}
	return true
}

// inNumber accepts a character of a number.
func (a *state) inNumber(c byte) bool {
	digit := c >= '0' && c <= '9'
	whole := a.node.kinds&kNumber == 0
	next := a.mode
	switch a.mode {
	case mMinus:
		if next = mDigits; c == '0' {
			next = mZero
		}
		if !digit {
			return false
		}
	case mZero, mDigits, mFraction:
		switch {
		case digit && a.mode != mZero:
			if a.digits >= maxDigits {
				return false
			}
		case c == '.' && a.mode != mFraction && !whole:
			next = mPoint
		case (c == 'e' || c == 'E') && !whole:
			next = mExponent
		default:
			return false
		}
	case mPoint:
		next = mFraction
		if !digit {
			return false
		}
	case mExponent, mExpSign:
		if next = mExpDigits; c == '+' || c == '-' {
			if a.mode == mExpSign {
				return false
			}
			next = mExpSign
		} else if !digit {
			return false
		}
		a.digits = 0
	case mExpDigits: // two digits keep a 64-bit number finite
		if !digit || a.digits >= 2 {
			return false
		}
	}
	a.digits++
	a.mode = next
	return true
}
