package llamacpp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// layered is a Gemma 4 of layers with a window and without, of which the last two have no keys and values of their own.
func layered(edit func(c *model.Config)) Model {
	c := model.Config{ModelType: "gemma4_text", HiddenAct: "gelu_pytorch_tanh", HiddenSize: 6, IntermediateSize: 3,
		VocabSize: 5, NumHeads: 2, NumKVHeads: 2, HeadDim: 4,
		NumLayers: 5, MaxPositions: 64, RopeTheta: 10000, SlidingWindow: 7, TieEmbeddings: true,
		RopeScaling:    model.RopeScaling{Type: "proportional", Proportion: 0.5, Factor: 4},
		LocalRopeTheta: 100, LocalRopeScaling: model.RopeScaling{Type: "default"}, LogitCap: 3,
		LayerTypes: []string{"sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
			"full_attention"},
		Gemma4: model.Gemma4{FullHeadDim: 8, FullKVHeads: 1, ValuesAreKeys: true, SharedKV: 2, DoubleMLP: true,
			PerLayerInput: 2, PerLayerVocab: 9}}
	if edit != nil {
		edit(&c)
	}
	src := rows{"model.embed_tokens.weight": {5, 6}, "model.norm.weight": {6},
		"model.embed_tokens_per_layer.weight": {9, 2 * c.NumLayers}, "model.per_layer_projection_norm.weight": {2},
		"model.per_layer_model_projection.weight": {2 * c.NumLayers, 6}}
	for i := range c.NumLayers {
		size, kv := c.Heads(i)
		inner := c.IntermediateSize
		if i >= c.NumLayers-c.Gemma4.SharedKV {
			inner *= 2
		}
		for name, shape := range map[string][]int{"input_layernorm": {6}, "post_attention_layernorm": {6},
			"pre_feedforward_layernorm": {6}, "post_feedforward_layernorm": {6}, "post_per_layer_input_norm": {6},
			"self_attn.q_proj": {2 * size, 6}, "self_attn.k_proj": {kv * size, 6}, "self_attn.v_proj": {kv * size, 6},
			"self_attn.o_proj": {6, 2 * size}, "self_attn.q_norm": {size}, "self_attn.k_norm": {size},
			"mlp.gate_proj": {inner, 6}, "mlp.up_proj": {inner, 6}, "mlp.down_proj": {6, inner},
			"per_layer_input_gate": {2, 6}, "per_layer_projection": {6, 2}} {
			src[fmt.Sprintf("model.layers.%d.%s.weight", i, name)] = shape
		}
		src[fmt.Sprintf("model.layers.%d.layer_scalar", i)] = []int{1}
	}
	return Model{Config: c, Source: src}
}

