package jsonform

import "slices"

// Bounds of a text: without them an answer could repeat white space or digits for ever.
const (
	maxDepth  = 64  // nesting of values that the schema leaves open
	indent    = 4   // largest indentation after a line break for each open list or object, in spaces
	maxSpace  = 40  // spaces after a line break
	maxDigits = 24  // characters of a number before its exponent
	maxKey    = 256 // bytes of a key that the schema does not name
)

type mode uint8

const (
	mValue mode = iota // a value follows
	mFirst             // the first value of a list, or its end, follows
	mOpen              // the first key of an object, or its end, follows
	mKey               // a key follows, after a comma
	mAfter             // after a value
	mColon
	mLiteral
	mKnownKey
	mFormat // inside a string that has a format
	mString // inside a string, as in the modes below
	mFreeKey
	mEscape
	mHex
	mMinus
	mZero
	mDigits
	mPoint
	mFraction
	mExponent
	mExpSign
	mExpDigits
	mDone
)

// frame is an open list or object. A frame is immutable: alternative readings of a text share it.
type frame struct {
	up    *frame
	node  *node
	kind  kinds
	seen  uint64 // set of the keys that came, and of keys whose values would nest too deep here
	count int    // number of values so far
	most  int    // largest number of values; -1 = no limit
	bare  bool   // only keys that the schema names may come
	depth int
}

// state is the position in a text under one of the alternatives that a schema allows.
type state struct {
	top    *frame
	node   *node // schema node of the value that follows or is being read
	mode   mode
	back   mode  // mode to return to after an escape
	space  uint8 // white space before the next character, in bytes
	line   bool  // the white space began with a line break
	digits uint8
	hex    uint8 // hexadecimal digits that an escape still needs
	hexD   bool  // the first hexadecimal digit was d
	more   uint8 // bytes that the UTF-8 character still needs
	lo, hi byte  // bounds of the next of these bytes
	from   int   // index of the first literal or key that still matches; in a format, the automaton's state
	to     int
	at     int // offset in that literal or key, or in the text of a format
}

