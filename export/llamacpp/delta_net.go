package llamacpp

import "math"

// tiled is the order of value heads that llama.cpp repeats key heads to: the first of each key head's, then the second
// of each, where a checkpoint has those of a key head together. It leaves the rows before from, those of queries and
// keys; nil = both are the same.
func (p *Plan) tiled(size, from int) func(int) int {
	keys := p.c.DeltaNet.KeyHeads
	each := p.c.DeltaNet.ValueHeads / keys
	if each == 1 {
		return nil
	}
	return func(row int) int {
		if row < from {
			return row
		}
		head, at := (row-from)/size, (row-from)%size
		return from + (head%keys*each+head/keys)*size + at
	}
}

// columns puts the columns of the last tensor in an order.
func (p *Plan) columns(order func(int) int) {
	if order == nil || p.errs != nil {
		return
	}
	t := &p.Tensors[len(p.Tensors)-1]
	t.Columns = order
	read, width := t.Rows, t.Shape[0]
	old := make([]float32, width)
	t.Rows = func(row int, dst []float32) error {
		if err := read(row, dst); err != nil {
			return err
		}
		for ; len(dst) > 0; dst = dst[width:] {
			copy(old, dst)
			for i := range width {
				dst[i] = old[order(i)]
			}
		}
		return nil
	}
}

// decays makes the last tensor, of A_log, the factors themselves.
func (p *Plan) decays() {
	if p.errs != nil {
		return
	}
	t := &p.Tensors[len(p.Tensors)-1]
	read := t.Rows
	t.Rows = func(row int, dst []float32) error {
		err := read(row, dst)
		for i, x := range dst {
			dst[i] = float32(-math.Exp(float64(x)))
		}
		return err
	}
}

// deltaNet adds a layer of linear attention.
func (p *Plan) deltaNet(to, from string) {
	d := p.c.DeltaNet
	before := 2 * d.KeyHeads * d.KeySize
	p.linear(to+"attn_qkv", from+"in_proj_qkv", p.tiled(d.ValueSize, before))
	p.linear(to+"attn_gate", from+"in_proj_z", p.tiled(d.ValueSize, 0))
	p.linear(to+"ssm_beta", from+"in_proj_b", p.tiled(1, 0))
	p.linear(to+"ssm_alpha", from+"in_proj_a", p.tiled(1, 0))
	p.put(to+"ssm_conv1d.weight", from+"conv1d.weight", true, p.tiled(d.ValueSize, before), 0)
	if p.errs == nil {
		last := &p.Tensors[len(p.Tensors)-1]
		last.Shape = []int{last.Shape[0], last.Shape[2]} // [C,1,K]
	}
	p.put(to+"ssm_dt.bias", from+"dt_bias", true, p.tiled(1, 0), 0)
	p.put(to+"ssm_a", from+"A_log", true, p.tiled(1, 0), 0)
	p.decays()
	p.norm(to+"ssm_norm", from+"norm", 0)
	p.linear(to+"ssm_out", from+"out_proj", nil)
	p.columns(p.tiled(d.ValueSize, 0))
}

// interval is how many layers it is from one with attention to the next, where they are spread evenly.
func (p *Plan) interval() int {
	n := 1
	for n <= p.c.NumLayers && p.c.LinearLayer(n-1) {
		n++
	}
	if n == 1 || n > p.c.NumLayers {
		p.fail("layers of one kind alone, where llama.cpp needs both attention and linear attention")
		return n
	}
	for i := range p.c.NumLayers {
		p.need(p.c.LinearLayer(i) == ((i+1)%n != 0),
			"layer %d: llama.cpp has attention in each %d. layer and linear attention in all others", i, n)
	}
	return n
}

// qwen35s are the networks of Qwen3.5, which differ in what is behind attention.
func (p *Plan) qwen35s(mlp func(i int, to, from string)) {
	d := p.c.DeltaNet
	p.silu()
	p.need(!p.c.QKVBias && !p.c.OBias, "attention_bias, where llama.cpp has no biases")
	p.need(d.KeySize == d.ValueSize,
		"linear_key_head_dim %d and linear_value_head_dim %d, where llama.cpp has one size", d.KeySize, d.ValueSize)
	if p.c.RMSNormEps > 1e-5 {
		p.note("rms_norm_eps = %g bounds the lengths of linear attention's queries and keys in llama.cpp, where the "+
			"model adds 1e-6 to their squares: short ones differ", p.c.RMSNormEps)
	}
	switch p.c.RopeScaling.Type {
	case "", "default", "linear", "yarn":
		p.rope()
	default:
		p.fail("rotary scaling of type %s", p.c.RopeScaling.Type)
	}
	p.set("full_attention_interval", p.interval())
	p.set("ssm.conv_kernel", d.Filter)
	p.set("ssm.state_size", d.KeySize)
	p.set("ssm.group_count", d.KeyHeads)
	p.set("ssm.time_step_rank", d.ValueHeads)
	p.set("ssm.inner_size", d.ValueHeads*d.ValueSize)
	// shared among the three places of a part of an image, one by one: of a text they are the same
	turned := p.c.RotaryColumns() / 2
	p.set("rope.dimension_sections", []int32{int32(turned+2) / 3, int32(turned+1) / 3, int32(turned) / 3, 0})
	p.outer(1, false)
	p.layers(func(i int, to, from string) {
		p.norm(to+"attn_norm", from+"input_layernorm", 1)
		if p.c.LinearLayer(i) {
			p.deltaNet(to, from+"linear_attn.")
		} else {
			p.attention(to, from, false) // each head's queries and gates together, as the checkpoint has them
			p.norm(to+"attn_q_norm", from+"self_attn.q_norm", 1)
			p.norm(to+"attn_k_norm", from+"self_attn.k_norm", 1)
		}
		p.norm(to+"post_attention_norm", from+"post_attention_layernorm", 1)
		mlp(i, to, from)
	})
}

func qwen35Dense(p *Plan) { p.qwen35s(p.plainMLP) }

func qwen35MoE(p *Plan) {
	p.mixture(true)
	p.shared()
	p.qwen35s(p.withShared)
}
