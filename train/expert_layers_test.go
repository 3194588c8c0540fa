package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// asLayers is a folder of gpt_oss with the layout of Unsloth's: a linear layer for each expert's matrix, and the
// router's names.
func asLayers(t *testing.T, m golden.FamilyModel) string {
	dir := m.Dir(t)
	path := filepath.Join(dir, "model.safetensors")
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []weights.Tensor
	add := func(name string, shape []int, x []float32) {
		raw := make([]byte, 0, 4*len(x))
		for _, v := range x {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		all = append(all, weights.Tensor{Name: name, DType: weights.F32, Shape: shape, Data: raw})
	}
	for _, name := range f.Names() {
		w, _ := f.Tensor(name)
		x := make([]float32, w.Len())
		if err := weights.Float32s(w, x); err != nil {
			t.Fatal(err)
		}
		module, bias := strings.CutSuffix(name, "_bias")
		switch {
		case strings.HasSuffix(module, "experts.gate_up_proj") || strings.HasSuffix(module, "experts.down_proj"):
			size := len(x) / w.Shape[0]
			for e := range w.Shape[0] {
				own := x[e*size:][:size]
				if bias {
					add(fmt.Sprintf("%ss.%d.bias", module, e), []int{size}, own)
					continue
				}
				in, out := w.Shape[1], w.Shape[2]
				turned := make([]float32, size)
				for i, v := range own {
					turned[i%out*in+i/out] = v
				}
				add(fmt.Sprintf("%ss.%d.weight", module, e), []int{out, in}, turned)
			}
		default:
			add(strings.Replace(name, ".router.", ".router.linear.", 1), w.Shape, x)
		}
	}
	raw, err := weights.Encode(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestExpertsAsLayers: gpt_oss in the layout of Unsloth's folders evaluates as transformers and trains as PEFT does the
// same numbers, and is not written in a layout that nobody reads.
func TestExpertsAsLayers(t *testing.T) {
	tested := 0
	for _, m := range golden.FamilyModels(t) {
		if m.Folder != "experts" || !strings.HasPrefix(m.Name, "gpt_oss") {
			continue
		}
		want, dir := m.Runs(t), asLayers(t, m)
		s := familySpec(t, m)
		s.BaseModel, s.Adapter, s.Quantization = dir, "lora", nil
		e, err := infer.Evaluate(context.Background(), s.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if d := math.Abs(e.Loss-want.Mean) / want.Mean; !(d <= 1e-4) {
			t.Errorf("%s: mean NLL %.9g, transformers %.9g, relative %.3g", m.Name, e.Loss, want.Mean, d)
		}
		if want.CurveOfFloats.Loss != nil {
			tested++
			t.Run(m.Name, func(t *testing.T) { curveEqualsPEFT(t, m, dir, nil, want.CurveOfFloats) })
		}
		const refused = "has a linear layer for each expert's matrix"
		out := filepath.Join(t.TempDir(), "out")
		_, err = export.Merge(context.Background(), export.MergeOptions{Model: dir,
			Adapters: []export.WeightedAdapter{{Dir: m.Adapter(t), Weight: 1}}, Out: out}, session.Env{})
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("merge: %v", err)
		}
		_, err = export.Export(context.Background(), export.Options{Format: "gguf", Model: dir,
			Out: out}, session.Env{})
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("gguf: %v", err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("something was written")
		}
	}
	if tested == 0 {
		t.Error("no curve was compared")
	}
}
