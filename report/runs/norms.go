package runs

import (
	"bytes"
	"encoding/json"
)

// normsOf reads a line of grad_norms.jsonl, with its tensors in their order.
func normsOf(text []byte) (names []string, norms []float64, step int, ok bool) {
	var l struct {
		Step    int             `json:"step"`
		Tensors json.RawMessage `json:"tensors"`
	}
	if json.Unmarshal(text, &l) != nil || l.Step < 0 {
		return nil, nil, 0, false
	}
	dec := json.NewDecoder(bytes.NewReader(l.Tensors))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, 0, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, nil, 0, false
		}
		var n number
		if err := dec.Decode(&n); err != nil {
			return nil, nil, 0, false
		}
		names, norms = append(names, name.(string)), append(norms, n.value())
	}
	return names, norms, l.Step, true
}
