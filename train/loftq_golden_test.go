package train

import (
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// TestLoftQEqualsPEFT compares what LoftQ starts with: s B A is PEFT's B A, which PEFT does not divide by the scale,
// and the base weight that is left is PEFT's. The loss is nearer to the unquantised model's than NF4's alone.
func TestLoftQEqualsPEFT(t *testing.T) {
	b := stories(t)
	for name, start := range map[string]string{"loftq_1": "loftq", "loftq_5": "loftq_iter_5"} {
		t.Run(name, func(t *testing.T) {
			saved := golden.Open(t, golden.Path(t, "methods/"+name+"/adapter_model.safetensors"))
			cfg := adapter.Default()
			cfg.R, cfg.Alpha, cfg.Own = 4, 8, adapter.LoRASettings{InitLoRAWeights: start}
			cfg.TargetModules = adapter.Targets{"model.layers.2.self_attn.q_proj", "model.layers.2.mlp.down_proj"}
			nw := network(t, b, kernel.F32, schemeOf("qlora_nf4"), &cfg)
			nw.Layout.Dequantised = true
			nw.Start = adapter.NewStart(nw.Method, cfg, 42)
			ts := startedStep(t, b, nw, session.Shape{Tokens: 64, Sequences: 1, MaxLen: 64}, Default())
			own := named(ts.snapshot(t))
			for _, l := range cfg.TargetModules[:1] {
				ours := productOf(own[l+".lora_A.weight"], own[l+".lora_B.weight"], cfg.R)
				for i := range ours {
					ours[i] *= cfg.Scale(l)
				}
				theirs := adapter.PEFTName(l)
				want := productOf(saved.Floats(theirs+".lora_A.weight"), saved.Floats(theirs+".lora_B.weight"), cfg.R)
				if d := distance(ours, want); !(d <= 1e-4) {
					t.Errorf("s B A of %s is off by %.3g", l, d)
				}
			}
			if found := nw.Start.Correction(); !strings.HasPrefix(found,
				start+": the quantised weights of 2 layers are off by ") {
				t.Errorf("it reports %q", found)
			}
			compareLoftQBase(t, ts, cfg, name)
		})
	}
}

// compareLoftQBase compares the weights that the network computes with, the adapter aside, with PEFT's.
func compareLoftQBase(t *testing.T, ts *testStep, cfg adapter.Config, name string) {
	t.Helper()
	start := golden.Open(t, golden.Outside(t, "goldens/methods/adapters/"+name+"/start.safetensors"))
	for _, l := range cfg.TargetModules {
		w, err := ts.memory.Tensor(l + ".weight")
		if err != nil {
			t.Fatal(err)
		}
		got, want, off := numbers(w), start.Floats("base_after."+l+".weight"), 0
		for i, x := range got {
			if math.Abs(x-want[i]) > 1e-6 {
				off++
			}
		}
		if off > len(got)/1000 {
			t.Errorf("%d of %d numbers of %s differ from PEFT's", off, len(got), l)
		}
	}
}
