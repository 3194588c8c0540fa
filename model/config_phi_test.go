package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

// The configurations of releases as public repositories quote them: Phi-3-mini-4k and Phi-3.5-mini beside their
// exporters and benchmarks, Phi-4-mini in lists of configurations, Phi-4 by its model card's numbers.
var phi = map[string]model.Config{
	"phi-3-mini-4k-instruct": phiMini,
	"phi-3.5-mini-instruct": func() model.Config {
		c := phiMini
		c.MaxPositions, c.SlidingWindow = 131072, 262144
		c.RopeScaling = model.RopeScaling{Type: "longrope", OriginalMaxPositions: 4096}
		return c
	}(),
	"phi-4-mini-instruct": func() model.Config {
		c := phiMini
		c.VocabSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.TieEmbeddings = 200064, 24, 8, 128, true
		c.MaxPositions, c.SlidingWindow, c.BOS, c.EOS = 131072, 262144, []int{199999}, []int{199999}
		c.RopeScaling, c.PartialRotary = model.RopeScaling{Type: "longrope", OriginalMaxPositions: 4096}, 0.75
		return c
	}(),
	"phi-4": func() model.Config {
		c := phiMini
		c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.NumHeads, c.NumKVHeads, c.HeadDim = 100352, 5120,
			17920, 40, 40, 10, 128
		c.MaxPositions, c.SlidingWindow, c.RopeTheta, c.BOS, c.EOS = 16384, 0, 250000, []int{100257}, []int{100265}
		return c
	}(),
}

var phiMini = model.Config{
	ModelType: "phi3", VocabSize: 32064, HiddenSize: 3072, IntermediateSize: 8192, NumLayers: 32, NumHeads: 32,
	NumKVHeads: 32,
	HeadDim:    96, RMSNormEps: 1e-5, RopeTheta: 10000, RopeScaling: model.RopeScaling{Type: "default"},
	MaxPositions:  4096,
	SlidingWindow: 2047, HiddenAct: "silu", BOS: []int{1}, EOS: []int{32000}, DType: "bfloat16",
}

// TestPhiConfigs reads the releases' files as they are, and in transformers 5's spelling.
func TestPhiConfigs(t *testing.T) {
	for name, want := range phi {
		data, err := os.ReadFile(filepath.Join("testdata", name+".config.json"))
		if err != nil {
			t.Fatal(err)
		}
		for spelling, data := range map[string][]byte{"4": data, "5": inFive(t, data)} {
			got, err := families.ParseConfig(data)
			if err != nil {
				t.Errorf("%s, transformers %s: %v", name, spelling, err)
				continue
			}
			if s := got.RopeScaling; s.Type == "longrope" && (len(s.ShortFactor) != 48 || len(s.LongFactor) != 48) {
				t.Errorf("%s, transformers %s: %d short and %d long factors", name, spelling, len(s.ShortFactor),
					len(s.LongFactor))
			}
			got.RopeScaling.ShortFactor, got.RopeScaling.LongFactor = nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, transformers %s:\n%+v, expected\n%+v", name, spelling, got, want)
			}
		}
	}
}

