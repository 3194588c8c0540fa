package tokenizer

import "fmt"

// work counts what one text costs on its way through a tokenizer, before it is done: a tokenizer is a file from
// elsewhere, whose patterns, replacements and vocabulary may be made to take time or memory without end. A nil *work
// counts nothing.
type work struct {
	text int // bytes of the text
	left int // steps, each about as long as a look at a byte
	most int // bytes that a piece may have
}

// The bounds of a text of n bytes. Real tokenizers took 2 to 48 steps a byte, and make a text at most 22 times as
// long: where NFKC writes an Arabic phrase out and the bytes are written as characters.
const (
	leastSteps   = 8 << 20
	stepsPerByte = 250
	leastGrown   = 64 << 10
	timesGrown   = 32
	freelyGrown  = 32 << 20 // beyond it a text may grow to timesGrownFar as long
	timesFar     = 4
)

// The most steps of a kind in a tokenizer, and how deep sequences may lie in each other: far beyond any in use.
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

// room asks whether a piece may have n bytes.
func (w *work) room(n int) {
	if w != nil && n > w.most {
		panic(&LimitError{fmt.Sprintf("the tokenizer makes more than %d bytes of a text of %d: "+
			"its normaliser or its pre-tokenizer is broken, or made to fill the memory", w.most, w.text)})
	}
}

// LimitError is what a Tokenizer's methods panic with where a text would take time or memory out of proportion. Whoever
// calls them for a tokenizer from elsewhere defers Caught.
type LimitError struct{ what string }

func (e *LimitError) Error() string { return e.what }

// Caught turns the panic of a LimitError into err. It is deferred.
func Caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case *LimitError:
		*err = r
	default:
		panic(r)
	}
}
