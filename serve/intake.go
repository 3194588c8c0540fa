package serve

import (
	"errors"
	"io"
	"sync/atomic"
)

// intake bounds the bytes of all bodies that are read and taken apart at once. What a body decodes to is in proportion
// to its bytes (extentOf), so this bounds the memory that requests take before their lengths are known.
type intake struct {
	most int64
	held atomic.Int64
}

// errFull says that the bodies at hand leave no room for one more.
var errFull = errors.New("too many bytes of requests at once")

// bodyStep is how many bytes a body takes at a time. A slow client holds no more than it sent.
const bodyStep = 64 << 10

// read reads a body to its end. release gives its bytes back and is called in any case.
func (in *intake) read(r io.Reader) (body []byte, release func(), err error) {
	held := int64(0)
	release = func() { in.held.Add(-held) }
	for {
		if len(body) == cap(body) {
			more := int64(max(bodyStep, len(body)/2)) // as the body grows, so do the steps
			if in.held.Add(more) > in.most {
				in.held.Add(-more)
				return body, release, errFull
			}
			held += more
			grown := make([]byte, len(body), len(body)+int(more))
			copy(grown, body)
			body = grown
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, release, nil
		}
		if err != nil {
			return body, release, err
		}
	}
}

// maxValues is how many values a body may hold besides token ids: messages, their keys, schemas of tools.
const maxValues = 1 << 18

// maxKeys is how many keys the object of a body may have: there are about 40 parameters.
const maxKeys = 1000

// extent is the size of a JSON text, counted without decoding it.
type extent struct {
	keys   int // keys of the outermost object, 1 where it has none
	values int // values that all lists and objects hold together, or a few more
	depth  int // deepest nesting of brackets outside of strings
}

// extentOf counts a JSON text in one pass. A text that is not JSON gets some extent, and its error from the decoder.
func extentOf(b []byte) extent {
	e, depth, text := extent{keys: 1, values: 1}, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			e.values++
			e.depth = max(e.depth, depth)
		case c == '}' || c == ']':
			depth--
		case c == ',':
			e.values++
			if depth == 1 {
				e.keys++
			}
		}
	}
	return e
}
