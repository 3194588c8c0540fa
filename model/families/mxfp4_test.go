package families_test

import (
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/quantised"
)

// TestMXFP4LogitsEqualTransformers: folders with experts in MXFP4 give the logits that transformers computes with the
// dequantised ones, with experts that stay in MXFP4 and with experts that are dequantised while they load.
func TestMXFP4LogitsEqualTransformers(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "mxfp4/logits.safetensors"))
	ids := ref.Ints("ids")
	for _, name := range []string{"gpt_oss_mxfp4", "gpt_oss_mxfp4_wide"} {
		for _, kept := range []bool{true, false} {
			c := loadConfig(t, golden.Path(t, "mxfp4/"+name+".config.json"))
			from, err := quantised.Open(openWeights(t, golden.Path(t, "mxfp4/"+name+".safetensors"), c), c.Quantization)
			if err != nil {
				t.Fatal(err)
			}
			var o nn.Options
			if kept {
				o.Stored = from.Config
			}
			w := build(t, c, 1, len(ids), o, nil, adapter.Config{})
			logits := w.Apply(kernel.MatMul{TransB: true}, w.hidden, w.head)
			r := w.startFrom(t, from, logits)
			copy(r.ints("ids"), ids)
			r.run.Run("main")
			d, size := furthest(t, r.run.Tensor(logits).F32(), ref.Floats(name+".logits"))
			t.Logf("%s, kept %v: logits within %.3g differ by at most %.3g", name, kept, size, d)
			if !(d <= 1e-4) || size < 1 {
				t.Errorf("%s, kept %v: logits within %.3g differ by up to %.3g, tolerance 1e-4", name, kept, size, d)
			}
		}
	}
}

// TestMXFP4GradientsEqualPEFT: the gradients of an adapter on attention pass through experts that stay in MXFP4.
func TestMXFP4GradientsEqualPEFT(t *testing.T) {
	c := loadConfig(t, golden.Path(t, "mxfp4/gpt_oss_mxfp4.config.json"))
	from, err := quantised.Open(openWeights(t, golden.Path(t, "mxfp4/gpt_oss_mxfp4.safetensors"), c), c.Quantization)
	if err != nil {
		t.Fatal(err)
	}
	w, r, grads, ref := runPEFTOver(t, golden.Path(t, "mxfp4/gpt_oss_mxfp4.lora"), c, nn.Options{Stored: from.Config},
		from)
	sameGradients(t, w, r, grads, ref, 16)
}
