package model_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

var ministralRope = model.RopeScaling{Type: "yarn", Factor: 16, OriginalMaxPositions: 16384, BetaFast: 32, BetaSlow: 1,
	MScale: 1, MScaleAllDim: 1, QueryBeta: 0.1}

// TestMinistral3Releases reads the config.json of Ministral 3 in a folder with images and by itself.
func TestMinistral3Releases(t *testing.T) {
	three := model.Config{
		ModelType: "mistral3", Multimodal: true, VocabSize: 131072, HiddenSize: 3072, IntermediateSize: 9216,
		NumLayers: 26, NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 1e6, RopeScaling: ministralRope, MaxPositions: 262144,
		TieEmbeddings: true, HiddenAct: "silu",
		BOS: []int{1}, EOS: []int{2}, DType: "bfloat16",
	}
	fourteen := three
	fourteen.HiddenSize, fourteen.IntermediateSize, fourteen.NumLayers, fourteen.RopeTheta, fourteen.TieEmbeddings =
		5120, 16384, 40, 1e9, false
	eight := three
	eight.ModelType, eight.Multimodal = "ministral3", false
	enhancer := eight
	eight.HiddenSize, eight.IntermediateSize, eight.NumLayers, eight.TieEmbeddings = 4096, 14336, 34, false
	checkReleases(t, "ministral3_releases.json", []model.Config{three, fourteen, eight, enhancer}, `"gate_scale": 2`,
		"gate_scale = 2: unknown key", func(name, _ string, c model.Config) {
			if _, scale, err := c.InvFreq(0); err != nil || scale != 1 {
				t.Errorf("%s: cosines are times %g, %v", name, scale, err)
			}
		})
	// A file that leaves everything out is the class's of transformers.
	eight.BOS, eight.EOS, eight.DType = nil, nil, ""
	if c, err := families.ParseConfig([]byte(`{"model_type":"ministral3"}`)); err != nil ||
		!reflect.DeepEqual(c, eight) {
		t.Errorf("%+v, %v, want\n%+v", c, err, eight)
	}
}

