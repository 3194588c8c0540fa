package infer

import (
	"encoding/json"
	"math"
)

// Perplexity is exp(loss). It is infinite for a loss above 709.
type Perplexity float64

// MarshalJSON writes an infinite perplexity as null, since JSON has no infinity.
func (p Perplexity) MarshalJSON() ([]byte, error) {
	if x := float64(p); math.IsInf(x, 0) || math.IsNaN(x) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(p))
}
