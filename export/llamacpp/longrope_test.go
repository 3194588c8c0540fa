package llamacpp

import (
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/model"
)

// TestLongRoPE: factors of short and long texts in the architectures that read them; the others refuse.
func TestLongRoPE(t *testing.T) {
	c := model.Config{HeadDim: 4, HiddenSize: 8, NumHeads: 2, NumKVHeads: 1, NumLayers: 1, MaxPositions: 64,
		RopeTheta: 10000,
		RopeScaling: model.RopeScaling{Type: "longrope", OriginalMaxPositions: 16, AttentionFactor: 1.25,
			ShortFactor: []float64{1, 2}, LongFactor: []float64{3, 4}}}
	for arch, typed := range map[string]bool{"llama": true, "granite": true, "phi3": false} {
		p := &Plan{Architecture: arch, c: c, used: map[string]bool{}}
		p.rope()
		if p.errs != nil {
			t.Errorf("%s: %q", arch, p.errs)
		}
		want := []gguf.KV{{Key: arch + ".rope.scaling.original_context_length", Value: uint32(16)},
			{Key: arch + ".rope.scaling.attn_factor", Value: float32(1.25)}}
		if typed {
			want = append([]gguf.KV{{Key: arch + ".rope.scaling.type", Value: "longrope"}}, want...)
		}
		if !slices.Equal(p.KVs, want) {
			t.Errorf("%s: %v, want %v", arch, p.KVs, want)
		}
		var names []string
		for _, tensor := range p.Tensors {
			row := make([]float32, 2)
			if err := tensor.Rows(0, row); err != nil || !slices.Equal(tensor.Shape, []int{2}) || row[0] != 3 &&
				row[0] != 1 || row[1] != row[0]+1 {
				t.Errorf("%s: %s %v holds %v (%v)", arch, tensor.Name, tensor.Shape, row, err)
			}
			names = append(names, tensor.Name)
		}
		if !slices.Equal(names, []string{"rope_factors_long.weight", "rope_factors_short.weight"}) {
			t.Errorf("%s: tensors %q", arch, names)
		}
		if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "above 16 tokens") {
			t.Errorf("%s: notes %q", arch, p.Notes)
		}
	}
	p := &Plan{Architecture: "qwen3", c: c, used: map[string]bool{}}
	if p.rope(); !slices.Equal(p.errs, []string{"rotary scaling of type longrope: llama.cpp's qwen3 reads no factors " +
		"for it"}) || p.KVs != nil || p.Tensors != nil {
		t.Errorf("qwen3: %q, %v", p.errs, p.KVs)
	}
}
