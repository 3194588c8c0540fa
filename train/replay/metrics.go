package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/regular"
)

// CheckMetrics compares the losses in a run's metrics.jsonl with the hashes of its manifest; a replay does not read
// that file. compared is false if the file lacks a line for some step. at is nil if all losses are equal.
func CheckMetrics(path string, was Manifest) (at *Divergence, compared bool, err error) {
	text, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	var losses []float64
	var upTo []int // number of losses up to each step
	left := map[int]bool{}
	for _, step := range was.Skipped {
		left[step] = true
	}
	pass := func() { // skipped steps have no line
		for left[len(upTo)] || len(upTo) == 0 {
			upTo = append(upTo, len(losses))
		}
	}
	pass()
	for line := range bytes.Lines(text) {
		var l struct {
			Step int      `json:"step"`
			Loss *float64 `json:"loss"`
		}
		if json.Unmarshal(line, &l) != nil || l.Loss == nil {
			continue // an evaluation, the end of the run, or a damaged line, which leaves a step out
		}
		if l.Step != len(upTo) {
			return nil, false, nil
		}
		losses = append(losses, *l.Loss)
		upTo = append(upTo, len(losses))
		pass()
	}
	if len(upTo)-1 != was.Steps {
		return nil, false, nil
	}
	equal := 0
	for _, e := range was.Evidence {
		if e.Step < 1 || e.Step > was.Steps || e.Losses != HashLosses(losses[:upTo[e.Step]]) {
			return &Divergence{equal, e.Step}, true, nil
		}
		equal = e.Step
	}
	if was.Losses != HashLosses(losses) {
		return &Divergence{equal, was.Steps}, true, nil
	}
	return nil, true, nil
}