// TestGemma4: what differs from layer to layer is in the keys, and each layer has the tensors that llama.cpp asks for.
func TestGemma4(t *testing.T) {
	p, err := network(layered(nil))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"attention.key_length": uint32(8), "attention.value_length": uint32(8),
		"attention.key_length_swa": uint32(4), "attention.value_length_swa": uint32(4),
		"attention.head_count_kv": []int32{2, 2, 1, 2, 1}, "feed_forward_length": []int32{3, 3, 3, 6, 6},
		"attention.shared_kv_layers": uint32(2), "attention.sliding_window": uint32(7),
		"attention.sliding_window_pattern": []bool{true, true, false, true, false}, "rope.dimension_count": uint32(8),
		"rope.dimension_count_swa": uint32(4), "rope.freq_base": float32(10000),
		"rope.freq_base_swa": float32(100), "embedding_length_per_layer_input": uint32(2),
		"final_logit_softcapping": float32(3)} {
		held := []any{}
		for _, kv := range p.KVs {
			if kv.Key == "gemma4."+key {
				held = append(held, kv.Value)
			}
		}
		if !reflect.DeepEqual(held, []any{want}) {
			t.Errorf("%s: %v, want %v once", key, held, want)
		}
	}
	var names []string
	for _, x := range p.Tensors {
		if name, ok := strings.CutPrefix(x.Name, "blk."); ok && strings.Contains(name, "attn_") {
			names = append(names, strings.TrimSuffix(name, ".weight"))
		}
	}
	want := []string{"0.attn_norm", "0.attn_q", "0.attn_q_norm", "0.attn_k", "0.attn_k_norm", "0.attn_v",
		"0.attn_output", "1.attn_norm", "1.attn_q", "1.attn_q_norm", "1.attn_k", "1.attn_k_norm",
		"1.attn_v", "1.attn_output", "2.attn_norm", "2.attn_q", "2.attn_q_norm", "2.attn_k", "2.attn_k_norm",
		"2.attn_output", "3.attn_norm", "3.attn_q", "3.attn_q_norm", "3.attn_output",
		"4.attn_norm", "4.attn_q", "4.attn_q_norm", "4.attn_output"}
	if !slices.Equal(names, want) {
		t.Errorf("attention has %q, want %q", names, want)
	}
	for name, want := range map[string][]float32{"rope_freqs.weight": {4, 4, unturned, unturned},
		"blk.3.layer_output_scale.weight": {0}, "output_norm.weight": {0, 1, 2, 3, 4, 5},
		"per_layer_token_embd.weight": nil} {
		i := slices.IndexFunc(p.Tensors, func(x Tensor) bool { return x.Name == name })
		if i < 0 {
			t.Fatalf("no tensor %s", name)
		}
		if want == nil { // rows of tokens alone
			if !slices.Equal(p.Tensors[i].Shape, []int{10, 5}) {
				t.Errorf("%s has the shape %v", name, p.Tensors[i].Shape)
			}
			continue
		}
		got := make([]float32, p.Tensors[i].Shape[0])
		if err := p.Tensors[i].Rows(0, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	without, err := network(layered(func(c *model.Config) { c.LogitCap = 0 }))
	if err != nil || !slices.ContainsFunc(without.KVs, func(kv gguf.KV) bool {
		return kv.Key == "gemma4.final_logit_softcapping" && kv.Value == float32(0)
	}) {
		t.Errorf("no soft cap is not said: %v", err) // llama.cpp has one of 30 where a file says nothing
	}
	stored, err := p.Store("q8_0")
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(stored, func(x gguf.Tensor) bool {
		return x.Name == "per_layer_model_proj.weight"
	}); stored[i].Type != gguf.F16 {
		t.Errorf("per_layer_model_proj is %v", stored[i].Type)
	}
}

// TestGemma4Refused: what llama.cpp computes otherwise.
func TestGemma4Refused(t *testing.T) {
	for want, edit := range map[string]func(c *model.Config){
		"the activation gelu, where llama.cpp has gelu_pytorch_tanh": func(c *model.Config) {
			c.HiddenAct = "gelu"
		},
		"attention_bias, where llama.cpp has no biases": func(c *model.Config) {
			c.QKVBias = true
		},
		"vocab_size_per_layer_input 4, where llama.cpp has vocab_size 5": func(c *model.Config) {
			c.Gemma4.PerLayerVocab = 4
		},
		"rotary scaling of type proportional in layers with a window": func(c *model.Config) {
			c.LocalRopeScaling.Type = "proportional"
		},
		"layer 3 attends to keys and values of layer 0, where llama.cpp takes those of layer 1": func(c *model.Config) {
			c.LayerTypes[1] = model.FullAttention
		},
		"layer 4 attends to keys and values of layer 1, where llama.cpp takes those of layer 2": func(c *model.Config) {
			c.LayerTypes[1], c.LayerTypes[2] = model.FullAttention, model.SlidingAttention
		},
		"no layer with a window, on which llama.cpp ends the process": func(c *model.Config) {
			for i := range c.LayerTypes {
				c.LayerTypes[i] = model.FullAttention
			}
		},
	} {
		if _, err := network(layered(edit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestGemma4Adapter: llama.cpp multiplies by the projection to all layers' inputs without an update, which would be
// lost.
func TestGemma4Adapter(t *testing.T) {
	update := func(in, out int) *Update {
		return &Update{A: make([]float32, in), B: make([]float32, out), Rank: 1, In: in, Out: out, Scale: 1}
	}
	p, err := Adapter(layered(nil), map[string]*Update{"model.layers.1.per_layer_input_gate": update(6, 2),
		"model.layers.4.self_attn.q_proj": update(6, 16)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"blk.1.inp_gate.weight.lora_a", "blk.4.attn_q.weight.lora_b"} {
		if !slices.ContainsFunc(p.Tensors, func(x Tensor) bool { return x.Name == want }) {
			t.Errorf("no %s", want)
		}
	}
	_, err = Adapter(layered(nil), map[string]*Update{"model.per_layer_model_projection": update(6, 10)}, 1)
	if want :=
		"the update of model.per_layer_model_projection has no place in a GGUF adapter: export the merged model"; err ==
		nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestGemma4Tokens: characters are joined by merges where llama.cpp cuts texts as the file does, else by scores or not
// at all; tokens around thoughts and calls are shown.
func TestGemma4Tokens(t *testing.T) {
	type object = map[string]any
	add := func(f object, content string, special bool) {
		f["added_tokens"] = append(f["added_tokens"].([]any), object{"id": len(f["model"].(object)["vocab"].(object)) +
			len(f["added_tokens"].([]any)), "content": content, "special": special})
	}
	lines := func(f object) { // as Gemma's: none beside other characters
		m := f["model"].(object)
		m["merges"] = slices.DeleteFunc(m["merges"].([]any), func(one any) bool {
			return strings.Contains(one.(string), "\n")
		})
		add(f, "<|channel>", true)
		add(f, "<|turn>", true)
	}
	for name, c := range map[string]struct {
		edit         func(f object)
		never        []int32
		note, failed string
	}{
		"Gemma 4": {edit: lines, never: []int32{3, 4, 1000}},
		"no token before": {edit: func(f object) {
			lines(f)
			f["post_processor"] = nil
		}, note: "llama.cpp puts the first token (bos_token) before every text of a Gemma 4 model"},
		"lines beside others": {edit: func(f object) {}, failed: "no merge joins them"},
		"a space before": {edit: func(f object) {
			lines(f)
			f["normalizer"] = object{"type": "Prepend", "prepend": "▁"}
		}, failed: "its pre-tokenizer Split"},
		"two lines, one token": {edit: func(f object) {
			lines(f)
			f["model"].(object)["vocab"].(object)["\n\n"] = 650
		}, failed: "no merge joins them"},
	} {
		var f object
		if err := json.Unmarshal(releasePipelines(t)["gemma"], &f); err != nil {
			t.Fatal(err)
		}
		c.edit(f)
		raw, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		p := &Plan{Architecture: "gemma4"}
		err = addTokenizer(t, p, raw, &chat.Sources{Tokens: jinja.NewDict(),
			Generation: chat.Generation{Never: c.never}})
		if c.failed != "" {
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: %v, want %s", name, err, c.failed)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		held := map[string]any{}
		for _, kv := range p.KVs {
			held[kv.Key] = kv.Value
		}
		if merges, _ := held["tokenizer.ggml.merges"].([]string); held["tokenizer.ggml.model"] != "gemma4" ||
			len(merges) == 0 || held["tokenizer.ggml.scores"] != nil {
			t.Errorf("%s: model %v, %d merges", name, held["tokenizer.ggml.model"], len(merges))
		}
		if never, _ := held["tokenizer.ggml.suppress_tokens"].([]int32); !slices.Equal(never,
			c.never[:min(2, len(c.never))]) {
			t.Errorf("%s: answers never have %v", name, never)
		}
		list, kinds := held["tokenizer.ggml.tokens"].([]string), held["tokenizer.ggml.token_type"].([]int32)
		for token, want := range map[string]int32{"<|channel>": kindOwn, "<|turn>": kindControl, "<s>": kindControl} {
			if id := slices.Index(list, token); id < 0 || kinds[id] != want {
				t.Errorf("%s: %s is not of kind %d", name, token, want)
			}
		}
		if noted := slices.ContainsFunc(p.Notes, func(n string) bool {
			return strings.Contains(n, "before every text")
		}); noted != (c.note != "") {
			t.Errorf("%s: notes %q", name, p.Notes)
		}
	}
}
