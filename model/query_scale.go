package model

import (
	"fmt"
	"maps"
	"math"
)

const queryBeta, originalLength = "llama_4_scaling_beta", "original_max_position_embeddings"

// QueryScale returns s(p) = 1 + beta ln(1 + floor(p / original)), by which queries at position p are multiplied after
// their rotation; nil = s is 1 for all positions below longest. Source: transformers' get_llama_4_attn_scale of
// ministral3.
func (c Config) QueryScale(longest int) func(position int) float64 {
	beta, original := c.RopeScaling.QueryBeta, c.RopeScaling.OriginalMaxPositions
	if original < 1 {
		original = c.MaxPositions
	}
	if beta == 0 || longest <= original {
		return nil
	}
	return func(position int) float64 { return 1 + beta*math.Log(float64(1+position/original)) }
}

// withQueryScale adds the keys of query scaling to the keys of a type of rotary scaling; true = required. For YaRN and
// LongRoPE the original length defaults to the model's length; other types need it. max_position_embeddings is not
// read.
func withQueryScale(kind string, takes map[string]bool) map[string]bool {
	takes = maps.Clone(takes)
	if _, optional := takes[originalLength]; !optional || kind == "dynamic" {
		takes[originalLength] = true
	}
	takes[queryBeta], takes["max_position_embeddings"] = true, false
	return takes
}

// neededBy describes what requires a key of rotary scaling.
func (d Dialect) neededBy(key, kind string) string {
	if ropeTypes[kind][key] {
		return fmt.Sprintf("type %q", kind)
	}
	return d.Architecture
}
