package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Several are saved adapters side by side over one network: every row of a batch uses the one that the batch names for
// it, or none. The adapters' matrices of a layer lie one after the other, A [sum of R,In] and B [Out,sum of R]; of x Aᵀ
// each row keeps its own adapter's columns, times that adapter's scale, so that no number of another reaches it.
type Several struct {
	saved  []*Saved
	layers map[string]*severalLayer
	order  []*severalLayer
	width  int         // of the heads; 0 = Scores was not called
	biases [][]float32 // of the heads, by adapter; nil = it has none
}

// severalLayer is one linear layer with the adapters that target it.
type severalLayer struct {
	path    string
	in, out int
	width   int // sum of the ranks, rounded up to rowsOf8
	members []severalMember
}

type severalMember struct {
	which, rank, from int // the adapter, its rank, its first column
	scale             float64
}

// SeveralRows is the name, after a plan's prefix, of the batch value that says which adapter each row uses; -1 is none.
const SeveralRows = "adapters"

// Names of a layer's tensors, after its path, and what GEMMs on a GPU want the sum of ranks to be a multiple of.
const (
	severalA      = ".adapters_A"
	severalB      = ".adapters_B"
	severalScales = ".adapters_scales"
	rowsOf8       = 8
)

// NewSeveral puts adapters side by side. Adapters of experts can't be: their rows lie by expert.
func NewSeveral(saved []*Saved) *Several {
	return &Several{saved: saved, layers: map[string]*severalLayer{}}
}

// Wrapper returns the nn.Options.Wrap of a plan. tokens is the number of tokens of its batches, and prefix begins the
// names of its batch values.
func (s *Several) Wrapper(prefix string, tokens int) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return s.wrapper(prefix, tokens, Config.Adapts)
}

// Routers is Wrapper for routers that are parameters and no linear layers: the nn.Options.WrapRouter.
func (s *Several) Routers(prefix string, tokens int) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return s.wrapper(prefix, tokens, func(c Config, path string) bool { return c.parameterMatches(path + weightSuffix) })
}

func (s *Several) wrapper(prefix string, tokens int, adapts func(c Config, path string) bool) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return func(n *nn.Net, path string, base nn.Linear) nn.Linear {
		l := s.layer(path, base, adapts)
		if l == nil {
			return base
		}
		f := n.Float()
		return &severalLinear{Linear: base, n: n,
			a: n.Frozen(path+severalA, kernel.T(f, l.width, l.in)), b: n.Frozen(path+severalB, kernel.T(f, l.out, l.width)),
			scales: n.Frozen(path+severalScales, kernel.T(f, len(s.saved), l.width)),
			which:  n.Batch(prefix+SeveralRows, kernel.T(kernel.I32, tokens))}
	}
}

// Experts is the nn.Options.WrapExperts: it refuses adapters of experts.
func (s *Several) Experts(n *nn.Net, paths []string, base nn.Experts) nn.Experts {
	for i, saved := range s.saved {
		for _, path := range paths {
			if saved.Config.Adapts(path) {
				n.Fail(fmt.Errorf("adapter %d of %d adapts %s, an expert's layer: such an adapter can't be one of several; load it alone, with --adapter-only", i+1, len(s.saved), path))
				return base
			}
		}
	}
	return base
}

// layer is what the adapters have for a linear layer; nil where none targets it.
func (s *Several) layer(path string, base nn.Linear, adapts func(c Config, path string) bool) *severalLayer {
	if l, ok := s.layers[path]; ok {
		return l
	}
	l := &severalLayer{path: path}
	l.in, l.out = base.Size()
	for i, saved := range s.saved {
		if c := saved.Config; adapts(c, path) {
			m := severalMember{which: i, rank: c.Rank(path), from: l.width, scale: c.Scale(path)}
			l.members, l.width = append(l.members, m), l.width+m.rank
		}
	}
	if l.members == nil {
		s.layers[path] = nil
		return nil
	}
	l.width = (l.width + rowsOf8 - 1) / rowsOf8 * rowsOf8
	s.layers[path], s.order = l, append(s.order, l)
	return l
}

