package optimizer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/train/optimizer"
)

// TestLionEqualsReference makes ten updates of two tensors as lion-pytorch does.
func TestLionEqualsReference(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "lion/lion.safetensors"))
	for _, c := range []struct {
		float     kernel.DType
		tag       string
		tolerance float64
	}{{kernel.F64, "f64", 1e-14}, {kernel.F32, "f32", 2e-7}} {
		for _, tensor := range []string{"a", "b"} {
			t.Run(c.tag+" "+tensor, func(t *testing.T) {
				start := ref.Floats("start." + tensor)
				u := newUpdate(t, c.float, "lion", optimizer.Config{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.01},
					len(start))
				u.set(t, "p", start)
				for s := range 10 {
					u.set(t, "g", ref.Floats(fmt.Sprintf("grad.%d.%s", s, tensor)))
					u.step(t, 1e-2, s+1)
					for name, want := range map[string][]float64{
						"p":        ref.Floats(fmt.Sprintf("%s.%d.%s", c.tag, s, tensor)),
						"momentum": ref.Floats(fmt.Sprintf("%s.%d.momentum.%s", c.tag, s, tensor)),
					} {
						for i, got := range u.get(t, name) {
							if d := math.Abs(got - want[i]); !(d <= c.tolerance) {
								t.Fatalf("step %d: %s[%d] = %v, want %v", s, name, i, got, want[i])
							}
						}
					}
				}
			})
		}
	}
}

// update is an optimizer with one vector of parameters, on the CPU.
type update struct {
	optimizer.Optimizer
	m   graph.Store
	run graph.Runner
}

func newUpdate(t *testing.T, float kernel.DType, name string, c optimizer.Config, size int) *update {
	t.Helper()
	u := &update{Optimizer: optimizer.Optimizers[name](c)}
	n := nn.New(nn.Options{Float: float})
	vector := kernel.T(float, size)
	p, g := n.State("", "p", vector), n.State("", "g", vector)
	norm := n.Batch("norm", kernel.T(float, 2))
	states := u.Apply(optimizer.Update{Net: n, Params: p, Grads: g, Norm: norm, Numbers: n.Batch("numbers",
		kernel.T(float, optimizer.NumbersSize))})
	if len(states) != 1 {
		t.Errorf("states %v", states)
	}
	on := graph.NewCPU(1)
	plan, err := on.Compile(n.Builder)
	if err != nil {
		t.Fatal(err)
	}
	if u.m, err = on.NewStore(plan); err != nil {
		t.Fatal(err)
	}
	if u.run, err = on.Bind(plan, u.m); err != nil {
		t.Fatal(err)
	}
	u.set(t, "norm", []float64{1, 1})
	return u
}

func (u *update) set(t *testing.T, name string, v []float64) {
	t.Helper()
	x, err := u.m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range v {
		if x.DType == kernel.F64 {
			x.F64()[i] = f
		} else {
			x.F32()[i] = float32(f)
		}
	}
}

func (u *update) get(t *testing.T, name string) []float64 {
	t.Helper()
	x, err := u.m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	if x.DType == kernel.F64 {
		return x.F64()
	}
	return golden.Numbers(x.F32())
}

func (u *update) step(t *testing.T, lr float64, number int) {
	t.Helper()
	n := u.Numbers(lr, number)
	u.set(t, "numbers", n[:])
	if err := u.run.Run("main"); err != nil {
		t.Fatal(err)
	}
}
