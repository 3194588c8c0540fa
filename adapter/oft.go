package adapter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// OFT is the section oft of a run's configuration.
type OFT struct {
	Layers `yaml:",inline"`
	// OFTBlockSize is the number of neighbouring inputs that are rotated together. 0 stands for 32. Where it does not
	// divide a layer's inputs, the divisor next to it is taken, as in PEFT.
	OFTBlockSize int `yaml:"oft_block_size,omitempty" range:"[0,1024]" resume:"compared"`
	// NumCayleyNeumannTerms is the number of terms by which the inverse in Cayley's formula is approximated. 0 stands
	// for 5. With more terms the matrices are nearer to rotations.
	NumCayleyNeumannTerms int `yaml:"num_cayley_neumann_terms,omitempty" range:"[0,16]" resume:"compared"`

	noScale `yaml:"-"`
}

const (
	oftSuffix = ".oft_R.weight"
	oftBlock  = 32 // block size where none is set, PEFT's
	oftTerms  = 5  // terms where none are set, PEFT's
)

func oftSection(s Sections) Config { return s.OFT.layersConfig() }

func (s OFT) layersConfig() Config { return s.config(s, Targets{AllLinear}, 1, 1) }

func (OFT) section() string { return "oft" }

func (s OFT) summary(c Config) string {
	return fmt.Sprintf("blocks of %d, on %v", s.block(), []string(c.TargetModules))
}

func (s OFT) standalone() []error {
	problems := s.targetProblems("oft")
	if s.NumCayleyNeumannTerms == 1 {
		problems = append(problems, errors.New("oft.num_cayley_neumann_terms: 1 leaves the identity alone, which "+
			"trains nothing: it must be at least 2"))
	}
	return problems
}

func (s OFT) block() int {
	return cmp.Or(s.OFTBlockSize, oftBlock)
}

func (s OFT) terms() int {
	return cmp.Or(s.NumCayleyNeumannTerms, oftTerms)
}

// blockOf returns the size of the blocks of a layer: the divisor of its inputs that is nearest to the configured size,
// the smaller of two that are equally near.
func (s OFT) blockOf(in int) int {
	want := s.block()
	if want >= in {
		return in
	}
	lower, higher := want, want
	for in%lower != 0 {
		lower--
	}
	for in%higher != 0 {
		higher++
	}
	if want-lower <= higher-want {
		return lower
	}
	return higher
}

// oftFactor returns the factor of Q to the power p in PEFT's series of n terms, and the highest power in it:
// R = I + 2 Q + 2 Q^2 + ... + 2 Q^(n-2) + Q^(n-1). Three terms are the same as four, as in PEFT.
func oftFactor(n, p int) (factor float64, highest int) {
	switch {
	case n <= 2:
		return 2, 1
	}
	highest = max(3, n-1)
	if p == highest {
		return 1, highest
	}
	return 2, highest
}

// oft is a linear layer whose inputs are rotated in blocks: y = base(x R), where R has a matrix for each block on its
// diagonal, R_j = (I - Q_j)^-1 (I + Q_j) as a series, and Q_j is antisymmetric (Qiu et al., "Controlling Text-to-Image
// Diffusion by Orthogonal Finetuning", 2023; Qiu et al., "Orthogonal Finetuning Made Scalable", 2025).
type oft struct {
	wrapped
	q      *nn.Value // [In/B,B(B-1)/2], the upper triangles of the blocks
	skew   *nn.Value // [B(B-1)/2,B*B], what makes Q of its upper triangle
	starts *nn.Value // [In/B+1], the first row of each block
	in     int
	block  int
	terms  int
}

func wrapOFT(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, _ := base.Size()
	b := settingsOf[OFT](c).blockOf(in)
	blocks, half := in/b, b*(b-1)/2
	if b < 2 || blocks > kernel.MaxExperts {
		n.Fail(fmt.Errorf("oft.oft_block_size: %d makes %d blocks of %d of the %d inputs of %s: a block has at least "+
			"2 inputs, and there are at most %d blocks", settingsOf[OFT](c).block(), blocks, b, in, path, kernel.MaxExperts))
		return base
	}
	skew := nn.Constant(n, fmt.Sprintf("antisymmetric matrices of %d", b), func(dst []float64) {
		for r := range b {
			for col := r + 1; col < b; col++ {
				dst[r*b+col], dst[col*b+r] = 1, -1
				dst = dst[b*b:]
			}
		}
	}, half, b*b)
	starts := n.Shared(nil, fmt.Sprintf("starts of %d blocks of %d", blocks, b), func() *nn.Value {
		return n.Table(fmt.Sprintf("starts of %d blocks of %d", blocks, b), func(dst []int32) {
			for i := range dst {
				dst[i] = int32(i * b)
			}
		}, blocks+1)
	})
	return &oft{wrapped: wrapped{n, base}, skew: skew, starts: starts, in: in, block: b, terms: settingsOf[OFT](c).terms(),
		q: t.param(n, path+oftSuffix, blocks, half)}
}

// Apply adds what the rotation changes of x to x: R - I has small numbers, which 16 bits keep, where R would lose them.
func (l *oft) Apply(x *nn.Value) *nn.Value {
	change := l.n.Shared(l.q, "oft", l.change) // [In,B]
	return l.base.Apply(l.n.Add(x, l.n.Apply(kernel.BlockRotate{Block: l.block}, x, change)))
}

