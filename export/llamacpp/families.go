package llamacpp

import (
	"math"
	"slices"
)

// square says that heads make up the width, for architectures that know no other size.
func (p *Plan) square() {
	p.need(p.c.HeadDim*p.c.NumHeads == p.c.HiddenSize, "%d heads of %d are not hidden_size %d", p.c.NumHeads,
		p.c.HeadDim, p.c.HiddenSize)
}

func (p *Plan) silu() {
	p.need(p.c.HiddenAct == "silu", "the activation %s, where llama.cpp has silu", p.c.HiddenAct)
}

// unwindowed notes windows that the architecture does not know.
func (p *Plan) unwindowed() {
	for i := range p.c.NumLayers {
		if w := p.c.Window(i); w > 0 && w < p.c.MaxPositions {
			p.note("a sliding window of %d tokens: llama.cpp's %s attends to all tokens, so longer texts differ", w,
				p.Architecture)
		}
	}
}

// windows says which layers have a window, and tells whether one has.
func (p *Plan) windows() bool {
	pattern := make([]bool, p.c.NumLayers)
	for i := range pattern {
		pattern[i] = p.c.Window(i) > 0
	}
	if !slices.Contains(pattern, true) {
		return false
	}
	p.set("attention.sliding_window", p.c.SlidingWindow)
	p.set("attention.sliding_window_pattern", pattern)
	return true
}

// decoder adds pre-norm layers of attention and an MLP.
func (p *Plan) decoder(neighbours, headNorms bool, mlp func(i int, to, from string)) {
	p.outer(0, false)
	p.layers(func(i int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 0)
		p.attention(to, from, neighbours)
		if headNorms {
			p.norm(to+"attn_q_norm", from+"self_attn.q_norm", 0)
			p.norm(to+"attn_k_norm", from+"self_attn.k_norm", 0)
		}
		p.norm(to+"ffn_norm", from+"post_attention_layernorm", 0)
		mlp(i, to, from)
	})
}

func (p *Plan) plainMLP(_ int, to, from string) { p.mlp(to, from) }

func llama(p *Plan) {
	p.silu()
	p.rope()
	p.unwindowed()
	p.decoder(true, false, p.plainMLP)
}

func granite(p *Plan) {
	p.silu()
	p.square()
	p.rope()
	p.set("attention.scale", p.c.AttentionScale)
	p.set("embedding_scale", p.c.EmbeddingScale)
	p.set("residual_scale", p.c.ResidualScale)
	p.set("logit_scale", p.c.LogitDivisor)
	p.decoder(true, false, p.plainMLP)
}

func smollm3(p *Plan) {
	p.silu()
	p.rope()
	p.unwindowed()
	p.square()
	p.need(!p.c.OBias && !p.c.MLPBias, "biases on the output projection or the MLP")
	for i := range p.c.NumLayers {
		p.need(p.c.Rotates(i) == ((i+1)%4 != 0), "layer %d: llama.cpp leaves out the positions in each fourth layer", i)
	}
	p.decoder(true, false, p.plainMLP)
}

func qwen2(p *Plan) {
	p.silu()
	p.square()
	p.rope()
	p.unwindowed()
	p.decoder(false, false, p.plainMLP)
}

func qwen3(p *Plan) {
	p.silu()
	p.rope()
	p.unwindowed()
	p.need(!p.c.OBias, "a bias on the output projection")
	p.decoder(false, true, p.plainMLP)
}

func olmo2(p *Plan) {
	p.silu()
	p.square()
	p.rope()
	p.need(!p.c.OBias, "a bias on the output projection")
	p.outer(0, true)
	p.layers(func(_ int, to, from string) {
		p.attention(to, from, false)
		p.norm(to+"attn_q_norm", from+"self_attn.q_norm", 0)
		p.norm(to+"attn_k_norm", from+"self_attn.k_norm", 0)
		p.norm(to+"post_attention_norm", from+"post_attention_layernorm", 0)
		p.mlp(to, from)
		p.norm(to+"post_ffw_norm", from+"post_feedforward_layernorm", 0)
	})
}

