package export

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// inBF16 is a copy of a model whose weights are in bf16.
func inBF16(t *testing.T, model, from string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "bf16")
	if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(from), Out: out, DType: "bf16",
		AllowLoss: true, Check: []string{}}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// faint is an adapter of rank 1 whose update is about a third of half a step of bf16.
func faint(t *testing.T, layers map[string][2]int) string {
	t.Helper()
	return adapterOf(t, layers, func(b bool, i int) float32 {
		if b {
			return 0.01 * float32(1+i%7)
		}
		return 0.0015 * float32(i%11-5)
	})
}

// TestGGUFRoundsOnce: every number of a file is the base's, plus the update in float64, rounded to float32 and then to
// the file's type, over a base in bf16 too; what is left of the update is what the report says of it.
func TestGGUFRoundsOnce(t *testing.T) {
	layers := map[string][2]int{"model.layers.1.self_attn.q_proj": {64, 64}, "model.layers.2.self_attn.v_proj": {64,
		32}, "model.layers.3.mlp.up_proj": {64, 172}}
	from := faint(t, layers)
	base := inBF16(t, golden.StoriesDir(t), idle(t, nil))
	set := read(t, base)
	const head = 8
	pairs := func(r int) int { return r/head*head + r%head/2 + r%2*head/2 }
	least := map[string]float64{"f32": 0.99999, "f16": 0.95, "q8_0": 0.9, "bf16": 0}
	for dtype, stored := range map[string]gguf.Type{"f32": gguf.F32, "f16": gguf.F16, "bf16": gguf.BF16,
		"q8_0": gguf.Q8_0} {
		f, r := exported(t, Options{Format: "gguf", Model: base, Adapter: from, DType: dtype})
		var along, whole float64
		for name, c := range map[string]struct {
			layer string
			order func(int) int
		}{
			"blk.1.attn_q.weight": {"model.layers.1.self_attn.q_proj", pairs},
			"blk.2.attn_v.weight": {"model.layers.2.self_attn.v_proj", nil},
			"blk.3.ffn_up.weight": {"model.layers.3.mlp.up_proj", nil},
		} {
			in, rows := layers[c.layer][0], layers[c.layer][1]
			tensor, ok := set.Tensor(c.layer + ".weight")
			if !ok || tensor.DType != weights.BF16 {
				t.Fatal(c.layer)
			}
			w := make([]float32, tensor.Len())
			if err := weights.Float32s(tensor, w); err != nil {
				t.Fatal(err)
			}
			got := numbers(t, f, name)
			want, back := make([]float32, in), make([]float32, in)
			bytes := make([]byte, in/stored.Block()*stored.BlockBytes())
			for row := range rows {
				at := row
				if c.order != nil {
					at = c.order(row)
				}
				for k := range in {
					d := float64(0.01*float32(1+at%7)) * float64(0.0015*float32(k%11-5))
					want[k] = float32(float64(w[at*in+k]) + d)
				}
				stored.Quantise(want, bytes)
				stored.Dequantise(bytes, back)
				stored.Quantise(w[at*in:(at+1)*in], bytes)
				was := make([]float32, in)
				stored.Dequantise(bytes, was)
				for k := range in {
					if got[row*in+k] != back[k] {
						t.Fatalf("%s: %s: element %d of row %d is %g, want %g", dtype, name, k, row,
							got[row*in+k], back[k])
					}
					d := float64(0.01*float32(1+at%7)) * float64(0.0015*float32(k%11-5))
					along += (float64(got[row*in+k]) - float64(was[k])) * d
					whole += d * d
				}
			}
		}
		if r.Rounding == nil || along/whole < least[dtype] || math.Abs(r.Rounding.Kept-along/whole) > 0.001 {
			t.Errorf("%s: %.4f of the update is kept, the report says %+v", dtype, along/whole, r.Rounding)
		}
		noted := slices.ContainsFunc(r.Notes, func(n string) bool {
			return strings.HasPrefix(n, "bf16 keeps") && strings.Contains(n, "--dtype f16 keeps")
		})
		if noted != (dtype == "bf16") {
			t.Errorf("%s: notes %q", dtype, r.Notes)
		}
	}
}

// TestGGUFOfAdapterIsTheMergedModel: over bases in bf16, of every family that is written (tied heads, fused layers,
// stacked experts), a file of base and adapter has the bytes of one of the model that was merged into float32, in each
// type.
func TestGGUFOfAdapterIsTheMergedModel(t *testing.T) {
	seen := 0
	for _, m := range golden.FamilyModels(t) {
		dir := m.Dir(t)
		if bytes.Contains(golden.ReadFile(t, dir, "config.json"), []byte("quantization_config")) {
			continue
		}
		// a stand-in that llama.cpp could not read
		if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
		if _, err := Export(context.Background(), Options{Format: "gguf", Model: dir, Out: filepath.Join(t.TempDir(),
			"m.gguf")}, session.Env{}); err != nil {
			continue // TestGGUFOfFamilies has the reasons
		}
		seen++
		base, merged := inBF16(t, dir, m.Adapter(t)), filepath.Join(t.TempDir(), "merged")
		if _, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: One(m.Adapter(t)), Out: merged,
			DType: "fp32", AllowLoss: true, Check: []string{}}, session.Env{}); err != nil {
			t.Fatal(err)
		}
		// the others take turns: what rounds a tensor does not know its family
		for _, dtype := range []string{"f32", []string{"f16", "bf16", "q8_0", "q4_k_m"}[seen%4]} {
			a, _ := exported(t, Options{Format: "gguf", Model: base, Adapter: m.Adapter(t), DType: dtype})
			b, _ := exported(t, Options{Format: "gguf", Model: merged, DType: dtype})
			for i := range a.Tensors {
				x, y := make([]byte, a.Tensors[i].Bytes()), make([]byte, b.Tensors[i].Bytes())
				if _, err := a.Data(i).Read(x); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Data(i).Read(y); err != nil {
					t.Fatal(err)
				}
				if a.Tensors[i].Name != b.Tensors[i].Name || !bytes.Equal(x, y) {
					t.Errorf("%s as %s: tensor %s differs from %s of the merged model", m.Name, dtype,
						a.Tensors[i].Name, b.Tensors[i].Name)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d families were compared", seen)
	}
}
