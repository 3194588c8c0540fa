package jsonform

import "slices"

// Bounds of a text, so that an answer does not run on in what says nothing.
const (
	maxDepth  = 64  // of values that the schema leaves open
	indent    = 4   // spaces behind a line break for each list or object that is open
	maxSpace  = 40  // spaces behind a line break
	maxDigits = 24  // characters of a number before its exponent
	maxKey    = 256 // bytes of a key that the schema does not name
)

type mode uint8

const (
	mValue mode = iota // a value comes
	mFirst             // a list's first value, or its end
	mOpen              // an object's first key, or its end
	mKey               // a key, behind a comma
	mAfter             // behind a value
	mColon
	mLiteral
	mKnownKey
	mString // in it, as the others below
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

// frame is a list or an object that is open. It is never changed: texts that branch share it.
type frame struct {
	up    *frame
	node  *node
	kind  kinds
	seen  uint64 // keys
	count int    // values
	depth int
}

// Acceptor is how far a text is. It is a value: a copy goes on by itself.
type Acceptor struct {
	top    *frame
	node   *node // of the value that comes or is read
	mode   mode
	back   mode  // after an escape
	space  uint8 // white space before the next sign
	line   bool  // it began with a line break
	digits uint8
	hex    uint8 // digits still to come
	hexD   bool  // the first was d
	more   uint8 // bytes of a character still to come
	lo, hi byte  // bounds of the next of them
	from   int   // of the literals, or keys, that still fit
	to     int
	at     int // in them
}

// Start is before the first byte.
func (s *Schema) Start() Acceptor { return Acceptor{node: s.root, mode: mValue} }

// Done tells whether the value is whole.
func (a *Acceptor) Done() bool { return a.mode == mDone }

// Next takes a byte and tells whether it can follow; a is of no use where it can't.
func (a *Acceptor) Next(c byte) bool {
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
	if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
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

// blank takes white space as writers of JSON set it: one space before a value or a key, or a line break with what the
// next line is indented by; nothing before a colon. A model that is kept from all else would go on with white space.
func (a *Acceptor) blank(c byte) bool {
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

// begin is the first byte of a value.
func (a *Acceptor) begin(c byte) bool {
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
		return n.kinds&kObject != 0 && a.open(kObject, mOpen)
	case '[':
		return n.kinds&kArray != 0 && a.open(kArray, mFirst)
	case '"':
		a.mode = mString
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

func (a *Acceptor) open(k kinds, m mode) bool {
	f := &frame{up: a.top, node: a.node, kind: k, depth: 1}
	if a.top != nil {
		f.depth = a.top.depth + 1
	}
	if a.node == anyValue && f.depth > maxDepth {
		return false
	}
	a.top, a.mode = f, m
	if k == kArray {
		if a.node = f.node.items; f.node.most == 0 {
			a.node = nothing
		}
	}
	return true
}

// nothing is a value that there is none of.
var nothing = &node{}

// close ends the list or object on top.
func (a *Acceptor) close() bool {
	a.top = a.top.up
	a.ended()
	return true
}

func (a *Acceptor) closeObject() bool {
	return a.top.node.required&^a.top.seen == 0 && a.close()
}

// ended is behind a value.
func (a *Acceptor) ended() {
	if a.mode = mAfter; a.top == nil {
		a.mode = mDone
	}
}

// behind is what stands behind a value.
func (a *Acceptor) behind(c byte) bool {
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
		a.node, a.mode = f.node.items, mValue
		return f.node.most < 0 || g.count < f.node.most
	}
	a.mode = mKey
	return f.node.more != nil || f.node.left(f.seen) > 0
}

// beginKey is the first byte of a key.
func (a *Acceptor) beginKey(c byte) bool {
	n := a.top.node
	if c != '"' {
		return false
	}
	if n.more != nil {
		a.mode, a.from, a.to, a.at = mFreeKey, 0, len(n.keys), 0
		a.fit('"')
		return true
	}
	a.node, a.mode, a.from, a.to, a.at = n, mKnownKey, 0, len(n.keys), 0
	return a.inLiteral(c)
}

// took is behind a key: the i-th of the object's, or -1.
func (a *Acceptor) took(i int) bool {
	n := a.top.node
	a.mode, a.node = mColon, n.more
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

// inLiteral narrows the literals, or the keys that are left, down by a byte.
func (a *Acceptor) inLiteral(c byte) bool {
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
	if from == to { // a whole number may end where a longer one could go on
		if keys || len(all[a.from]) != a.at {
			return false
		}
		a.ended()
		return a.Next(c)
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
