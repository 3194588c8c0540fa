package serve

import (
	"errors"
	"io"
	"sync/atomic"
)

// intake bounds the bytes of all request bodies that are being read and parsed. A parsed body is proportional to its
// bytes (extentOf), so this bounds the memory that requests take before their lengths are known.
type intake struct {
	most int64
	held atomic.Int64
}

// errFull reports that the present bodies leave no memory for another one.
var errFull = errors.New("too many bytes of requests at once")

// bodyStep is the number of bytes by which a body's buffer grows. A slow client takes no more memory than it has sent.
const bodyStep = 64 << 10

// read reads a whole body. release frees its bytes and must be called in any case.
func (in *intake) read(r io.Reader) (body []byte, release func(), err error) {
	held := int64(0)
	release = func() { in.held.Add(-held) }
	for {
		if len(body) == cap(body) {
			more := int64(max(bodyStep, len(body)/2)) // the steps grow with the body
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

// maxValues is the most values of a body besides token ids: messages, their keys, schemas of tools.
const maxValues = 1 << 18

// maxKeys is the most keys of a body's object: there are about 40 parameters.
const maxKeys = 1000

// extent is the size of a JSON text, counted without decoding it.
type extent struct {
	keys   int // keys of the outermost object, 1 if it is not an object
	values int // values of all lists and objects together, or slightly more
	depth  int // deepest nesting of brackets outside of strings
}

// extentOf measures a JSON text in one pass. A text that is not JSON gets some extent; the decoder reports its error.
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