// inFive is a file as transformers 5.23 writes it: rotary settings in rope_parameters, the kind under both keys, and
// what came as top-level keys there too.
func inFive(t *testing.T, data []byte) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	r := map[string]any{"rope_type": "default", "rope_theta": c["rope_theta"], "partial_rotary_factor": 1.0}
	if old, ok := c["rope_scaling"].(map[string]any); ok {
		r["rope_type"], r["type"] = "longrope", "longrope"
		r["short_factor"], r["long_factor"] = old["short_factor"], old["long_factor"]
		r["original_max_position_embeddings"] = c["original_max_position_embeddings"]
	}
	if p, ok := c["partial_rotary_factor"]; ok {
		r["partial_rotary_factor"] = p
	}
	c["rope_parameters"], c["dtype"] = r, c["torch_dtype"]
	for _, k := range []string{"rope_scaling", "rope_theta", "torch_dtype", "auto_map"} {
		delete(c, k)
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPhiOptions(t *testing.T) {
	const long = `"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2]}`
	for _, c := range []struct {
		more string
		get  func(model.Config) any
		want any
	}{
		{``, func(c model.Config) any { return c.RMSNormEps }, 1e-5},
		{``, func(c model.Config) any { return c.SlidingWindow }, 0},
		{`"sliding_window":7`, func(c model.Config) any { return [2]int{c.Window(0), c.Window(3)} }, [2]int{7, 7}},
		{`"original_max_position_embeddings":64`, func(c model.Config) any {
			return c.RopeScaling
		}, model.RopeScaling{Type: "default"}},
		{long, func(c model.Config) any { return c.RopeScaling.OriginalMaxPositions }, 4096},
		{long + `,"original_max_position_embeddings":64`, func(c model.Config) any {
			return c.RopeScaling.OriginalMaxPositions
		}, 64},
		{strings.Replace(long, `"type":"longrope"`, `"type":"su","rope_type":"longrope"`, 1), func(c model.Config) any {
			return c.RopeScaling.Type
		}, "longrope"},
		{strings.Replace(long, "longrope", "yarn", 1), func(c model.Config) any {
			return c.RopeScaling.Type
		}, "longrope"},
		{`"partial_rotary_factor":0.75`, func(c model.Config) any { return c.RotaryColumns() }, 12},
		// 11.2 of 16: six frequencies
		{`"partial_rotary_factor":0.7`, func(c model.Config) any { return c.RotaryColumns() }, 12},
		{`"partial_rotary_factor":1.0`, func(c model.Config) any {
			return [2]any{c.RotaryColumns(), c.PartialRotary}
		}, [2]any{16, 0.0}},
		{`"rope_parameters":{"partial_rotary_factor":0.5}`, func(c model.Config) any { return c.RotaryColumns() }, 8},
		{`"partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":0.5}`, func(c model.Config) any {
			return c.RotaryColumns()
		}, 8},
		{`"transformers_version":"5.17.0","partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":0.25}`,
			func(c model.Config) any {
				return c.RotaryColumns()
			}, 4},
		{`"auto_map":{"AutoConfig":"a.B"}`, func(c model.Config) any { return c.ModelType }, "phi3"},
	} {
		got, err := parse("phi3", c.more)
		if err != nil {
			t.Errorf("%s: %v", c.more, err)
		} else if v := c.get(got); !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s: %v, expected %v", c.more, v, c.want)
		}
	}
	c, err := families.ParseConfig([]byte(`{"model_type":"phi3",` + strings.Replace(sizes,
		`"num_key_value_heads":2,`, "", 1) + `}`))
	if err != nil || c.NumKVHeads != 4 {
		t.Errorf("phi3 without key/value heads: %+v, %v", c, err)
	}
}

