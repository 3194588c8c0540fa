package optimizer_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/train/optimizer"
)

// goldenNumbers are those that make_adamw_8bit.py draws: of 25 binades, exact in float32.
func goldenNumbers(count int, x uint32) []float64 {
	out := make([]float64, count)
	for i := range out {
		x = x*1664525 + 1013904223
		y := int(x>>8) - 1<<23
		x = x*1664525 + 1013904223
		out[i] = math.Ldexp(float64(y), -23-int(x>>24)%25)
	}
	return out
}

// TestAdamW8BitEqualsReference makes ten updates of a tensor with moments in 8 bits and a small one by the rule of
// bitsandbytes:
// in float32 every code, scale and parameter is the reference's, together and tensor by tensor.
func TestAdamW8BitEqualsReference(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "adamw_8bit/adamw_8bit.safetensors"))
	sizes := map[string]int{"a": 4115, "b": 700}
	config := optimizer.Config{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}
	for _, together := range []bool{true, false} {
		for _, c := range []struct {
			float     kernel.DType
			tolerance float64
		}{{kernel.F32, 0}, {kernel.F64, 1e-5}} {
			t.Run(fmt.Sprint(c.float, " together ", together), func(t *testing.T) {
				u := newFlat(t, c.float, "adamw_8bit", config, []string{"a", "b"}, sizes, together)
				start := map[string][]float64{}
				for name, n := range sizes {
					start[name] = goldenNumbers(n, uint32(name[0]))
					u.set(t, name, start[name])
				}
				for s := 1; s <= 10; s++ {
					for name, n := range sizes {
						g := goldenNumbers(n, uint32(1000*s)+uint32(name[0]))
						clear(g[min(512, n):min(768, n)])
						if s%3 == 0 {
							clear(g[:256])
						}
						u.set(t, "gradient of "+name, g)
					}
					u.step(t, 1e-2, s)
					if s != 1 && s != 10 {
						continue
					}
					for name, n := range sizes {
						worst := 0.0
						want := ref.Floats(fmt.Sprintf("%d.p.%s", s, name))
						for i, got := range u.get(t, name)[:n] {
							if d := math.Abs(got-want[i]) / max(1e-2, math.Abs(want[i])); !(d <= c.tolerance) {
								t.Fatalf("step %d: %s[%d] = %v, want %v", s, name, i, got, want[i])
							} else {
								worst = max(worst, d)
							}
						}
						t.Logf("step %d: %s within %.1e", s, name, worst)
					}
					of := ""
					if !together {
						of = " of a"
					}
					for which, name := range map[string]string{"m": "first moments", "v": "second moments"} {
						codes, err := u.m.Tensor(name + " in 8 bits" + of)
						if err != nil {
							t.Fatal(err)
						}
						if got, want := codes.Bytes()[:sizes["a"]], ref.Bytes(fmt.Sprintf("%d.%s.a", s,
							which)); !bytes.Equal(got, want) {
							off := 0
							for i, c := range got {
								if c != want[i] {
									off++
								}
							}
							t.Errorf("step %d: %d codes of %s differ", s, off, name)
						}
						want := ref.Floats(fmt.Sprintf("%d.absmax.%s.a", s, which))
						for i, got := range u.get(t, name+"' scales"+of)[:17] {
							if d := math.Abs(got-want[i]) / max(math.Abs(want[i]), 1e-30); !(d <= c.tolerance) ||
								c.float == kernel.F32 && d != 0 {
								t.Errorf("step %d: scale %d of %s is %v, want %v", s, i, name, got, want[i])
							}
						}
					}
				}
			})
		}
	}
}

// newFlat is an optimizer with parameters in one buffer, on the CPU.
func newFlat(t *testing.T, float kernel.DType, name string, c optimizer.Config, tensors []string,
	sizes map[string]int, together bool) *update {
	t.Helper()
	u := &update{Optimizer: optimizer.Optimizers[name](c)}
	n := nn.New(nn.Options{Float: float})
	var params, grads []*graph.Value
	var extents []optimizer.Extent
	at := 0
	for _, name := range tensors {
		typ := kernel.T(float, sizes[name])
		params, grads = append(params, n.State("adapter", name, typ)), append(grads, n.State("gradients",
			"gradient of "+name, typ))
		extents = append(extents, optimizer.Extent{From: at, Numbers: sizes[name]})
		at += int(kernel.AlignUp(typ.Bytes())) / float.Size()
	}
	all := optimizer.Update{Net: n, Norm: n.Batch("norm", kernel.T(float, 2)), Numbers: n.Batch("numbers",
		kernel.T(float, optimizer.NumbersSize))}
	if together {
		all.Params, all.Grads, all.Extents = n.Span("adapter"), n.Span("gradients"), extents
		u.Apply(all)
	}
	for i := 0; i < len(tensors) && !together; i++ {
		one := all
		one.Params, one.Grads, one.Tensor, one.Extents = n.Part(params[i]), n.Part(grads[i]), tensors[i],
			[]optimizer.Extent{{Numbers: sizes[tensors[i]]}}
		u.Apply(one)
	}
	u.bind(t, n)
	return u
}

// bind compiles the update for a CPU and gives it memory.
func (u *update) bind(t *testing.T, n *nn.Net) {
	t.Helper()
	on := graph.NewCPU(1)
	plan, err := on.Compile(n.Builder)
	if err != nil {
		t.Fatal(err)
	}
	if u.m, err = on.NewStore(plan); err != nil {
		t.Fatal(err)
	}
	if err := n.Load(t.Context(), nil, u.m, 1); err != nil {
		t.Fatal(err)
	}
	if u.run, err = on.Bind(plan, u.m); err != nil {
		t.Fatal(err)
	}
	u.set(t, "norm", []float64{1, 1})
}
