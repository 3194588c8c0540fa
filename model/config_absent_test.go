package model_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
)

// TestAbsentMeans: what files leave out, where it is not plain, is what transformers 5.17 takes: its configuration
// classes.
func TestAbsentMeans(t *testing.T) {
	for _, c := range []struct {
		family, keys string
		ok           func(c model.Config) bool
	}{
		{"olmo3", ``, func(c model.Config) bool { return c.RopeTheta == 500000 && c.LocalRopeTheta == 0 }},
		{"olmo3", `"rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":500000}}`,
			func(c model.Config) bool {
				return c.RopeTheta == 500000
			}},
		{"gemma3_text", `"rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":5000}}`,
			func(c model.Config) bool {
				return c.RopeTheta == 1e6 && c.LocalRopeTheta == 5000
			}},
		{"llama", `"rope_scaling":{"rope_type":"yarn","factor":2,"truncate":null}`, func(c model.Config) bool {
			return c.RopeScaling.NoTruncate
		}},
		{"llama", `"rope_scaling":{"rope_type":"yarn","factor":2}`, func(c model.Config) bool {
			return !c.RopeScaling.NoTruncate
		}},
		{"llama", `"rope_scaling":{"rope_type":"dynamic","factor":2.5}`, func(c model.Config) bool {
			return c.LongestRow() == 2*c.MaxPositions+c.MaxPositions/2
		}},
		{"llama", ``, func(c model.Config) bool { return c.LongestRow() == c.MaxPositions }},
		{"qwen2_moe",
			`"use_sliding_window":true,"sliding_window":8,"max_window_layers":2,"transformers_version":"5.17.0"`,
			func(c model.Config) bool {
				return c.Window(0) == 8 && c.Window(1) == 0 && c.Window(2) == 0 && c.Window(3) == 0
			}},
		{"qwen2_moe",
			`"use_sliding_window":true,"sliding_window":8,"max_window_layers":2,"transformers_version":"4.57.6"`,
			func(c model.Config) bool {
				return c.Window(0) == 8 && c.Window(3) == 8
			}},
		{"gpt_oss", `"rope_parameters":null,"transformers_version":"5.17.0"`, func(c model.Config) bool {
			return c.RopeScaling.Type == "yarn" && c.RopeScaling.NoTruncate
		}},
		{"gpt_oss", `"rope_scaling":null,"transformers_version":"4.57.6"`, func(c model.Config) bool {
			return c.RopeScaling.Type == "default"
		}},
		{"gpt_oss", ``, func(c model.Config) bool {
			return c.RopeScaling.Type == "yarn" && c.RopeScaling.Factor == 32
		}},
		{"phi3", `"rope_scaling":{"type":"longrope","short_factor":[SHORT],"long_factor":[SHORT]}`,
			func(c model.Config) bool {
				return c.RopeScaling.OriginalMaxPositions == 4096
			}},
	} {
		keys := c.keys
		small, err := parse(c.family, ``)
		if err != nil {
			t.Fatal(err)
		}
		keys = strings.ReplaceAll(keys, "SHORT", strings.TrimSuffix(strings.Repeat("1,", small.RotaryColumns()/2), ","))
		got, err := parse(c.family, keys)
		if err != nil || !c.ok(got) {
			t.Errorf("%s %s: %+v, %v", c.family, keys, got, err)
		}
		if c.family == "phi3" { // transformers reads the original length beside the rotary scaling alone
			inside := strings.TrimSuffix(keys, "}") + `,"original_max_position_embeddings":8192}`
			if _, err := parse(c.family, inside); err == nil || !strings.Contains(err.Error(),
				"write it beside the rotary scaling") {
				t.Errorf("%s %s: %v", c.family, inside, err)
			}
		}
	}
}
