package llamacpp

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/model"
)

// rows is a source whose element is 100 times its row plus its column.
type rows map[string][]int

func (s rows) Shape(name string) []int { return s[name] }

func (s rows) Floats(name string, from int, dst []float32) error {
	width := s[name][len(s[name])-1]
	for i := range dst {
		dst[i] = float32((from+i)/width*100 + (from+i)%width)
	}
	return nil
}

// linear is a model of a layer of linear attention and one of attention.
func linear(edit func(c *model.Config)) Model {
	c := model.Config{ModelType: "qwen3_5_text", HiddenAct: "silu", HiddenSize: 3, IntermediateSize: 2, VocabSize: 5,
		NumHeads: 2, NumKVHeads: 1, HeadDim: 24, PartialRotary: 0.25,
		NumLayers: 2, MaxPositions: 64, RopeTheta: 10000, LayerTypes: []string{model.LinearAttention,
			model.FullAttention},
		DeltaNet: model.DeltaNet{KeyHeads: 2, ValueHeads: 6, KeySize: 2, ValueSize: 2, Filter: 4}}
	if edit != nil {
		edit(&c)
	}
	src := rows{"model.embed_tokens.weight": {5, 3}, "model.norm.weight": {3}, "lm_head.weight": {5, 3}}
	for i := range c.NumLayers {
		for name, shape := range map[string][]int{"input_layernorm": {3}, "post_attention_layernorm": {3},
			"mlp.gate_proj": {2, 3}, "mlp.up_proj": {2, 3}, "mlp.down_proj": {3, 2},
			"self_attn.q_proj": {96, 3}, "self_attn.k_proj": {24, 3}, "self_attn.v_proj": {24, 3},
			"self_attn.o_proj": {3, 48}, "self_attn.q_norm": {24}, "self_attn.k_norm": {24},
			"linear_attn.in_proj_qkv": {20, 3}, "linear_attn.in_proj_z": {12, 3}, "linear_attn.in_proj_b": {6, 3},
			"linear_attn.in_proj_a": {6, 3}, "linear_attn.conv1d": {20, 1, 4},
			"linear_attn.norm": {2}, "linear_attn.out_proj": {3, 12}} {
			src[fmt.Sprintf("model.layers.%d.%s.weight", i, name)] = shape
		}
		src[fmt.Sprintf("model.layers.%d.linear_attn.A_log", i)] = []int{6}
		src[fmt.Sprintf("model.layers.%d.linear_attn.dt_bias", i)] = []int{6}
	}
	return Model{Config: c, Source: src}
}

// TestLinearAttention: value heads 0 to 5, of which a key head has three, are 0, 3, 1, 4, 2, 5 in the file, in all that
// touches them.
func TestLinearAttention(t *testing.T) {
	p, err := network(linear(nil))
	if err != nil {
		t.Fatal(err)
	}
	heads, pairs := []int{0, 3, 1, 4, 2, 5}, []int(nil)
	for _, h := range heads {
		pairs = append(pairs, 2*h, 2*h+1)
	}
	qkv := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, i := range pairs {
		qkv = append(qkv, 8+i)
	}
	find := func(p *Plan, name string) Tensor {
		i := slices.IndexFunc(p.Tensors, func(x Tensor) bool { return x.Name == name })
		if i < 0 {
			t.Fatalf("no tensor %s", name)
		}
		return p.Tensors[i]
	}
	read := func(x Tensor) []float32 {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		all := make([]float32, n)
		if err := x.Rows(0, all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for name, order := range map[string][]int{"attn_qkv.weight": qkv, "ssm_conv1d.weight": qkv,
		"attn_gate.weight": pairs, "ssm_beta.weight": heads, "ssm_alpha.weight": heads} {
		x := find(p, "blk.0."+name)
		if len(x.Shape) != 2 || x.Shape[1] != len(order) {
			t.Errorf("%s has the shape %v", name, x.Shape)
		}
		for i, v := range read(x) {
			if want := float32(100*order[i/x.Shape[0]] + i%x.Shape[0]); v != want {
				t.Errorf("%s, element %d: %v, want %v", name, i, v, want)
			}
		}
	}
	for i, v := range read(find(p, "blk.0.ssm_out.weight")) {
		if want := float32(100*(i/12) + pairs[i%12]); v != want {
			t.Errorf("ssm_out, element %d: %v, want %v", i, v, want)
		}
	}
	a, dt := read(find(p, "blk.0.ssm_a")), read(find(p, "blk.0.ssm_dt.bias"))
	for i, h := range heads {
		if a[i] != float32(-math.Exp(float64(h))) || dt[i] != float32(h) {
			t.Errorf("head %d: %v, %v", i, a[i], dt[i])
		}
	}
	if own, other := read(find(p, "blk.0.ssm_norm.weight")), read(find(p, "blk.1.attn_q_norm.weight")); own[1] != 1 ||
		other[1] != 2 {
		t.Errorf("norms %v, %v: the first is stored whole, the second less one", own, other)
	}
	for key, want := range map[string]any{"full_attention_interval": uint32(2), "ssm.inner_size": uint32(12),
		"ssm.time_step_rank": uint32(6), "ssm.group_count": uint32(2), "rope.dimension_count": uint32(6)} {
		if !slices.Contains(p.KVs, gguf.KV{Key: "qwen35." + key, Value: want}) {
			t.Errorf("%s is not %v", key, want)
		}
	}

	u := &Update{A: make([]float32, 12), B: []float32{0, 1, 2}, Rank: 1, In: 12, Out: 3, Scale: 1}
	for i := range u.A {
		u.A[i] = float32(i)
	}
	lora, err := Adapter(linear(nil), map[string]*Update{"model.layers.0.linear_attn.out_proj": u}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range read(find(lora, "blk.0.ssm_out.weight.lora_a")) {
		if v != float32(pairs[i]) {
			t.Errorf("lora_a, column %d: %v, want %d", i, v, pairs[i])
		}
	}
}

// TestLinearAttentionRefused: what llama.cpp computes otherwise.
func TestLinearAttentionRefused(t *testing.T) {
	for want, edit := range map[string]func(c *model.Config){
		"linear_key_head_dim 2 and linear_value_head_dim 4, where llama.cpp has one size": func(c *model.Config) {
			c.DeltaNet.ValueSize = 4
		},
		"attention_bias, where llama.cpp has no biases": func(c *model.Config) { c.QKVBias = true },
		"rotary scaling of type llama3":                 func(c *model.Config) { c.RopeScaling.Type = "llama3" },
		"layer 2: llama.cpp has attention in each 2. layer": func(c *model.Config) {
			c.NumLayers, c.LayerTypes = 3, []string{model.LinearAttention, model.FullAttention, model.FullAttention}
		},
		"layers of one kind alone": func(c *model.Config) {
			c.LayerTypes = []string{model.LinearAttention, model.LinearAttention}
		},
	} {
		if _, err := network(linear(edit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
