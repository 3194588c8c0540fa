package infer

import (
	"encoding/json"
	"math"
)

// Perplexity is exp of a loss: infinite above a loss of 709.
type Perplexity float64

// MarshalJSON writes null for one that is infinite, which JSON has no number for.
func (p Perplexity) MarshalJSON() ([]byte, error) {
	if x := float64(p); math.IsInf(x, 0) || math.IsNaN(x) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(p))
}
