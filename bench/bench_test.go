package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// TestShapes: every shape is a configuration that its family takes, with as many parameters as the release.
func TestShapes(t *testing.T) {
	for _, name := range Shapes() {
		if c, err := Shape(name); err != nil || c.NumLayers == 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := Shape("llama"); err == nil || !strings.Contains(err.Error(), "qwen3-30b-a3b") {
		t.Errorf("an unknown shape: %v", err)
	}
	c, err := Shape("gemma-3-4b")
	if err != nil || c.Window(4) != 1024 || c.Window(5) != 0 || c.HeadDim != 256 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = Shape("qwen3-30b-a3b"); err != nil || c.Experts != 128 || c.ExpertsPerToken != 8 || c.ExpertSize != 768 || !c.QKNorm {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRandomWeights: the numbers do not depend on the pieces that they are read in, nor on how.
func TestRandomWeights(t *testing.T) {
	w := newRandomWeights()
	const n = 3*randomBlock + 5
	all := make([]float32, n)
	if err := w.Float32s("layers.1.mlp.experts.7.up_proj.weight", 0, all); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range all {
		sum += float64(x) * float64(x)
	}
	if spread := math.Sqrt(sum / n); spread < 0.018 || spread > 0.022 {
		t.Errorf("spread %g", spread)
	}
	d, read, ok := w.Stored("layers.1.mlp.experts.7.up_proj.weight")
	if !ok || d != kernel.BF16 {
		t.Fatal(d, ok)
	}
	for from := 0; from < n; from += 1000 {
		part, bytes := make([]float32, min(1000, n-from)), make([]byte, 2*min(1000, n-from))
		if err := w.Float32s("layers.1.mlp.experts.7.up_proj.weight", from, part); err != nil {
			t.Fatal(err)
		}
		if err := read(bytes, from); err != nil {
			t.Fatal(err)
		}
		for i, x := range part {
			stored := math.Float32frombits(uint32(bytes[2*i])<<16 | uint32(bytes[2*i+1])<<24)
			if x != all[from+i] || x != stored {
				t.Fatalf("element %d: %g, in a piece %g, as stored %g", from+i, all[from+i], x, stored)
			}
		}
	}
	other := make([]float32, n)
	if err := w.Float32s("layers.1.mlp.experts.8.up_proj.weight", 0, other); err != nil || other[0] == all[0] && other[1] == all[1] {
		t.Errorf("two experts are alike (%v)", err)
	}
	if err := w.Float32s("model.norm.weight", 0, other); err != nil || other[0] != 1 || other[n-1] != 1 {
		t.Errorf("a norm's weight is %g, %v", other[0], err)
	}
}

// TestPlanKeepsToALimit: with a limit the plan recomputes no more than it must, and says what its memory is made of.
func TestPlanKeepsToALimit(t *testing.T) {
	q := quant.Default()
	o := Options{Shape: "smollm2-135m", Batch: 1, Length: 256, LoRA: adapter.Default(), Quantization: &q, Checkpointing: "none"}
	o.LoRA.TargetModules = adapter.Targets{"all-linear"}
	on := graph.NewCPU(1)
	c, err := Shape(o.Shape)
	if err != nil {
		t.Fatal(err)
	}
	free, err := plan(o, c, on)
	if err != nil {
		t.Fatal(err)
	}
	o.Checkpointing, o.VRAM = "auto", "400MiB"
	limited, err := plan(o, c, on)
	if err != nil {
		t.Fatal(err)
	}
	if limited.Need.Total() > 400<<20 || limited.Need.Total() >= free.Need.Total() || limited.Layout.Recompute == graph.KeepAll {
		t.Errorf("%v holds %d, %v holds %d", limited.Layout, limited.Need.Total(), free.Layout, free.Need.Total())
	}
	var sum int64
	for _, l := range free.Step.Plan.Peak() {
		sum += l.Bytes
	}
	if arena := free.Need.Arena; sum > arena || sum < arena*9/10 {
		t.Errorf("the peak's %d bytes are not the arena's %d", sum, arena)
	}
	o.VRAM = "1MiB"
	if _, err := plan(o, c, on); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("1 MiB: %v", err)
	}
}
