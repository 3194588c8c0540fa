package graph

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/kernel"
)

// groupingTarget groups GEMMs on the CPU, wherever fits allows it.
type groupingTarget struct {
	hostTarget
	fits func(k kernel.MatMul, in []kernel.Type, out kernel.Type, n int) bool
}

// pairs allows every pair of gradients of a low-rank GEMM.
func (groupingTarget) pairs(dy, b kernel.Type) bool { return dy.Shape[1] > b.Shape[1] }

func (groupingTarget) passes() []pass {
	return slices.DeleteFunc(passesOn(onAll), func(p pass) bool {
		return p.on == onGPU &&
			!strings.HasSuffix(p.name, "GEMMs")
	})
}

func (g groupingTarget) groups(k kernel.MatMul, in []kernel.Type, out kernel.Type, n int) bool {
	return g.fits(k, in, out, n)
}

func atMost(most int) func(kernel.MatMul, []kernel.Type, kernel.Type, int) bool {
	return func(_ kernel.MatMul, _ []kernel.Type, _ kernel.Type, n int) bool { return n <= most }
}

// grouped counts the calls of a plan by their kind.
func grouped(p *Plan) map[string]int {
	n := map[string]int{}
	for _, c := range p.calls {
		switch c.kernel.(type) {
		case kernel.GroupedMatMul:
			n["each"]++
		case kernel.Onto[kernel.GroupedMatMul]:
			n["each onto"]++
		case kernel.MatMulSum, kernel.Onto[kernel.MatMulSum]:
			n["sum"]++
		case kernel.MatMul, kernel.Onto[kernel.MatMul]:
			n["one"]++
		case kernel.MatMulGrads:
			n["pair"]++
		default:
			n[c.kernel.Name()]++
		}
	}
	return n
}

func TestGroupedPlansEqualNaiveRuns(t *testing.T) {
	total := map[string]int{}
	for _, most := range []int{2, 4} {
		plansEqualNaiveRuns(t, func(b *Builder, outputs []*Value) *Plan {
			p, err := b.compile(groupingTarget{hostTarget{2}, atMost(most)}, false, outputs)
			if err != nil {
				t.Fatal(err)
			}
			for what, n := range grouped(p) {
				total[what] += n
			}
			return p
		})
	}
	t.Log(total)
	if total["each"] < 30 || total["each onto"] < 30 || total["sum"] < 50 {
		t.Errorf("the plans have too few of the three groups: the test tests nothing")
	}
}

// lowRankLayers records layers of low-rank updates [20,R] on three GEMMs of one input, as adapters build them, a loss
// over 9 words, and gradients that add up in state.
func lowRankLayers(b *Builder, layers int) []*Value {
	var params []*Value
	param := func(name string, shape ...int) *Value {
		p := b.Param("p", name, floats(shape...))
		params = append(params, p)
		return p
	}
	x := b.Batch("x", floats(6, 20))
	mul := kernel.MatMul{TransB: true}
	for i := range layers {
		layer := strconv.Itoa(i)
		in := b.Apply(kernel.RMSNorm{Eps: 1e-3}, x, b.Frozen("gain"+layer, floats(20)))
		for _, name := range []string{"q", "k", "v"} {
			name += layer
			y := b.Apply(mul, in, b.Frozen("w"+name, floats(20, 20)))
			t := b.Apply(mul, in, param("a"+name, 2, 20))
			y = b.Apply(kernel.Add{}, y, b.Apply(kernel.MatMul{TransB: true, Alpha: 2}, t, param("b"+name, 20, 2)))
			x = b.Apply(kernel.Add{}, x, b.Apply(kernel.SwiGLU{}, y, y))
		}
	}
	loss := b.Apply(kernel.LinearCrossEntropy{Chunk: 4, Grad: true}, x, b.Frozen("head", floats(9, 20)),
		b.Batch("labels", kernel.T(kernel.I32, 6)), b.Batch("scale", floats(1)))
	outputs := []*Value{loss}
	for i, g := range b.Grad(loss, params...) {
		outputs = append(outputs, b.Apply(kernel.AddTo{}, b.State("g", "of "+params[i].Name, params[i].Type), g))
	}
	return outputs
}

func lowRank(_ kernel.MatMul, in []kernel.Type, out kernel.Type, n int) bool {
	least := 20
	for _, t := range append(in, out) {
		least = min(least, t.Shape[0], t.Shape[1])
	}
	return least == 2 && n <= 3
}

