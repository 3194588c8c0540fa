package bench

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// TestEstimates compares estimated step times with those measured on an H100 on 2026-11-27 (pipelined steps of
// docs/internals/lab/2026-11-27-estimated-steps.md).
func TestEstimates(t *testing.T) {
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	qkvo, all := []string{"q_proj", "k_proj", "v_proj", "o_proj"}, []string{"all-linear"}
	for _, c := range []struct {
		shape         string
		batch, length int
		targets       []string
		r             int
		change        func(*Options)
		ms            float64
	}{
		{"smollm2-135m", 1, 512, []string{"q_proj", "v_proj"}, 8, nil, 4.30},
		{"smollm2-135m", 8, 2048, []string{"q_proj", "v_proj"}, 8, nil, 44.62},
		{"tinyllama-1.1b", 1, 512, qkvo, 8, nil, 8.76},
		{"tinyllama-1.1b", 4, 2048, all, 16, nil, 99.58},
		{"tinyllama-1.1b", 4, 2048, all, 16, func(o *Options) { o.Checkpointing = "full" }, 134.44},
		{"tinyllama-1.1b", 4, 2048, all, 16, func(o *Options) { o.FrozenGEMM = "fp8" }, 85.19},
		{"llama-2-7b", 1, 512, qkvo, 8, nil, 37.70},
		{"llama-2-7b", 1, 512, qkvo, 8, func(o *Options) { o.Dequantised = true }, 27.15},
		{"llama-2-7b", 4, 2048, all, 16, nil, 446.46},
		{"llama-2-7b", 4, 2048, all, 16, func(o *Options) { o.FrozenGEMM = "fp8" }, 339.74},
		{"qwen3-8b", 4, 2048, all, 16, nil, 508.62},
		{"qwen3-8b", 1, 32768, all, 32, func(o *Options) { o.Checkpointing = "offload" }, 5319.14},
		{"gemma-3-4b", 4, 2048, all, 16, nil, 322.22},
		{"qwen3-30b-a3b-12l", 4, 2048, all, 16, nil, 127.68},
		{"qwen3.5-9b", 4, 2048, all, 16, nil, 560.31},
		{"llama-3.1-8b", 2, 1024, all, 16, func(o *Options) { o.Checkpointing = "selective" }, 138.47},
		{"gemma-3-4b", 1, 512, all, 16, nil, 33.27},
		{"tinyllama-1.1b", 16, 512, all, 64, nil, 90.19},
		{"llama-2-7b", 2, 4096, all, 8, func(o *Options) { o.Checkpointing = "full" }, 670.98},
		{"qwen3.5-0.8b", 4, 2048, all, 16, nil, 103.33},
	} {
		q, lora := quant.Default(), adapter.Default()
		lora.R, lora.TargetModules = c.r, c.targets
		o := Options{Shape: c.shape, Batch: c.batch, Length: c.length, LoRA: lora, Quantization: &q, Chip: &chip,
			Device: "cuda", Precision: "auto", Checkpointing: "none"}
		if c.change != nil {
			c.change(&o)
		}
		r, err := Run(context.Background(), o, session.Env{})
		if err != nil {
			t.Errorf("%s %dx%d: %v", c.shape, c.batch, c.length, err)
			continue
		}
		ratio := r.Estimated / c.ms
		t.Logf("%-18s %dx%-5d %-30s %8.2f ms estimated, %8.2f measured: %.3f", c.shape, c.batch, c.length, r.Layout,
			r.Estimated, c.ms, ratio)
		if math.Abs(ratio-1) > 0.1 {
			t.Errorf("%s %dx%d %s: %.2f ms estimated, %.2f measured", c.shape, c.batch, c.length, r.Layout, r.Estimated,
				c.ms)
		}
	}
}
