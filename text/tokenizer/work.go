package tokenizer

import "fmt"

// work counts the cost of one text in a tokenizer, before it is spent. A tokenizer is an untrusted file, whose
// patterns, replacements and vocabulary may be made to take unlimited time or memory. A nil *work counts nothing.
type work struct {
	text int // length of the text in bytes
	left int // remaining steps, each about as long as reading a byte
	most int // largest size of a piece in bytes
}

// The limits for a text of n bytes. Real tokenizers took 2 to 48 steps per byte, and made a text at most 22 times as
// long: in a case where NFKC expands an Arabic phrase and the bytes are written as characters.
const (
	leastSteps   = 8 << 20
	stepsPerByte = 250
	leastGrown   = 64 << 10
	timesGrown   = 32
	freelyGrown  = 32 << 20 // above it a text may only grow to timesGrownFar its length
	timesFar     = 4
)

// The largest number of steps of one kind in a tokenizer, and the largest depth of nested sequences, far beyond any in
// use.
const (
	maxParts   = 64
	maxNesting = 8
)

func newWork(n int) *work {
	return &work{text: n, left: leastSteps + stepsPerByte*n, most: min(timesGrown*n+leastGrown, max(timesFar*n, freelyGrown))}
}

// spend counts n steps.
func (w *work) spend(n int) {
	if w == nil {
		return
	}
	if w.left -= n; w.left < 0 {
		panic(&LimitError{fmt.Sprintf("the tokenizer takes more than %d steps for a text of %d bytes: "+
			"its patterns or its vocabulary are broken, or made to take long", leastSteps+stepsPerByte*w.text, w.text)})
	}
}

// room panics with a LimitError if a piece must not have n bytes.
func (w *work) room(n int) {
	if w != nil && n > w.most {
		panic(&LimitError{fmt.Sprintf("the tokenizer makes more than %d bytes of a text of %d: "+
			"its normaliser or its pre-tokenizer is broken, or made to fill the memory", w.most, w.text)})
	}
}

// LimitError is the panic value of a Tokenizer's methods for a text that would take disproportionate time or memory. A
// caller with an untrusted tokenizer defers Caught.
type LimitError struct{ what string }

// Error says what would exceed the limit.
func (e *LimitError) Error() string { return e.what }

// Caught turns the panic of a LimitError into err. Callers defer it.
func Caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case *LimitError:
		*err = r
	default:
		panic(r)
	}
}
