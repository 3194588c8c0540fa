package session

import (
	"context"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/model/weights"
)

// BlameNotFinite is err with the first tensor of the base model that has a number which is not finite, where there is
// one: the data is not to blame then.
func (s *Session) BlameNotFinite(ctx context.Context, err error) error {
	if found := s.Base.CheckFinite(ctx); found != nil {
		return fmt.Errorf("%w; %w", err, found)
	}
	return err
}

// CheckFinite reads every tensor of the model and names the first that has a number which is not finite.
func (b *Base) CheckFinite(ctx context.Context) error {
	buf := make([]float32, 1<<16)
	for _, name := range b.Weights.Names() {
		t, _ := b.Weights.Tensor(name)
		if _, ok := storedTypes[t.DType]; !ok {
			continue
		}
		for from := 0; from < t.Len(); from += len(buf) {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := buf[:min(len(buf), t.Len()-from)]
			if err := weights.Float32Range(t, from, from+len(part), part); err != nil {
				return err
			}
			for i, v := range part {
				if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
					return fmt.Errorf("base model %q: tensor %s has %v at element %d of %v: get the model again", b.Name, name, v, from+i, t.Shape)
				}
			}
		}
	}
	return nil
}