// next advances the state by a byte and reports whether the byte can follow. After false the state is invalid. The node
// of the value that follows must have no alternatives.
func (a *state) next(c byte) bool {
	switch a.mode {
	case mString, mFreeKey:
		return a.inString(c)
	case mEscape:
		if c == 'u' {
			a.mode, a.hex = mHex, 4
			return true
		}
		a.mode = a.back
		return c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't'
	case mHex:
		return a.inHex(c)
	case mLiteral, mKnownKey:
		return a.inLiteral(c)
	case mFormat:
		return a.inFormat(c)
	case mDone:
		return false
	}
	if a.mode >= mMinus && a.mode <= mExpDigits {
		if a.inNumber(c) {
			return true
		}
		if a.mode != mZero && a.mode != mDigits && a.mode != mFraction && a.mode != mExpDigits {
			return false
		}
		a.ended()
	}
	if isBlank(c) {
		return a.blank(c)
	}
	a.space, a.line = 0, false
	switch a.mode {
	case mValue:
		return a.begin(c)
	case mFirst:
		if c == ']' {
			return a.top.node.least == 0 && a.close()
		}
		return a.begin(c)
	case mOpen:
		if c == '}' {
			return a.closeObject()
		}
		return a.beginKey(c)
	case mKey:
		return a.beginKey(c)
	case mColon:
		a.mode = mValue
		return c == ':'
	}
	return a.behind(c)
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// blank accepts white space where JSON writers put it: one space before a value or a key, or a line break with the next
// line's indentation, and nothing before a colon. Without this limit, a model whose other tokens are masked could
// continue with white space for ever.
func (a *state) blank(c byte) bool {
	first := a.space == 0
	a.space++
	switch {
	case a.mode == mColon:
		return false
	case c == '\n':
		a.line = true
		return first
	case c != ' ':
		return false
	case a.line:
		return a.top != nil && int(a.space) <= 1+min(indent*a.top.depth, maxSpace)
	}
	return first && a.mode != mAfter
}

// begin accepts the first byte of a value.
func (a *state) begin(c byte) bool {
	n := a.node
	if n.literals != nil {
		a.mode, a.from, a.to, a.at = mLiteral, 0, len(n.literals), 0
		return a.inLiteral(c)
	}
	word := func(k kinds, text string) bool {
		a.node, a.mode, a.from, a.to, a.at = words, mLiteral, slices.Index(words.literals, text), 0, 1
		a.to = a.from + 1
		return n.kinds&k != 0
	}
	switch c {
	case '{':
		return n.kinds&kObject != 0 && a.fits(n.lowObject) && a.open(kObject, mOpen)
	case '[':
		return n.kinds&kArray != 0 && a.fits(n.lowList) && a.open(kArray, mFirst)
	case '"':
		if *a = (state{top: a.top, mode: mString}); n.format != nil {
			a.node, a.mode = n, mFormat
		}
		return n.kinds&kString != 0
	case 't':
		return word(kBoolean, "true")
	case 'f':
		return word(kBoolean, "false")
	case 'n':
		return word(kNull, "null")
	}
	if n.kinds&(kNumber|kInteger) == 0 {
		return false
	}
	a.digits = 1
	switch {
	case c == '-':
		a.mode = mMinus
	case c == '0':
		a.mode = mZero
	case c >= '1' && c <= '9':
		a.mode = mDigits
	default:
		return false
	}
	return true
}

var words = &node{literals: []string{"false", "null", "true"}}

// fits reports whether that many more levels of lists and objects may be opened.
func (a *state) fits(levels int) bool {
	if a.top != nil {
		levels += a.top.depth
	}
	return levels <= maxDepth
}

func (a *state) open(k kinds, m mode) bool {
	n := a.node
	f := &frame{up: a.top, node: n, kind: k, most: n.most, depth: 1}
	if a.top != nil {
		f.depth = a.top.depth + 1
	}
	if f.depth+n.tallest > maxDepth {
		f.limit()
	}
	a.top, a.mode, a.node = f, m, nil
	if k == kArray {
		if a.node = n.item(0); f.most == 0 {
			a.node = nothing
		}
	}
	return true
}

// limit excludes optional keys and items whose values could not end before maxDepth. Required ones fit, because
// otherwise the value would not have begun.
func (f *frame) limit() {
	fits := func(n *node) bool { return f.depth+n.low <= maxDepth }
	for i, v := range f.node.values {
		if !fits(v) {
			f.seen |= 1 << i
		}
	}
	f.bare = f.node.more != nil && !fits(f.node.more)
	for i := 0; i <= len(f.node.prefix); i++ {
		if !fits(f.node.item(i)) && (f.most < 0 || f.most > i) {
			f.most = i
		}
	}
}

// free reports whether a key that the schema does not name may follow. Such keys come after the required ones: a model
// that may invent keys might never write the required ones.
func (f *frame) free() bool {
	return f.node.more != nil && !f.bare && f.node.required&^f.seen == 0
}

// nothing is the node of a value that no text matches.
var nothing = &node{}

// close ends the innermost list or object.
func (a *state) close() bool {
	a.top = a.top.up
	a.ended()
	return true
}

func (a *state) closeObject() bool {
	return a.top.node.required&^a.top.seen == 0 && a.close()
}

// ended moves the state to the position after a value.
func (a *state) ended() {
	*a = state{top: a.top, mode: mAfter} // readings that differed before are equal again
	if a.top == nil {
		a.mode = mDone
	}
}

// behind accepts a byte after a value.
func (a *state) behind(c byte) bool {
	f := a.top
	if f == nil {
		return false
	}
	switch {
	case f.kind == kCalls:
		return c == '}' && a.close()
	case f.kind == kArray && c == ']':
		return f.count+1 >= f.node.least && a.close()
	case f.kind == kObject && c == '}':
		return a.closeObject()
	case c != ',':
		return false
	}
	g := *f
	g.count++
	a.top = &g
	if f.kind == kArray {
		a.node, a.mode = f.node.item(g.count), mValue
		return f.most < 0 || g.count < f.most
	}
	a.mode = mKey
	return f.free() || f.node.left(f.seen) > 0
}

// beginKey accepts the first byte of a key.
func (a *state) beginKey(c byte) bool {
	n := a.top.node
	if c != '"' {
		return false
	}
	if a.top.free() {
		a.mode, a.from, a.to, a.at = mFreeKey, 0, len(n.keys), 0
		a.fit('"')
		return true
	}
	a.node, a.mode, a.from, a.to, a.at = n, mKnownKey, 0, len(n.keys), 0
	return a.inLiteral(c)
}

// took records that a key was read: i is its index among the object's keys, or -1 for a key that the schema does not
// name.
func (a *state) took(i int) bool {
	n := a.top.node
	*a = state{top: a.top, mode: mColon, node: n.more}
	if i < 0 {
		return true
	}
	if a.top.seen>>i&1 != 0 {
		return false
	}
	f := *a.top
	f.seen |= 1 << i
	a.top, a.node = &f, n.values[i]
	return true
}

// inLiteral accepts a byte that continues at least one of the remaining literals or keys.
func (a *state) inLiteral(c byte) bool {
	all, keys := a.node.literals, a.mode == mKnownKey
	if keys {
		all = a.node.keys
	}
	fits := func(i int) bool {
		return len(all[i]) > a.at && all[i][a.at] == c && !(keys && a.top.seen>>i&1 != 0)
	}
	from, to := a.from, a.to
	for from < to && !fits(from) {
		from++
	}
	for to > from && !fits(to-1) {
		to--
	}
	if from == to { // an integer may end where a longer one continues
		if keys || len(all[a.from]) != a.at {
			return false
		}
		a.ended()
		return a.next(c)
	}
	a.from, a.to, a.at = from, to, a.at+1
	if to-from > 1 || len(all[from]) > a.at {
		return true
	}
	switch {
	case keys:
		return a.took(from)
	case a.node.kinds == kCalls:
		f := &frame{up: a.top, node: a.node, kind: kCalls, depth: 1}
		a.top, a.node, a.mode = f, a.node.values[from], mValue
	default:
		a.ended()
	}
	return true
}