func TestPhiRefuses(t *testing.T) {
	eight := `[1,1,1,1,1,1,1,1]`
	for _, c := range []struct{ more, want string }{
		{`"attention_bias":true`, `attention_bias = true: phi3 has no biases`},
		{`"lm_head_bias":true`, `lm_head_bias = true: phi3 has no biases`},
		{`"resid_pdrop":0.1`, `resid_pdrop = 0.1: training here has no dropout in the base model`},
		{`"embd_pdrop":0.1`, `embd_pdrop = 0.1: training here has no dropout in the base model`},
		{`"full_attn_mod":2`, `full_attn_mod = 2: phi3 as transformers computes it has no such change`},
		{`"hidden_act":"gelu"`, `hidden_act = "gelu": only silu is supported`},
		{`"sliding_window":0`, `sliding_window = 0: must be 1 or more, or null`},
		{`"auto_map":{"AutoModelForCausalLM":"modeling_x.Phi3SmallForCausalLM"}`,
			`auto_map names modeling_x.Phi3SmallForCausalLM: models that bring their own code are not supported`},
		{`"auto_map":[1]`, `auto_map = [1]: must be an object`},
		{`"use_sliding_window":true`, `use_sliding_window = true: unknown key`},
		{`"q_proj":1`, `q_proj = 1: unknown key`},
		{`"partial_rotary_factor":0`, `partial_rotary_factor = 0: must be above 0 and at most 1`},
		{`"partial_rotary_factor":1.5`, `partial_rotary_factor = 1.5: must be above 0 and at most 1`},
		{`"partial_rotary_factor":0.05`, `partial_rotary_factor = 0.05: rotates nothing of a head of 16`},
		{`"partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":0.25}`,
			`rope_parameters.partial_rotary_factor = 0.25 contradicts partial_rotary_factor = 0.5`},
		{`"transformers_version":"4.57.6","partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":0.25}`,
			`rope_parameters.partial_rotary_factor = 0.25 contradicts`},
		{`"transformers_version":"5.17.0","partial_rotary_factor":0.5,"rope_scaling":{"rope_type":"default","partial_rotary_factor":0.25}`, `rope_scaling.partial_rotary_factor = 0.25 contradicts`},
		{`"rope_scaling":{"type":"linear","factor":2}`,
			`rope_scaling.type = "linear" is not supported (supported: default, longrope, su, yarn)`},
		{`"rope_scaling":{"type":"longrope","long_factor":` + eight + `}`,
			`rope_scaling.short_factor is missing; type "longrope" needs it`},
		{`"rope_scaling":{"type":"su","short_factor":[1,2],"long_factor":` + eight + `}`,
			`rope_scaling.short_factor has 2 numbers, want 8: one for each pair of the 16 columns of a head that are ` +
				`rotated`},
		{`"rope_parameters":{"rope_type":"longrope","short_factor":` + eight + `,"long_factor":[1,1,1,0,1,1,1,1]}`,
			`rope_parameters.long_factor[3] = 0: must be above 0`},
		{`"rope_scaling":{"type":"longrope","short_factor":"x","long_factor":` + eight + `}`,
			`rope_scaling.short_factor = "x": must be a list of numbers`},
		{`"original_max_position_embeddings":1,"rope_scaling":{"type":"longrope","short_factor":` + eight +
			`,"long_factor":` + eight + `}`, `original_max_position_embeddings = 1: must be 2 to`},
		{`"original_max_position_embeddings":64,"rope_parameters":{"rope_type":"longrope","short_factor":` + eight +
			`,"long_factor":` + eight + `,"original_max_position_embeddings":32}`,
			`original_max_position_embeddings = 64 contradicts the 32 of the rotary scaling`},
	} {
		_, err := parse("phi3", c.more)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\nerror %v\nexpected %s", c.more, err, c.want)
		} else if strings.Contains(err.Error(), "problems:") {
			t.Errorf("%s: one mistake gives several problems: %v", c.more, err)
		}
	}
}

// TestLongRopeSwitches: the long factors are those of runs longer than the original length, as transformers chooses
// them by the longest sequence of a batch; the scale of cos and sin is the same for both.
func TestLongRopeSwitches(t *testing.T) {
	c := phi["phi-4-mini-instruct"]
	for range 48 {
		c.RopeScaling.ShortFactor, c.RopeScaling.LongFactor = append(c.RopeScaling.ShortFactor,
			1), append(c.RopeScaling.LongFactor, 4)
	}
	scale := math.Sqrt(1 + math.Log(32)/math.Log(4096))
	for tokens, first := range map[int]float64{1: 1, 4096: 1, 4097: 0.25, 131072: 0.25} {
		f, s, err := c.InvFreq(tokens)
		if err != nil || f[0] != first || math.Abs(s-scale) > 1e-15 {
			t.Errorf("%d tokens: first frequency %v, scale %v, want %v and %v (%v)", tokens, f[0], s, first, scale, err)
		}
	}
}