func TestLowRankGEMMsAreGrouped(t *testing.T) {
	run := func(tg target, policy Recompute) (map[string]int, [][]float32, string) {
		b := NewBuilder(kernel.F32)
		outputs := lowRankLayers(b, 2)
		b.Recompute(policy, 0, KeepAll)
		p, err := b.compile(tg, false, outputs)
		if err != nil {
			t.Fatal(err)
		}
		m, r := mustBind(t, p)
		for _, name := range m.Names() {
			x, _ := m.Tensor(name)
			switch {
			case x.DType == kernel.I32:
				copy(x.I32(), []int32{3, 0, kernel.Untrained, 8, 3, 1})
			case name[0] == 'o': // gradients so far
				clear(x.F32())
			default:
				for i, v := range data(name[:1]+name[len(name)-1:], x.Elems()) {
					x.F32()[i] = float32(v)
				}
			}
		}
		r.Run("main")
		var got [][]float32
		for _, v := range outputs {
			got = append(got, append([]float32(nil), r.Tensor(v).F32()...))
		}
		return grouped(p), got, p.String()
	}
	for _, policy := range []Recompute{KeepAll, RecomputeCheap, KeepAttention, RecomputeLayers} {
		_, want, _ := run(hostTarget{2}, policy)
		n, got, plan := run(groupingTarget{hostTarget{2}, lowRank}, policy)
		if n["each"] < 2 || n["each onto"] != 2 || n["sum"] < 1 || n["pair"] != 6 {
			t.Errorf("%v: %v: two layers' low-rank GEMMs are not grouped\n%s", policy, n, plan)
		}
		for i := range want {
			for j, w := range want[i] {
				if d := got[i][j] - w; !(d*d <= 1e-8*(1+w*w)) {
					t.Fatalf("%v: output %d, element %d is %v, %v ungrouped\n%s", policy, i, j, got[i][j], w, plan)
				}
			}
		}
		if _, _, second := run(groupingTarget{hostTarget{2}, lowRank}, policy); second != plan {
			t.Errorf("%v: compiled twice, two plans", policy)
		}
	}
}

// TestGroupingIsQuick: the plan stands between the command and the first step, so finding groups in a deep model may
// not take many times as long as all else about its plan.
func TestGroupingIsQuick(t *testing.T) {
	plan := func(tg target) time.Duration {
		b := NewBuilder(kernel.F32)
		outputs := lowRankLayers(b, 64)
		began := time.Now()
		if _, err := b.compile(tg, false, outputs); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	plain, groups := time.Hour, time.Hour
	// the least of more tries where something else took the processor
	for try := 0; try < 3 || try < 20 && groups > 10*plain; try++ {
		plain, groups = min(plain, plan(hostTarget{2})), min(groups, plan(groupingTarget{hostTarget{2}, lowRank}))
	}
	t.Logf("64 layers: %v, with groups %v, %.1f times", plain, groups, float64(groups)/float64(plain))
	if groups > 10*plain {
		t.Errorf("a plan of 64 layers takes %v, with groups %v: more than 10 times", plain, groups)
	}
}

// TestFrozenGEMMsStayAlone: a frozen weight that is kept packed is a GEMM of its own, so one kept as numbers is too.
func TestFrozenGEMMsStayAlone(t *testing.T) {
	for _, policy := range []Recompute{KeepAll, RecomputeLayers} {
		b := NewBuilder(kernel.F32)
		outputs := lowRankLayers(b, 2)
		b.Recompute(policy, 0, KeepAll)
		p, err := b.compile(groupingTarget{hostTarget{2}, atMost(4)}, false, outputs)
		if err != nil {
			t.Fatal(err)
		}
		if n := grouped(p); n["each"] < 2 || n["sum"] < 1 {
			t.Errorf("%v: %v: the trained ones are not grouped", policy, n)
		}
		for _, c := range p.calls {
			switch c.kernel.(type) {
			case kernel.GroupedMatMul, kernel.MatMulSum, kernel.Onto[kernel.MatMulSum]:
				for _, v := range c.in {
					if root(v).kind == Frozen {
						t.Errorf("%v: %s is multiplied in a group", policy, root(v).Name)
					}
				}
			}
		}
	}
}