func TestMinistral3(t *testing.T) {
	const yarn = `"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":0.2`
	read := model.RopeScaling{Type: "yarn", Factor: 4, OriginalMaxPositions: 32, QueryBeta: 0.2}
	for _, c := range []struct {
		more  string
		theta float64
		want  model.RopeScaling
	}{
		{``, 1e6, ministralRope},
		{`"rope_parameters":null,"rope_scaling":null`, 1e6, ministralRope},
		{`"rope_theta":1000000.0`, 1e6, ministralRope},
		{`"rope_parameters":{"rope_type":"yarn",` + yarn + `}`, 10000, read},
		{`"rope_parameters":{"type":"yarn","max_position_embeddings":512,"rope_theta":500,` + yarn + `}`, 500, read},
		{`"rope_scaling":{"type":"yarn","rope_type":"yarn",` + yarn + `},"rope_theta":700`, 700, read},
		{`"rope_parameters":{"rope_type":"yarn","factor":4,"llama_4_scaling_beta":0}`, 10000,
			model.RopeScaling{Type: "yarn", Factor: 4}},
		{`"rope_parameters":{"original_max_position_embeddings":32,"llama_4_scaling_beta":0.2}`, 10000,
			model.RopeScaling{Type: "default", OriginalMaxPositions: 32, QueryBeta: 0.2}},
		{`"rope_parameters":{"rope_type":"linear",` + yarn + `}`, 10000, model.RopeScaling{Type: "linear", Factor: 4,
			OriginalMaxPositions: 32, QueryBeta: 0.2}},
	} {
		got, err := parse("ministral3", c.more)
		if err != nil || got.RopeTheta != c.theta || !reflect.DeepEqual(got.RopeScaling, c.want) ||
			got.SlidingWindow != 0 {
			t.Errorf("%s: theta %g, %+v, window %d, %v", c.more, got.RopeTheta, got.RopeScaling, got.SlidingWindow, err)
		}
	}
	if c, err := parse("ministral3", `"sliding_window":9,"head_dim":null`); err != nil || c.Window(3) != 9 ||
		c.HeadDim != 16 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := families.ParseConfig([]byte(`{"model_type":"mistral3","text_config":{"model_type":"ministral3",` +
		strings.Replace(sizes, `"num_key_value_heads":2`, `"num_key_value_heads":null`, 1) + `}}`)); err != nil ||
		c.NumKVHeads != 4 || c.RopeScaling.QueryBeta != 0.1 || !c.Multimodal {
		t.Errorf("%+v, %v", c, err)
	}
	rope := func(keys string) string { return `"rope_parameters":{"rope_type":"yarn",` + keys + `}` }
	for _, c := range []struct{ family, more, want string }{
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32`),
			`rope_parameters.llama_4_scaling_beta is missing; Ministral3ForCausalLM needs it`},
		{"ministral3", `"rope_parameters":{"llama_4_scaling_beta":0.1}`,
			`rope_parameters.original_max_position_embeddings is missing; Ministral3ForCausalLM needs it`},
		{"ministral3", rope(`"original_max_position_embeddings":32,"llama_4_scaling_beta":0.1`),
			`rope_parameters.factor is missing; type "yarn" needs it`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":0,"llama_4_scaling_beta":0.1`),
			`rope_parameters.original_max_position_embeddings = 0: must be 1 to 1073741824`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":-6,"llama_4_scaling_beta":0.1`),
			`rope_parameters.original_max_position_embeddings = -6: must be 1 to 1073741824`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":-0.1`),
			`rope_parameters.llama_4_scaling_beta = -0.1: must not be negative`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":1e400`),
			`rope_parameters.llama_4_scaling_beta = 1e400: must be a number`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":1e300`),
			`rope_parameters.llama_4_scaling_beta = 1e+300: must be below 1e9`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":"0.1"`),
			`rope_parameters.llama_4_scaling_beta = "0.1": must be a number`},
		{"ministral3",
			rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":0.1,"max_position_embeddings":"long"`), `rope_parameters.max_position_embeddings = "long": must be a whole number`},
		{"ministral3", rope(`"factor":4,"original_max_position_embeddings":32,"llama_4_scaling_beta":0.1,"gamma":1`),
			`rope_parameters.gamma = 1: rope type "yarn" has no such key`},
		{"ministral3", `"rope_theta":5000`, `rope_theta = 5000: without rope_parameters it is 1e+06, whatever ` +
			`rope_theta says; write both in rope_parameters`},
		{"ministral3", `"llama_4_scaling_beta":0.1`, `llama_4_scaling_beta = 0.1: unknown key`},
		{"ministral3", `"attention_bias":true`, `attention_bias = true: ministral3 has no biases`},
		{"ministral3", `"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`,
			`layer_types[0] = "sliding_attention": ministral3's layers are alike, with sliding_window 0 all are ` +
				`full_attention`},
		{"ministral3", `"quantization_config":{"quant_method":"fp8","fmt":"e5m2"}`,
			`quantization_config.fmt = "e5m2": 8-bit floats in e4m3 are read`},
		{"ministral3", `"architectures":["MinistralForCausalLM"]`,
			`a ministral3 checkpoint must be a Ministral3ForCausalLM`},
		{"mistral", rope(`"factor":4,"llama_4_scaling_beta":0.1`),
			`rope_parameters.llama_4_scaling_beta = 0.1: rope type "yarn" has no such key`},
		{"mistral3", `"text_config":{"model_type":"ministral",` + sizes + `}`,
			`text_config.model_type = "ministral": must be ministral3 or mistral`},
	} {
		text := `{"model_type":"` + c.family + `",` + sizes + `,` + c.more + `}`
		if c.family == "mistral3" {
			text = `{"model_type":"mistral3",` + c.more + `}`
		}
		if _, err := families.ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "problems:") {
			t.Errorf("%s %s:\nerror %v\nexpected %s", c.family, c.more, err, c.want)
		}
	}
}

// TestQueryScale: 1 + beta ln(1 + floor(p / original)), and nothing where no position is as far.
func TestQueryScale(t *testing.T) {
	c, err := parse("ministral3",
		`"rope_parameters":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":6,"llama_4_scaling_beta":0.5}`)
	if err != nil {
		t.Fatal(err)
	}
	scale := c.QueryScale(7)
	if scale == nil || c.QueryScale(6) != nil {
		t.Fatal("positions from the original length on are scaled, and no others")
	}
	for p, want := range map[int]float64{0: 1, 5: 1, 6: 1.3465735902799727, 11: 1.3465735902799727,
		12: 1.5493061443340548} {
		if got := scale(p); math.Abs(got-want) > 1e-15 {
			t.Errorf("position %d: %v, want %v", p, got, want)
		}
	}
	c.RopeScaling.OriginalMaxPositions, c.MaxPositions = 0, 12 // the model's length then
	if scale := c.QueryScale(13); c.QueryScale(12) != nil || scale(11) != 1 || scale(12) == 1 {
		t.Error("without an original length")
	}
	c.RopeScaling.QueryBeta = 0
	if c.QueryScale(1000) != nil {
		t.Error("without beta")
	}
}
