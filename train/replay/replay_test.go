package replay

import (
	"context"
	"errors"
	"testing"
)

// recorded is a run that repeats the losses that it is given. A loss of zero is a skipped step.
type recorded struct {
	losses  []float64
	padded  bool
	at      int
	counted []float64
	ended   bool
}

func (r *recorded) Train(_ context.Context, padded bool, seen func() error) error {
	r.padded = padded
	for _, l := range r.losses {
		if r.at++; l == 0 {
			continue
		}
		r.counted = append(r.counted, l)
		if err := seen(); err != nil {
			return err
		}
	}
	return nil
}

func (r *recorded) Evidence() Evidence {
	return Evidence{Step: r.at, Losses: HashLosses(r.counted), Rows: "rows"}
}
func (r *recorded) Leads() bool                                { return true }
func (r *recorded) Manifest(context.Context) (Manifest, error) { return recordOf(r.losses), nil }
func (r *recorded) AdapterSum() (string, error)                { return HashLosses(r.counted), nil }
func (r *recorded) End(err error) error {
	r.ended = true
	if errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// recordOf is the manifest of a run with such losses.
func recordOf(losses []float64) Manifest {
	m := Manifest{Program: "v1", Steps: len(losses)}
	run := recorded{losses: losses}
	run.Train(context.Background(), false, func() error { //nolint:errcheck // it returns what the function does
		m.Evidence = append(m.Evidence, run.Evidence())
		return nil
	})
	m.Files = map[string]string{"adapter_model.safetensors": HashLosses(run.counted)}
	return m
}

// TestVerifyRecorded: equal runs are equal, and the first step that differs ends the replay.
func TestVerifyRecorded(t *testing.T) {
	was := []float64{4, 3, 0, 2, 1}
	for name, c := range map[string]struct {
		losses []float64
		steps  int
		want   Divergence // zero = equal
		at     int
		whole  bool
	}{
		"the same":         {was, 5, Divergence{}, 5, true},
		"some steps":       {was, 2, Divergence{}, 2, false},
		"a skipped step":   {was, 3, Divergence{}, 4, false}, // which has no evidence of its own
		"another loss":     {[]float64{4, 3, 0, 2.5, 1}, 5, Divergence{2, 4}, 4, false},
		"one more skipped": {[]float64{4, 0, 0, 2, 1}, 5, Divergence{1, 4}, 4, false},
		"one less skipped": {[]float64{4, 3, 9, 2, 1}, 5, Divergence{2, 4}, 4, false},
	} {
		run := &recorded{losses: c.losses}
		v, err := Verify(t.Context(), run, recordOf(was), c.steps)
		if err != nil || !run.ended || v.Steps != c.at || v.Of != 5 || v.Equal != (c.want == Divergence{}) ||
			!v.Equal && (v.Losses == nil || *v.Losses != c.want) || (v.Adapter != nil) != c.whole || run.padded {
			t.Errorf("%s: %+v (losses %v), %v", name, v, v.Losses, err)
		}
	}
}

func TestKeepsEvidence(t *testing.T) {
	for total, most := range map[int]int{1: 1, 100: 100, 4000: 490, 4010: 140, 1_000_000: 300} {
		n := 0
		for step := 1; step <= total; step++ {
			if KeepsEvidence(step, total) {
				n++
			}
		}
		if n > most || !KeepsEvidence(total, total) {
			t.Errorf("%d of %d steps, at most %d expected", n, total, most)
		}
	}
}