// gemmas are what Gemma's generations have in common: norms are stored less one.
func (p *Plan) gemmas(postNorms, headNorms bool) {
	p.need(p.c.HiddenAct == "gelu_pytorch_tanh", "the activation %s, where llama.cpp has gelu_pytorch_tanh",
		p.c.HiddenAct)
	p.need(!p.c.OBias, "a bias on the output projection")
	p.need(p.c.TieEmbeddings, "a head apart from the embeddings")
	p.outer(1, false)
	before := "post_attention_layernorm"
	if postNorms {
		before = "pre_feedforward_layernorm"
	}
	p.layers(func(_ int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 1)
		p.attention(to, from, false)
		if headNorms {
			p.norm(to+"attn_q_norm", from+"self_attn.q_norm", 1)
			p.norm(to+"attn_k_norm", from+"self_attn.k_norm", 1)
		}
		if postNorms {
			p.norm(to+"post_attention_norm", from+"post_attention_layernorm", 1)
		}
		p.norm(to+"ffn_norm", from+before, 1)
		p.mlp(to, from)
		if postNorms {
			p.norm(to+"post_ffw_norm", from+"post_feedforward_layernorm", 1)
		}
	})
}

func gemma(p *Plan) {
	p.rope()
	p.gemmas(false, false)
}

// scores checks the divisor of attention scores, which llama.cpp takes from the sizes: the width over the heads in the
// models of 27B, which it tells by their count of layers, else the head size.
func (p *Plan) scores(layersOf27B int) {
	size := p.c.HeadDim
	if p.c.NumLayers == layersOf27B {
		size = p.c.HiddenSize / p.c.NumHeads
	}
	want := 1 / math.Sqrt(float64(size))
	p.need(math.Abs(p.c.AttentionScale-want) < 1e-9, "query_pre_attn_scalar = %g, where llama.cpp has %d",
		1/(p.c.AttentionScale*p.c.AttentionScale), size)
}

func gemma2(p *Plan) {
	p.rope()
	p.scores(46)
	p.need(p.c.AttentionCap > 0 && p.c.LogitCap > 0, "no soft cap, which llama.cpp always applies")
	p.need(p.windows(), "no layer with a window")
	p.set("attn_logit_softcapping", p.c.AttentionCap)
	p.set("final_logit_softcapping", p.c.LogitCap)
	p.gemmas(true, false)
}

func gemma3(p *Plan) {
	p.rope()
	p.scores(62)
	if p.c.LogitCap > 0 {
		p.set("final_logit_softcapping", p.c.LogitCap)
	}
	p.windows()
	if local, own := p.c.LocalRope(); own {
		p.need(local.RopeScaling.Type == "" || local.RopeScaling.Type == "default",
			"rotary scaling of type %s in layers with a window", local.RopeScaling.Type)
		p.set("rope.freq_base_swa", local.RopeTheta)
	}
	p.gemmas(true, true)
}

func phi3(p *Plan) {
	p.silu()
	p.square()
	p.unwindowed()
	if part := p.c.PartialRotary; part > 0 {
		p.need(int(float64(p.c.HeadDim)*part)%2 == 0,
			"partial_rotary_factor = %g makes an odd number of a head's %d columns", part, p.c.HeadDim)
	}
	p.rope()
	p.outer(0, false)
	p.layers(func(_ int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 0)
		p.linear(to+"attn_qkv", from+"self_attn.qkv_proj", nil)
		p.linear(to+"attn_output", from+"self_attn.o_proj", nil)
		p.norm(to+"ffn_norm", from+"post_attention_layernorm", 0)
		p.linear(to+"ffn_up", from+"mlp.gate_up_proj", nil)
		p.linear(to+"ffn_down", from+"mlp.down_proj", nil)
	})
}

// ernie has its rows in the order of llama.cpp's rotation.
func ernie(p *Plan) {
	p.silu()
	p.rope()
	p.need(!p.c.QKVBias, "use_bias, where llama.cpp has no biases in the MLP")
	p.decoder(false, false, p.plainMLP)
}

// glm4 has its rows in the order of llama.cpp's rotation, and norms on both sides.
func glm4(p *Plan) {
	p.silu()
	p.rope()
	p.outer(0, false)
	p.layers(func(_ int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 0)
		p.attention(to, from, false)
		p.norm(to+"post_attention_norm", from+"post_self_attn_layernorm", 0)
		p.norm(to+"ffn_norm", from+"post_attention_layernorm", 0)
		p.linear(to+"ffn_up", from+"mlp.gate_up_proj", nil)
		p.linear(to+"ffn_down", from+"mlp.down_proj", nil)
		p.norm(to+"post_ffw_norm", from+"post_mlp_layernorm", 0)
	})
}