// change returns R - I, the blocks one below the other.
func (l *oft) change() *nn.Value {
	blocks := l.in / l.block
	q := l.n.Apply(kernel.MatMul{}, l.q, l.skew) // [In/B,B*B]
	// The factor on the right has a value of its own: a GPU sums the gradient of a weight in fp32, the others in the
	// type of activations.
	right := l.n.Apply(kernel.Reshape{From: blocks, To: l.in}, q)
	var sum *nn.Value
	_, highest := oftFactor(l.terms, 0)
	power := l.n.Apply(kernel.Reshape{From: blocks, To: l.in}, q)
	for p := 1; p <= highest; p++ {
		if p > 1 {
			power = l.n.Apply(kernel.ExpertMatMul{Experts: blocks}, power, right, l.starts)
		}
		term := power
		if factor, _ := oftFactor(l.terms, p); factor != 1 {
			term = l.n.Apply(kernel.Scale{By: factor}, power)
		}
		if sum == nil {
			sum = term
		} else {
			sum = l.n.Add(sum, term)
		}
	}
	return sum
}

// initOFT leaves the triangles zero: the model computes at first what it did before.
func initOFT(_ Config, f Fresh) error {
	_, err := tensorOf(f.Layer, oftSuffix, f.Tensors)
	return err
}

// mergeOFT multiplies blocks of each row of W by R_jᵀ, in float64 and rounded once.
func mergeOFT(c Config, layer string, own []Param) (Merger, error) {
	q, err := tensorOf(layer, oftSuffix, own)
	if err != nil {
		return nil, err
	}
	in, err := c.width(layer)
	if err != nil {
		return nil, err
	}
	b := in / q.Shape[0]
	rotations := make([]float64, in*b)
	for j := range q.Shape[0] {
		rotation(rotations[j*b*b:][:b*b], q.Data[j*q.Shape[1]:][:q.Shape[1]], b, settingsOf[OFT](c).terms())
	}
	return func(w []float32, _ int) {
		block := make([]float64, b)
		for at := 0; at+b <= len(w); at += b {
			r := rotations[at%in*b:][:b*b]
			for k := range b {
				sum := 0.0
				for i, x := range w[at:][:b] {
					sum += float64(float64(x) * r[k*b+i])
				}
				block[k] = sum
			}
			for k, x := range block {
				w[at+k] = float32(x)
			}
		}
	}, nil
}

// rotation writes R [B,B] of the upper triangle of Q.
func rotation(dst []float64, triangle []float32, b, terms int) {
	q, at := make([]float64, b*b), 0
	for r := range b {
		dst[r*b+r] = 1
		for col := r + 1; col < b; col++ {
			q[r*b+col], q[col*b+r] = float64(triangle[at]), -float64(triangle[at])
			at++
		}
	}
	_, highest := oftFactor(terms, 0)
	power := q
	for p := 1; p <= highest; p++ {
		if p > 1 {
			next := make([]float64, b*b)
			for r := range b {
				for k := range b {
					for col := range b {
						next[r*b+col] += float64(power[r*b+k] * q[k*b+col])
					}
				}
			}
			power = next
		}
		factor, _ := oftFactor(terms, p)
		for i, x := range power {
			dst[i] += float64(factor * x)
		}
	}
}

// oftCodec reads and writes what PEFT calls an OFTConfig.
var oftCodec = Codec{Type: "OFT", Parse: parseOFT, Format: formatOFT}

func parseOFT(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var own struct {
		BlockSize     int     `json:"oft_block_size"`
		Constrained   bool    `json:"coft"`
		Eps           float64 `json:"eps"`
		Init          any     `json:"init_weights"`
		ModuleDropout float64 `json:"module_dropout"`
		R             int     `json:"r"`
		Share         bool    `json:"block_share"`
		Series        *bool   `json:"use_cayley_neumann"`
		Terms         *int    `json:"num_cayley_neumann_terms"`
	}
	return parseMethod(raw, keys, &own, nil, func(l Layers, bad func(format string, args ...any)) Config {
		switch {
		case own.R != 0:
			bad("r is %d: only oft_block_size is supported, as the size of a layer's blocks", own.R)
		case own.BlockSize < 1:
			bad("oft_block_size is %d: it must be at least 1", own.BlockSize)
		case own.Constrained || own.Share || own.ModuleDropout != 0:
			bad("coft is %v, block_share %v and module_dropout %v: only false, false and 0 are supported",
				own.Constrained, own.Share, own.ModuleDropout)
		case own.Series != nil && !*own.Series:
			bad("use_cayley_neumann is false: the exact inverse is not supported, only the series")
		}
		s := OFT{Layers: l, OFTBlockSize: own.BlockSize}
		if own.Terms != nil {
			s.NumCayleyNeumannTerms = *own.Terms
		}
		return s.layersConfig()
	})
}

func formatOFT(c Config, base string, layers []string) ([]byte, error) {
	own := settingsOf[OFT](c)
	return formatMethod(c, base, layers, "OFT", map[string]any{
		"bias": "none", "block_share": false, "coft": false, "eps": 6e-05, "fan_in_fan_out": false,
		"init_weights": true, "layers_pattern": nil, "layers_to_transform": nil, "module_dropout": 0.0,
		"num_cayley_neumann_terms": own.terms(), "oft_block_size": own.block(), "r": 0, "use_cayley_neumann": true,
	})
}
