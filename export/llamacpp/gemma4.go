package llamacpp

import (
	"math"

	"github.com/tierlora/tierlora/model"
)

// unturned divides a frequency that is zero: the angle of any position is below what a float32 of its cosine or sine
// can tell from none.
const unturned = 1e30

// gemma4 has norms that are stored whole, heads of two sizes, and layers whose keys and values are those of an earlier
// one.
func gemma4(p *Plan) {
	g := p.c.Gemma4
	p.need(p.c.HiddenAct == "gelu_pytorch_tanh", "the activation %s, where llama.cpp has gelu_pytorch_tanh",
		p.c.HiddenAct)
	p.need(!p.c.QKVBias && !p.c.OBias, "attention_bias, where llama.cpp has no biases")
	p.need(g.PerLayerInput == 0 || g.PerLayerVocab >= p.c.VocabSize,
		"vocab_size_per_layer_input %d, where llama.cpp has vocab_size %d", g.PerLayerVocab, p.c.VocabSize)
	p.set("attention.key_length", g.FullHeadDim)
	p.set("attention.value_length", g.FullHeadDim)
	p.set("attention.key_length_swa", p.c.HeadDim)
	p.set("attention.value_length_swa", p.c.HeadDim)
	p.set("attention.shared_kv_layers", g.SharedKV)
	p.set("embedding_length_per_layer_input", g.PerLayerInput)
	p.set("final_logit_softcapping", p.c.LogitCap) // 0 = none; without the key it is 30
	p.need(p.windows(), "no layer with a window, on which llama.cpp ends the process")
	if p.c.Experts > 0 {
		p.numberOfExperts()
		p.set("expert_feed_forward_length", p.c.ExpertSize)
	}
	p.gemma4Layers()
	p.gemma4Ropes()
	p.outer(0, false)
	if g.PerLayerInput > 0 {
		p.layerInputs()
	}
	p.layers(func(i int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 0)
		p.linear(to+"attn_q", from+"self_attn.q_proj", nil)
		p.norm(to+"attn_q_norm", from+"self_attn.q_norm", 0)
		if p.c.KVLayer(i) == i {
			p.linear(to+"attn_k", from+"self_attn.k_proj", nil)
			p.norm(to+"attn_k_norm", from+"self_attn.k_norm", 0)
			if !g.ValuesAreKeys || p.c.Window(i) > 0 { // without one llama.cpp takes what attn_k gives
				p.linear(to+"attn_v", from+"self_attn.v_proj", nil)
			}
		}
		p.linear(to+"attn_output", from+"self_attn.o_proj", nil)
		p.norm(to+"post_attention_norm", from+"post_attention_layernorm", 0)
		p.norm(to+"ffn_norm", from+"pre_feedforward_layernorm", 0)
		p.mlp(to, from)
		if p.c.Experts > 0 {
			p.gemma4Experts(to, from)
		}
		p.norm(to+"post_ffw_norm", from+"post_feedforward_layernorm", 0)
		if g.PerLayerInput > 0 {
			p.linear(to+"inp_gate", from+"per_layer_input_gate", nil)
			p.linear(to+"proj", from+"per_layer_projection", nil)
			p.norm(to+"post_norm", from+"post_per_layer_input_norm", 0)
		}
		p.put(to+"layer_output_scale.weight", from+"layer_scalar", true, nil, 0)
	})
}

// gemma4Experts are a layer's router and experts beside its MLP, and the norms of both.
func (p *Plan) gemma4Experts(to, from string) {
	p.norm(to+"post_ffw_norm_1", from+"post_feedforward_layernorm_1", 0)
	p.norm(to+"pre_ffw_norm_2", from+"pre_feedforward_layernorm_2", 0)
	p.norm(to+"post_ffw_norm_2", from+"post_feedforward_layernorm_2", 0)
	p.put(to+"ffn_gate_inp.weight", from+"router.proj.weight", true, nil, 0)
	p.put(to+"ffn_gate_inp.scale", from+"router.scale", true, nil, 0)
	p.stacks(to, from, "gate_proj", "up_proj", "down_proj")
	p.put(to+"ffn_down_exps.scale", from+"router.per_expert_scale", true, nil, 0)
}

// gemma4Layers says what differs from layer to layer, and checks whose keys and values the last ones attend to: in
// llama.cpp those of the two layers before them, of which the latter has no window.
func (p *Plan) gemma4Layers() {
	g := p.c.Gemma4
	own := p.c.NumLayers - g.SharedKV
	heads, inner := make([]int32, p.c.NumLayers), make([]int32, p.c.NumLayers)
	for i := range heads {
		_, kv := p.c.Heads(i)
		heads[i], inner[i] = int32(kv), int32(p.c.IntermediateSize)
		if i < own {
			continue
		}
		if g.DoubleMLP {
			inner[i] *= 2
		}
		there := own - 1
		if p.c.Window(i) > 0 {
			there = own - 2
		}
		p.need(p.c.KVLayer(i) == there,
			"layer %d attends to keys and values of layer %d, where llama.cpp takes those of layer %d", i,
			p.c.KVLayer(i), there)
	}
	p.set("attention.head_count_kv", heads)
	p.set("feed_forward_length", inner)
}

// gemma4Ropes adds the rotation of full layers, with what divides its frequencies, and that of windowed ones, which
// llama.cpp does not scale.
func (p *Plan) gemma4Ropes() {
	p.set("rope.dimension_count", p.c.Gemma4.FullHeadDim)
	p.set("rope.dimension_count_swa", p.c.HeadDim)
	p.set("rope.freq_base_swa", p.c.LocalRopeTheta)
	local, _ := p.c.LocalRope()
	p.need(local.RopeScaling.Type == "" || local.RopeScaling.Type == "default",
		"rotary scaling of type %s in layers with a window", local.RopeScaling.Type)
	full := p.c.FullRope()
	scaled, _, err := full.InvFreq(0)
	full.RopeScaling = model.RopeScaling{Type: "default"}
	whole, _, perr := full.InvFreq(0)
	if err != nil || perr != nil {
		p.fail("rotary frequencies: %v %v", err, perr)
		return
	}
	factors := make([]float64, len(whole))
	for i := range factors {
		factors[i] = math.Min(whole[i]/scaled[i], unturned)
	}
	p.numbers("rope_freqs.weight", factors)
}

// layerInputs adds what makes the inputs of each layer. Rows of the table beyond the vocabulary are of no token.
func (p *Plan) layerInputs() {
	scope := p.c.Scope()
	p.put("per_layer_token_embd.weight", scope+".embed_tokens_per_layer.weight", false, nil, 0)
	if p.errs == nil {
		p.Tensors[len(p.Tensors)-1].Shape[1] = p.c.VocabSize
	}
	p.linear("per_layer_model_proj", scope+".per_layer_model_projection", nil)
	if p.errs == nil {
		p.Tensors[len(p.Tensors)-1].From = "" // llama.cpp multiplies by it without an adapter's update
	}
	p.norm("per_layer_proj_norm", scope+".per_layer_projection_norm", 0)
}