// Load reads the adapters into the memory of plans whose networks were wrapped.
func (s *Several) Load(m graph.Store) error {
	for i, saved := range s.saved {
		if !saved.Method.Sums {
			return fmt.Errorf("adapter %d of %d %s: such an adapter can't be one of several; load it alone, "+
				"with --adapter-only", i+1, len(s.saved), saved.Method.Update())
		}
		if beyond := Beyond(saved.Config); beyond != "" {
			return fmt.Errorf("adapter %d of %d %s: such an adapter can't be one of several; load it alone, with "+
				"--adapter-only", i+1, len(s.saved), beyond)
		}
		if slices.ContainsFunc(saved.Config.TargetParameters, func(name string) bool { return !strings.HasSuffix(name, weightSuffix) }) {
			return fmt.Errorf("adapter %d of %d adapts the parameters %v of experts: such an adapter can't be one of several; load it alone, with --adapter-only", i+1, len(s.saved), saved.Config.TargetParameters)
		}
		params, err := s.read(i, saved)
		if err != nil {
			return fmt.Errorf("adapter %d of %d: %w", i+1, len(s.saved), err)
		}
		for _, l := range s.order {
			for _, member := range l.members {
				if member.which == i {
					if err := l.place(m, member, len(s.saved), params[:2]); err != nil {
						return err
					}
					params = params[2:]
				}
			}
		}
		if err := s.placeHead(m, i, params); err != nil {
			return err
		}
	}
	for _, l := range s.order {
		if err := m.Put(l.path+severalA, l.path+severalB, l.path+severalScales); err != nil {
			return fmt.Errorf("write the adapters: %w", err)
		}
	}
	return nil
}

// read reads an adapter's tensors: A and B of every layer in the order of the network, and last those of its head.
func (s *Several) read(i int, saved *Saved) ([]Param, error) {
	var params []Param
	for _, l := range s.order {
		for _, m := range l.members {
			if m.which == i {
				params = append(params, Param{l.path + suffixA, []int{m.rank, l.in}, make([]float32, m.rank*l.in)},
					Param{l.path + suffixB, []int{l.out, m.rank}, make([]float32, l.out*m.rank)})
			}
		}
	}
	if s.width > 0 {
		params = append(params, saved.Config.Task.headParams(s.width)...)
	}
	return params, saved.Read(params)
}

// place writes one adapter's A and B and its scale into memory.
func (l *severalLayer) place(m graph.Store, member severalMember, adapters int, ab []Param) error {
	var to [3][]float32
	for i, name := range []string{severalA, severalB, severalScales} {
		t, err := m.Tensor(l.path + name)
		if err != nil {
			return fmt.Errorf("write the adapters: %w", err)
		}
		if t.DType != kernel.F32 {
			return fmt.Errorf("write the adapters: they are computed in float32, %s is %v", l.path+name, t.Type)
		}
		to[i] = t.F32()
	}
	copy(to[0][member.from*l.in:], ab[0].Data)
	for o := range l.out {
		copy(to[1][o*l.width+member.from:], ab[1].Data[o*member.rank:][:member.rank])
	}
	for c := range member.rank {
		to[2][member.which*l.width+member.from+c] = float32(member.scale)
	}
	return nil
}

// severalLinear is a linear layer with the updates of several adapters: y = base(x) + (scale of the row's adapter on
// its columns * x Aᵀ) Bᵀ.
type severalLinear struct {
	nn.Linear
	n                   *nn.Net
	a, b, scales, which *nn.Value
}

func (l *severalLinear) Apply(x *nn.Value) *nn.Value {
	y := l.Linear.Apply(x)
	t := l.n.Apply(kernel.MatMul{TransB: true}, x, l.a)               // [M,In] [R,In]ᵀ -> [M,R]
	t = l.n.Apply(kernel.RowFactors{}, t, l.which, l.scales)          // [M,R]
	return l.n.Add(y, l.n.Apply(kernel.MatMul{TransB: true}, t, l.b)) // [M,R] [Out,R]ᵀ -> [M,Out]
}
