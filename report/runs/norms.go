package runs

import (
	"bytes"
	"encoding/json"
	"math"
)

// norms collects grad_norms.jsonl into a run.
type norms struct {
	run *Run
	at  map[string]int
}

func newNorms(r *Run) *norms { return &norms{r, map[string]int{}} }

// take parses a line and reports whether it is valid.
func (n *norms) take(text []byte) bool {
	r := n.run
	names, values, step, ok := normsOf(text)
	if !ok {
		return false
	}
	for i, name := range names {
		k, ok := n.at[name]
		if !ok {
			if len(r.Norms) == mostTensor {
				continue
			}
			k = len(r.Norms)
			n.at[name] = k
			r.Norms = append(r.Norms, TensorNorms{Name: name, Lowest: math.Inf(1), Highest: math.Inf(-1)})
		}
		r.Norms[k].add(step, values[i])
	}
	return true
}

func (t *TensorNorms) add(step int, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		t.unknown++
		return
	}
	t.lines++
	t.sum += v
	t.Last, t.Lowest, t.Mean = v, min(t.Lowest, v), t.sum/t.lines
	if v > t.Highest {
		t.Highest, t.HighestAt = v, float64(step)
	}
}

// normsOf parses a line of grad_norms.jsonl, with its tensors in their order.
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
