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
	mFormat // in a text of a format
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
	seen  uint64 // keys, and those whose values would be nested too deep here
	count int    // values
	most  int    // values; -1 = any number
	bare  bool   // no keys but those that the schema names
	depth int
}

// state is how far a text is, read as one of the alternatives that a schema leaves.
type state struct {
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
	from   int   // of the literals, or keys, that still fit; in a format's automaton
	to     int
	at     int // in them, or in a text of a format
}

// next takes a byte and tells whether it can follow; a is of no use where it can't. The node of a value that comes has
// no alternatives.
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

// blank takes white space as writers of JSON set it: one space before a value or a key, or a line break with what the
// next line is indented by; nothing before a colon. A model that is kept from all else would go on with white space.
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

// begin is the first byte of a value.
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

// fits tells whether there are as many levels left for lists and objects.
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

// limit leaves out what could not end before maxDepth. What has to be there can: else the value would not have begun.
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

// free tells whether a key may come that the schema does not name: behind those that have to be there, which a model
// that is left to make up others may never write.
func (f *frame) free() bool {
	return f.node.more != nil && !f.bare && f.node.required&^f.seen == 0
}

// nothing is a value that there is none of.
var nothing = &node{}

// close ends the list or object on top.
func (a *state) close() bool {
	a.top = a.top.up
	a.ended()
	return true
}

func (a *state) closeObject() bool {
	return a.top.node.required&^a.top.seen == 0 && a.close()
}

// ended is behind a value.
func (a *state) ended() {
	*a = state{top: a.top, mode: mAfter} // texts that were read in different ways are alike again
	if a.top == nil {
		a.mode = mDone
	}
}

// behind is what stands behind a value.
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

// beginKey is the first byte of a key.
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

// took is behind a key: the i-th of the object's, or -1.
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

// inLiteral narrows the literals, or the keys that are left, down by a byte.
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
	if from == to { // a whole number may end where a longer one could go on
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
