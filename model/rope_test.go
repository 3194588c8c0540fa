package model_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

// TestInvFreq compares with transformers' own numbers
// (internal/golden/testdata/rope/make_rope.py): its formulas in float64 to
// rounding, unmodified float32 to float32's rounding.
func TestInvFreq(t *testing.T) {
	data, err := os.ReadFile(golden.Path(t, "rope/rope.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string          `json:"name"`
			SeqLen int             `json:"seq_len"`
			Config json.RawMessage `json:"config"`
			Scale  float64         `json:"attention_scale"`
			F32    []float64       `json:"f32"`
			F64    []float64       `json:"f64"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 36 {
		t.Errorf("%d cases, expected 36", len(file.Cases))
	}
	var worst32, worst64 float64
	for _, g := range file.Cases {
		c, err := families.ParseConfig(g.Config)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		got, scale, err := c.InvFreq(g.SeqLen)
		if err != nil || len(got) != len(g.F64) || len(got) != c.RotaryColumns()/2 {
			t.Errorf("%s: %d frequencies, expected %d (%v)", g.Name, len(got), len(g.F64), err)
			continue
		}
		if !(math.Abs(scale-g.Scale) <= 1e-15*g.Scale) {
			t.Errorf("%s: attention scale %.17g, expected %.17g", g.Name, scale, g.Scale)
		}
		for i := range got {
			e64 := math.Abs(got[i]/g.F64[i] - 1)
			e32 := math.Abs(got[i]/g.F32[i] - 1)
			worst64, worst32 = max(worst64, e64), max(worst32, e32)
			if !(e64 <= 1e-14 && e32 <= 1e-6) { // NaN must fail too
				t.Errorf("%s, %d tokens: frequency %d = %.17g, expected %.17g (float32: %.9g)", g.Name, g.SeqLen, i,
					got[i], g.F64[i], g.F32[i])
				break
			}
		}
	}
	t.Logf("worst relative difference: %.2g from float64, %.2g from float32", worst64, worst32)
}

func TestInvFreqRefuses(t *testing.T) {
	good := model.Config{HeadDim: 64, MaxPositions: 512, RopeTheta: 10000}
	if _, _, err := good.InvFreq(0); err != nil {
		t.Errorf("a zero RopeScaling is the default: %v", err)
	}
	for _, c := range []struct {
		change func(*model.Config)
		want   string
	}{
		{func(c *model.Config) { c.HeadDim = 7 }, "head_dim = 7: rotary embedding needs an even head size"},
		{func(c *model.Config) { c.HeadDim = 0 }, "head_dim = 0"},
		{func(c *model.Config) { c.MaxPositions = 0 }, "max_position_embeddings = 0"},
		{func(c *model.Config) { c.RopeTheta = 0 }, "rope_theta = 0: must be above 1"},
		{func(c *model.Config) { c.RopeTheta = math.NaN() }, "rope_theta = NaN"},
		{func(c *model.Config) {
			c.RopeScaling.Type = "su"
		}, `rope_scaling.rope_type = "su" is not supported (supported: default, dynamic, linear, llama3, longrope, ` +
			`proportional, yarn)`},
		{func(c *model.Config) {
			c.RopeScaling = model.RopeScaling{Type: "linear"}
		}, "rope_scaling.factor = 0: must be at least 1"},
		{func(c *model.Config) {
			c.RopeScaling = model.RopeScaling{Type: "dynamic", Factor: 2}
			c.HeadDim = 2
		}, "needs a head size above 2, not 2"},
		{func(c *model.Config) {
			c.RopeScaling = model.RopeScaling{Type: "yarn", Factor: 2, BetaFast: 1, BetaSlow: 2}
		}, "beta_fast = 1: must not be below beta_slow 2"},
	} {
		bad := good
		c.change(&bad)
		if _, _, err := bad.InvFreq(100); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
	}
}
