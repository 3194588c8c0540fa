package export

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// dequantised is a weight that is stored quantised, in numbers of the type that it had before, F16 where that is not known.
// Another tensor is what it is.
func dequantised(b *session.Base, name string) (weights.Tensor, error) {
	t, ok := b.Tensors().Tensor(name)
	if !ok {
		return t, fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	if b.Tensors().Config(name) == nil {
		return t, nil
	}
	w := make([]float32, t.Len())
	if err := b.Tensors().Float32s(name, 0, w); err != nil {
		return t, err
	}
	return weights.FromFloat32s(t.Name, t.DType, t.Shape, w)
}

// withoutKey is a JSON object without one of its keys, byte for byte else.
func withoutKey(object []byte, key string) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for before := dec.InputOffset(); dec.More(); before = dec.InputOffset() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if name != key {
			continue
		}
		after := dec.InputOffset()
		if !bytes.Contains(object[before:before+int64(bytes.IndexByte(object[before:], '"'))], []byte(",")) { // the first key takes the comma behind it
			rest := bytes.TrimLeft(object[after:], " \t\r\n")
			after = int64(len(object) - len(bytes.TrimPrefix(rest, []byte(","))))
		}
		return append(bytes.Clone(object[:before]), object[after:]...), nil
	}
	return object, nil
}
