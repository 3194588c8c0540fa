package llamacpp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// put adds a tensor: rows of the checkpoint's tensor from, in the given order, plus a number.
func (p *Plan) put(name, from string, plain bool, order func(int) int, plus float32) {
	shape := p.src.Shape(from)
	if shape == nil {
		p.fail("the checkpoint has no tensor %s", from)
		return
	}
	p.used[from] = true
	reversed := slices.Clone(shape)
	slices.Reverse(reversed)
	width := reversed[0]
	if len(reversed) == 1 && order != nil { // a bias: its elements are the rows
		p.Tensors = append(p.Tensors, Tensor{Name: name, Shape: reversed, Plain: true,
			Rows: func(_ int, dst []float32) error {
				all := make([]float32, width)
				if err := p.src.Floats(from, 0, all); err != nil {
					return err
				}
				for i := range dst {
					dst[i] = all[order(i)]
				}
				return nil
			}})
		return
	}
	read := func(row int, dst []float32) error { return p.src.Floats(from, row*width, dst) }
	if order != nil {
		read = func(row int, dst []float32) error {
			for ; len(dst) > 0; row, dst = row+1, dst[width:] {
				if err := p.src.Floats(from, order(row)*width, dst[:width]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if plus != 0 {
		plainRead := read
		read = func(row int, dst []float32) error {
			err := plainRead(row, dst)
			for i := range dst {
				dst[i] += plus
			}
			return err
		}
	}
	p.Tensors = append(p.Tensors, Tensor{Name: name, Shape: reversed, Plain: plain || len(shape) == 1, Rows: read,
		From: from, Order: order})
}

// linear adds a linear layer's weight, and its bias where it has one.
func (p *Plan) linear(name, from string, order func(int) int) {
	p.put(name+".weight", from+".weight", false, order, 0)
	if p.src.Shape(from+".bias") != nil {
		p.put(name+".bias", from+".bias", true, order, 0)
	}
}

// norm adds the weight of a norm.
func (p *Plan) norm(name, from string, plus float32) {
	p.put(name+".weight", from+".weight", true, nil, plus)
}

// numbers adds a tensor of numbers that the configuration gives.
func (p *Plan) numbers(name string, values []float64) {
	p.Tensors = append(p.Tensors, Tensor{Name: name, Shape: []int{len(values)}, Plain: true,
		Rows: func(_ int, dst []float32) error {
			for i := range dst {
				dst[i] = float32(values[i])
			}
			return nil
		}})
}

// pairs is the order of a head's rows that llama.cpp's rotation of neighbours needs: column i of the first half and i
// of the second become neighbours.
func pairs(headDim int) func(int) int {
	return func(row int) int {
		head, at := row/headDim, row%headDim
		return head*headDim + at%2*(headDim/2) + at/2
	}
}

// outer adds embeddings, the last norm and the head; untied: architectures that read a head of its own get a copy.
func (p *Plan) outer(plus float32, untied bool) {
	scope := p.c.Scope()
	p.put("token_embd.weight", scope+".embed_tokens.weight", false, nil, 0)
	p.norm("output_norm", scope+".norm", plus)
	if !p.c.TieEmbeddings {
		p.put("output.weight", "lm_head.weight", false, nil, 0)
	} else if untied {
		p.put("output.weight", scope+".embed_tokens.weight", false, nil, 0)
	}
}

// layers calls each with the names of a layer in the file and in the checkpoint.
func (p *Plan) layers(each func(i int, to, from string)) {
	for i := range p.c.NumLayers {
		each(i, fmt.Sprintf("blk.%d.", i), fmt.Sprintf("%s.layers.%d.", p.c.Scope(), i))
	}
}

// attention adds the four projections; neighbours: heads are rotated by neighbouring columns.
func (p *Plan) attention(to, from string, neighbours bool) {
	var order func(int) int
	if neighbours {
		order = pairs(p.c.HeadDim)
	}
	p.linear(to+"attn_q", from+"self_attn.q_proj", order)
	p.linear(to+"attn_k", from+"self_attn.k_proj", order)
	p.linear(to+"attn_v", from+"self_attn.v_proj", nil)
	p.linear(to+"attn_output", from+"self_attn.o_proj", nil)
}

func (p *Plan) mlp(to, from string) {
	p.linear(to+"ffn_gate", from+"mlp.gate_proj", nil)
	p.linear(to+"ffn_up", from+"mlp.up_proj", nil)
	p.linear(to+"ffn_down", from+"mlp.down_proj", nil)
}

// experts stacks the matrices of a layer's experts, path.E.name.
func (p *Plan) experts(to, path, name string) {
	first := p.src.Shape(fmt.Sprintf("%s.0.%s.weight", path, name))
	if len(first) != 2 {
		p.fail("the checkpoint has no tensor %s.0.%s.weight", path, name)
		return
	}
	out, in := first[0], first[1]
	own := make([]string, p.c.Experts)
	for e := range own {
		own[e] = fmt.Sprintf("%s.%d.%s.weight", path, e, name)
		p.used[own[e]] = true
		p.need(slices.Equal(p.src.Shape(own[e]), first), "%s has the shape %v, that of the first expert is %v", own[e],
			p.src.Shape(own[e]), first)
	}
	p.Tensors = append(p.Tensors, Tensor{Name: to + ".weight", Shape: []int{in, out, p.c.Experts}, Stack: own,
		Rows: func(row int, dst []float32) error {
			for len(dst) > 0 {
				e, r := row/out, row%out
				n := min(len(dst)/in, out-r)
				if err := p.src.Floats(own[e], r*in, dst[:n*in]); err != nil {
					return err
				}
				row, dst = row+n, dst[n*in:]
			}
			return nil
		}})
}

// transposed adds experts' parameter [E,in,out] as matrices: column first+step*r is row r.
func (p *Plan) transposed(to, from string, first, step int) {
	shape := p.src.Shape(from)
	if len(shape) != 3 || shape[2]%step != 0 {
		p.fail("the checkpoint has no parameter %s of experts", from)
		return
	}
	p.used[from] = true
	in, all, out := shape[1], shape[2], shape[2]/step
	held, matrix := -1, []float32(nil)
	p.Tensors = append(p.Tensors, Tensor{Name: to + ".weight", Shape: []int{in, out, shape[0]}, Transposed: true,
		Rows: func(row int, dst []float32) error {
			for ; len(dst) > 0; row, dst = row+1, dst[in:] {
				if e := row / out; e != held {
					if matrix == nil {
						matrix = make([]float32, in*all)
					}
					held = -1
					if err := p.src.Floats(from, e*in*all, matrix); err != nil {
						return err
					}
					held = e
				}
				column := first + step*(row%out)
				for i := range in {
					dst[i] = matrix[i*all+column]
				}
			}
			return nil
		}})
}

// transposedBias adds experts' biases [E,out].
func (p *Plan) transposedBias(to, from string, first, step int) {
	shape := p.src.Shape(from)
	if len(shape) != 2 {
		p.fail("the checkpoint has no tensor %s", from)
		return
	}
	p.used[from] = true
	all, out := shape[1], shape[1]/step
	p.Tensors = append(p.Tensors, Tensor{Name: to + ".bias", Shape: []int{out, shape[0]}, Plain: true,
		Rows: func(row int, dst []float32) error {
			b := make([]float32, all)
			for ; len(dst) > 0; row, dst = row+1, dst[out:] {
				if err := p.src.Floats(from, row*all, b); err != nil {
					return err
				}
				for i := range out {
					dst[i] = b[first+step*i]
				}
			}
			return nil
		}})
}

// rope adds the scaling of rotary frequencies.
func (p *Plan) rope() {
	r := p.c.RopeScaling
	original := r.OriginalMaxPositions
	if original == 0 {
		original = p.c.MaxPositions
	}
	p.need(r.QueryBeta == 0, "queries that grow with their position (llama_4_scaling_beta = %g): llama.cpp has them "+
		"in its architecture mistral3, which was not compared", r.QueryBeta)
	switch r.Type {
	case "", "default":
	case "linear":
		p.set("rope.scaling.type", "linear")
		p.set("rope.scaling.factor", r.Factor)
	case "dynamic":
		p.note("rotary scaling of type dynamic changes sequences above %d tokens, which llama.cpp does not know: it "+
			"computes the same up to there", p.c.MaxPositions)
	case "llama3":
		scaled, _, err := p.c.InvFreq(0)
		plain := p.c
		plain.RopeScaling.Type = "default"
		whole, _, perr := plain.InvFreq(0)
		if err != nil || perr != nil {
			p.fail("rotary frequencies: %v %v", err, perr)
			return
		}
		factors := make([]float64, len(whole))
		for i := range factors {
			factors[i] = whole[i] / scaled[i]
		}
		p.numbers("rope_freqs.weight", factors)
	case "yarn":
		const fast, slow = 32, 1
		if f, s := cmp.Or(r.BetaFast, fast), cmp.Or(r.BetaSlow, slow); f != fast || s != slow {
			p.fail("yarn with beta_fast %g and beta_slow %g: llama.cpp has %d and %d", f, s, fast, slow)
		}
		if r.NoTruncate {
			p.note("yarn without truncation of its bounds (truncate: false): llama.cpp truncates them, so that a few " +
				"frequencies differ a little")
		}
		p.set("rope.scaling.type", "yarn")
		p.set("rope.scaling.factor", r.Factor)
		p.set("rope.scaling.original_context_length", original)
		_, scale, err := p.c.InvFreq(0)
		p.need(err == nil, "rotary frequencies: %v", err)
		if usual := 1 + 0.1*math.Log(r.Factor); math.Abs(scale-usual) > 1e-9 { // llama.cpp multiplies by the usual one
			p.set("rope.scaling.attn_factor", scale/usual)
		}
	case "longrope":
		p.longRope()
	default:
		p.fail("rotary scaling of type %s", r.Type)
	}
}

// longRope adds the factors of short and long texts, in the architectures of llama.cpp that read them.
func (p *Plan) longRope() {
	if !slices.Contains([]string{"granite", "llama", "phi3"}, p.Architecture) {
		p.fail("rotary scaling of type longrope: llama.cpp's %s reads no factors for it", p.Architecture)
		return
	}
	r := p.c.RopeScaling
	limit, _ := p.c.LongRope(p.c.MaxPositions)
	_, scale, err := p.c.InvFreq(p.c.MaxPositions)
	p.need(err == nil, "rotary frequencies: %v", err)
	if p.Architecture != "phi3" { // which looks for the factors whatever the type
		p.set("rope.scaling.type", "longrope")
	}
	p.set("rope.scaling.original_context_length", limit)
	p.set("rope.scaling.attn_factor", scale)
	p.numbers("rope_factors_long.weight", r.LongFactor)
	p.numbers("rope_factors_short.weight", r.ShortFactor)
	p.note("longrope: llama.cpp takes the long factors for all texts where its context (-c, num_ctx) is above %d "+
		"tokens, the short ones else", limit)
}
