package adapter

import (
	"hash/fnv"
	"math"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// lora is a linear layer with a low-rank update: y = base(x) + s (x Aᵀ) Bᵀ (Hu et al. 2021).
type lora struct {
	n       *nn.Net
	base    nn.Linear
	a, b    *nn.Value // [R,In], [Out,R]
	scale   float64
	dropout float64
	counter *nn.Value
}

const (
	suffixA = ".lora_A.weight"
	suffixB = ".lora_B.weight"
)

func wrapLoRA(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, out := base.Size()
	r := c.Rank(path)
	l := &lora{n: n, base: base, scale: c.Scale(path), dropout: c.Dropout,
		a: t.param(n, path+suffixA, r, in), b: t.param(n, path+suffixB, out, r)}
	if c.Dropout > 0 {
		l.counter = n.Batch(DropoutCounter, kernel.T(kernel.I32, 2))
	}
	return l
}

func (l *lora) Size() (in, out int) { return l.base.Size() }

func (l *lora) Apply(x *nn.Value) *nn.Value {
	y := l.base.Apply(x)
	branch := x
	if l.dropout > 0 {
		branch = l.n.Shared(x, "dropout", func() *nn.Value {
			return l.n.Apply(kernel.Dropout{P: l.dropout, Stream: stream(l.n.Scope())}, x, l.counter)
		})
	}
	t := l.n.Apply(kernel.MatMul{TransB: true}, branch, l.a)                          // [M,In] [R,In]ᵀ -> [M,R]
	return l.n.Add(y, l.n.Apply(kernel.MatMul{TransB: true, Alpha: l.scale}, t, l.b)) // [M,R] [Out,R]ᵀ -> [M,Out]
}

// stream tells dropout masks of different inputs apart.
func stream(path string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(path))
	return h.Sum64()
}

// InitA fills A [R,In] as PEFT does: kaiming-uniform with a = sqrt(5), which is uniform in ±1/sqrt(In).
// uniform gives numbers in [0,1). B starts at zero.
func InitA(a []float32, in int, uniform func() float64) {
	bound := 1 / math.Sqrt(float64(in))
	for i := range a {
		a[i] = float32((2*uniform() - 1) * bound)
	}
}
