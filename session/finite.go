package session

import (
	"context"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/model/weights"
)

// BlameNotFinite adds to err the first tensor of the base model with a value that is not finite, if there is one: then
// the model is the cause and not the data.
func (s *Session) BlameNotFinite(ctx context.Context, err error) error {
	if found := s.Base.CheckFinite(ctx); found != nil {
		return fmt.Errorf("%w; %w", err, found)
	}
	return err
}

// CheckFinite reads every tensor of the model. Its error names the first one with a value that is not finite.
func (b *Base) CheckFinite(ctx context.Context) error {
	for _, name := range b.Weights.Names() {
		t, _ := b.Weights.Tensor(name)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := CheckFinite(t); err != nil {
			return fmt.Errorf("base model %q: %w: get the model again", b.Name, err)
		}
	}
	return nil
}

// CheckFinite returns an error that names a tensor and its first value that is not finite. Integers are always finite.
func CheckFinite(t weights.Tensor) error {
	if _, ok := storedTypes[t.DType]; !ok {
		return nil
	}
	buf := make([]float32, min(1<<16, t.Len()))
	for from := 0; from < t.Len(); from += len(buf) {
		part := buf[:min(len(buf), t.Len()-from)]
		if err := weights.Float32Range(t, from, from+len(part), part); err != nil {
			return err
		}
		for i, v := range part {
			if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
				return fmt.Errorf("tensor %s has %v at element %d of %v", t.Name, v, from+i, t.Shape)
			}
		}
	}
	return nil
}