// mixture adds the keys of mixtures of experts.
func (p *Plan) mixture(normalised bool) {
	p.silu()
	p.rope()
	p.unwindowed()
	p.need(p.c.NormTopK == normalised, "norm_topk_prob %v, where llama.cpp has %v", p.c.NormTopK, normalised)
	for i := range p.c.NumLayers {
		p.need(p.c.ExpertLayer(i), "layer %d has no experts, where llama.cpp has them in every layer", i)
	}
	p.numberOfExperts()
}

func (p *Plan) numberOfExperts() {
	p.set("expert_count", p.c.Experts)
	p.set("expert_used_count", p.c.ExpertsPerToken)
}

// mixed are a layer's router and experts.
func (p *Plan) mixed(to, from, gate, up, down string) {
	p.put(to+"ffn_gate_inp.weight", from+"gate.weight", true, nil, 0)
	p.stacks(to, from, gate, up, down)
}

// stacks are the matrices of a layer's experts.
func (p *Plan) stacks(to, from, gate, up, down string) {
	p.experts(to+"ffn_gate_exps", from+"experts", gate)
	p.experts(to+"ffn_up_exps", from+"experts", up)
	p.experts(to+"ffn_down_exps", from+"experts", down)
}

func mixtral(p *Plan) {
	p.mixture(true)
	p.decoder(true, false, func(_ int, to, from string) { p.mixed(to, from+"block_sparse_moe.", "w1", "w3", "w2") })
}

func qwen3MoE(p *Plan) {
	p.mixture(true)
	p.need(!p.c.OBias, "a bias on the output projection")
	p.set("expert_feed_forward_length", p.c.ExpertSize)
	p.decoder(false, true, func(_ int, to, from string) {
		p.mixed(to, from+"mlp.", "gate_proj", "up_proj", "down_proj")
	})
}

// shared adds the keys of experts beside which there is a shared one.
func (p *Plan) shared() {
	p.set("expert_feed_forward_length", p.c.ExpertSize)
	p.set("expert_shared_feed_forward_length", p.c.SharedSize)
}

// withShared are a layer's router and experts, and the shared one.
func (p *Plan) withShared(_ int, to, from string) {
	p.mixed(to, from+"mlp.", "gate_proj", "up_proj", "down_proj")
	p.put(to+"ffn_gate_inp_shexp.weight", from+"mlp.shared_expert_gate.weight", true, nil, 0)
	last := &p.Tensors[len(p.Tensors)-1]
	last.Shape = last.Shape[:1] // [1,C] is a vector there
	p.linear(to+"ffn_gate_shexp", from+"mlp.shared_expert.gate_proj", nil)
	p.linear(to+"ffn_up_shexp", from+"mlp.shared_expert.up_proj", nil)
	p.linear(to+"ffn_down_shexp", from+"mlp.shared_expert.down_proj", nil)
}

func qwen2MoE(p *Plan) {
	p.mixture(false)
	p.square()
	p.shared()
	if p.c.TieEmbeddings {
		p.put("output.weight", p.c.Scope()+".embed_tokens.weight", false, nil, 0)
	}
	p.decoder(false, false, p.withShared)
}

func gptOSS(p *Plan) {
	p.rope()
	p.need(p.windows(), "no layer with a window")
	p.numberOfExperts()
	p.set("expert_feed_forward_length", p.c.ExpertSize)
	p.outer(0, true)
	p.layers(func(_ int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 0)
		p.attention(to, from, false)
		p.put(to+"attn_sinks.weight", from+"self_attn.sinks", true, nil, 0)
		p.norm(to+"post_attention_norm", from+"post_attention_layernorm", 0)
		p.put(to+"ffn_gate_inp.weight", from+"mlp.router.weight", true, nil, 0)
		p.put(to+"ffn_gate_inp.bias", from+"mlp.router.bias", true, nil, 0)
		for _, e := range []struct {
			to, from    string
			first, step int
		}{{"ffn_gate_exps", "gate_up_proj", 0, 2}, {"ffn_up_exps", "gate_up_proj", 1, 2},
			{"ffn_down_exps", "down_proj", 0, 1}} {
			p.transposed(to+e.to, from+"mlp.experts."+e.from, e.first, e.step)
			p.transposedBias(to+e.to, from+"mlp.experts."+e.from+"_bias", e.first, e.step)
		}
	})
}
