package infer

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// wideCPU is a CPU that keeps all matrices in float32.
type wideCPU struct{ *graph.CPU }

func (c wideCPU) Capabilities() graph.Capabilities {
	all := c.CPU.Capabilities()
	all.Halves = false
	return all
}

// TestHalvesGiveTheSameLogits: a checkpoint's 16-bit matrices, kept as they are, give the logits that they give as
// float32, to the bit, and take half the memory; whatever a family's layers are, and whichever of its tensors are
// stored so.
func TestHalvesGiveTheSameLogits(t *testing.T) {
	types := []struct {
		name string
		of   func(i int) weights.DType
	}{
		{"bf16", func(int) weights.DType { return weights.BF16 }},
		{"f16", func(int) weights.DType { return weights.F16 }},
		{"mixed", func(i int) weights.DType { return []weights.DType{weights.BF16, weights.F32, weights.F16}[i%3] }},
	}
	for k, m := range golden.FamilyModels(t) {
		// the types take turns: what converts a weight does not know its family
		stored := types[k%len(types)]
		dir := m.Dir(t)
		narrow(t, filepath.Join(dir, "model.safetensors"), stored.of)
		ids := slices.Concat(m.Runs(t).Texts[0].Prompt, m.Runs(t).Texts[0].New)
		halves, kept := logitsOn(t, graph.NewCPU(2), dir, ids)
		want, all := logitsOn(t, wideCPU{graph.NewCPU(2)}, dir, ids)
		for i := range want {
			if !slices.Equal(halves[i], want[i]) {
				t.Errorf("%s in %s: the logits after token %d differ", m.Name, stored.name, i)
				break
			}
		}
		if stored.name != "mixed" && float64(kept) > 0.75*float64(all) {
			t.Errorf("%s in %s: weights hold %d bytes, in float32 %d", m.Name, stored.name, kept, all)
		}
	}
}

// logitsOn are the logits after the last tokens of ids, computed one by one, and the bytes of weights held.
func logitsOn(t *testing.T, on graph.Machine, dir string, ids []int32) (rows [][]float32, frozen int64) {
	t.Helper()
	s, err := session.OpenOn(context.Background(), session.Options{Model: dir}, session.Env{}, on)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGenerator(s, "")
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	defer g.Close()
	rows = g.logitsAfter(t, ids, 4)
	return rows, g.engine.Need().Frozen
}

// narrow rewrites a file of safetensors, each tensor of numbers in the type that typ names for its place.
func narrow(t *testing.T, path string, typ func(i int) weights.DType) {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []weights.Tensor
	for i, name := range f.Names() {
		from, _ := f.Tensor(name)
		to := weights.Tensor{Name: name, DType: from.DType, Shape: from.Shape, Data: slices.Clone(from.Data)}
		if d := typ(i); (from.DType == weights.F32 || from.DType == weights.BF16) && d != weights.F32 {
			x := make([]float32, from.Len())
			if err := weights.Float32s(from, x); err != nil {
				t.Fatal(err)
			}
			to.DType, to.Data = d, nil
			for _, v := range x {
				bits := kernel.ToBF16(v)
				if d == weights.F16 {
					bits = kernel.ToF16(v)
				}
				to.Data = binary.LittleEndian.AppendUint16(to.Data, bits)
			}
		}
		all = append(all, to)
	}
	if err := weights.Write(path, all, nil); err != nil {
		t.Fatal(err)
	}
}
