package model_test

import (
	"strings"
	"testing"
)

// TestLongRopeOfLlama: transformers 4.57.6 reads the original length beside rope_scaling and divides the model's length
// by it, transformers 5 reads it and a factor in rope_parameters; what the two compute otherwise is refused.
func TestLongRopeOfLlama(t *testing.T) {
	const eight = `"short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2]`
	old := func(more string) string { return `"rope_scaling":{"rope_type":"longrope",` + eight + more + `}` }
	now := func(more string) string {
		return `"rope_parameters":{"rope_type":"longrope","rope_theta":10000,` + eight + more + `}`
	}
	for _, c := range []struct {
		more     string
		original int
		factor   float64
		want     string
	}{
		{more: old("")},
		{more: old(`,"factor":4`), factor: 4},
		{more: old("") + `,"original_max_position_embeddings":64`, original: 64},
		{more: old(`,"factor":8`) + `,"original_max_position_embeddings":64`, original: 64, factor: 8},
		{more: old(`,"factor":4,"attention_factor":1.5`) + `,"original_max_position_embeddings":64`,
			original: 64, factor: 4},
		{more: now(`,"original_max_position_embeddings":64`), original: 64},
		{more: now(`,"factor":4`) + `,"original_max_position_embeddings":64`, original: 64, factor: 4},
		{more: old(`,"factor":4`) + `,"original_max_position_embeddings":64`,
			want: `rope_scaling.factor = 4: with original_max_position_embeddings beside rope_scaling transformers 4 ` +
				`takes max_position_embeddings/original_max_position_embeddings = 8 instead`},
		{more: old(`,"original_max_position_embeddings":64`),
			want: `rope_scaling.original_max_position_embeddings = 64: transformers 4 does not read it there for ` +
				`longrope, and transformers 5 does; write it beside rope_scaling`},
		{more: now(`,"original_max_position_embeddings":32`) + `,"original_max_position_embeddings":64`,
			want: `original_max_position_embeddings = 64 contradicts the 32 of the rotary scaling`},
		{more: old("") + `,"original_max_position_embeddings":1`, want: `original_max_position_embeddings = 1: must ` +
			`be 2 to`},
		{more: `"original_max_position_embeddings":64`, want: `original_max_position_embeddings = 64: unknown key`},
	} {
		for _, family := range []string{"llama", "qwen3", "mixtral"} {
			more := c.more
			switch family {
			case "qwen3":
				more += `,"head_dim":16`
			case "mixtral":
				more += `,"num_local_experts":4`
			}
			got, err := parse(family, more)
			switch {
			case c.want != "":
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "problems:") {
					t.Errorf("%s %s:\nerror %v\nexpected %s", family, more, err, c.want)
				}
			case err != nil:
				t.Errorf("%s %s: %v", family, more, err)
			case got.RopeScaling.OriginalMaxPositions != c.original || got.RopeScaling.Factor != c.factor:
				t.Errorf("%s %s: %+v", family, more, got.RopeScaling)
			}
		}
	}
}
