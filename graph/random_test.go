package graph

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// randomGraph records n applications of random kernels to random values. Square matrices fit everywhere.
func randomGraph(seed uint64, n int) (*Builder, []*Value) {
	r := rand.New(rand.NewPCG(seed, 1))
	size := 3 + r.IntN(20)
	b := NewBuilder(kernel.F32)
	square := floats(size, size)
	gain := b.Frozen("gain", floats(size))
	readable := []*Value{b.Batch("x", square), b.Batch("y", square), b.Frozen("w", square)}
	states := []*Value{b.State("s", "s0", square), b.State("s", "s1", square)}
	sums := append([]*Value(nil), states...) // newest value of each state
	pick := func() *Value {
		if r.IntN(2) == 0 { // chains and short lives
			return readable[max(0, len(readable)-1-r.IntN(3))]
		}
		return readable[r.IntN(len(readable))]
	}
	drop := func(v *Value) {
		for i, w := range readable {
			if w == v {
				readable = append(readable[:i], readable[i+1:]...)
				return
			}
		}
	}
	norm := func(v *Value) *Value { // keeps GEMMs of GEMMs within bounds
		if r.IntN(3) > 0 {
			return b.Apply(kernel.RMSNorm{Eps: 1e-3}, v, gain)
		}
		return v
	}
	for range n {
		b.In(fmt.Sprint("op", len(b.calls)), func() {
			switch r.IntN(10) {
			case 0, 1:
				readable = append(readable, b.Apply(kernel.Add{}, pick(), pick()))
			case 2, 3:
				readable = append(readable, b.Apply(kernel.MatMul{TransA: r.IntN(2) == 0, TransB: r.IntN(2) == 0,
					Alpha: 0.25}, norm(pick()), norm(pick())))
			case 4:
				readable = append(readable, b.Apply(kernel.RMSNorm{Eps: 1e-3}, b.Apply(kernel.SwiGLU{}, pick(), pick()),
					gain))
			case 5:
				readable = append(readable, b.Apply(kernel.RMSNorm{Eps: 1e-3}, pick(), gain))
			case 6: // a sum of fresh GEMMs, as gradients are
				v := b.Apply(kernel.MatMul{Alpha: 0.25}, norm(pick()), norm(pick()))
				for range 1 + r.IntN(3) {
					v = b.Apply(kernel.Add{}, v, b.Apply(kernel.MatMul{TransB: true, Alpha: 0.25}, pick(), pick()))
				}
				readable = append(readable, v)
			case 7:
				i := r.IntN(len(sums))
				sums[i] = b.Apply(kernel.AddTo{}, sums[i], b.Apply(kernel.MatMul{Alpha: 0.125}, pick(), pick()))
			case 8: // over a computed value that nobody reads afterwards
				v := b.Apply(kernel.Add{}, pick(), pick())
				x := pick()
				if x != v {
					readable = append(readable, b.Apply(kernel.AddTo{}, v, x))
				}
				if r.IntN(4) == 0 && len(readable) > 6 {
					drop(readable[3+r.IntN(3)])
				}
			case 9: // GEMMs of one operand, computed or added to states
				x := norm(pick())
				for i := range sums {
					if r.IntN(2) == 0 {
						sums[i] = b.Apply(kernel.AddTo{}, sums[i],
							b.Apply(kernel.MatMul{TransA: true, Alpha: 0.125}, pick(), x))
					} else {
						readable = append(readable, b.Apply(kernel.MatMul{TransB: true, Alpha: 0.25}, x, pick()))
					}
				}
			}
		})
	}
	outputs := []*Value{readable[len(readable)-1]}
	for range 2 {
		if v := pick(); v.kind == Computed {
			outputs = append(outputs, v)
		}
	}
	return b, outputs
}

func fillRandom(seed uint64) func(name string, t kernel.Tensor) {
	return func(name string, t kernel.Tensor) {
		r := rand.New(rand.NewPCG(seed, uint64(len(name))<<8|uint64(name[len(name)-1])))
		for i := range t.F32() {
			t.F32()[i] = float32(r.NormFloat64())
		}
	}
}

// TestPlansEqualNaiveRuns compares a plan, whose values share memory, with runs in which none does: the
// plan's own calls bit for bit, and the calls as they were recorded, before sums were merged into GEMMs,
// to rounding.
func TestPlansEqualNaiveRuns(t *testing.T) {
	fused, reused, large := plansEqualNaiveRuns(t, func(b *Builder,
		outputs []*Value) *Plan {
		return mustCompile(t, b, outputs...)
	})
	t.Logf("%d sums merged, %d values in memory used before, %d of 150 plans with an output too large to compare as recorded", fused, reused, large)
	if fused < 100 || reused < 500 || large > 30 {
		t.Errorf("%d sums were merged into GEMMs and %d values took memory that was free again: the test tests nothing",
			fused, reused)
	}
}

// plansEqualNaiveRuns compares 150 random plans, as compile makes them, with such runs. It returns how many calls were
// merged into others, how many values took memory that was free again, and how many plans had too large outputs.
func plansEqualNaiveRuns(t *testing.T, compile func(b *Builder, outputs []*Value) *Plan) (fused, reused, large int) {
	t.Helper()
	for seed := range uint64(150) {
		b, outputs := randomGraph(seed, 5+int(seed)%60)
		if b.Err() != nil {
			t.Fatal(b.Err())
		}
		recorded := newNaive(b.inputs, fillRandom(seed))
		recorded.run(copies(b.calls))
		alive := len(live(b.calls, outputs))
		p := compile(b, outputs)
		fused += alive - len(p.calls)
		separate := newNaive(b.inputs, fillRandom(seed))
		separate.run(copies(p.calls))

		m, r := mustBind(t, p)
		for i := range m.arena {
			m.arena[i] = 0xff // NaN: whatever is read before it is written shows
		}
		for _, name := range m.Names() {
			x, _ := m.Tensor(name)
			fillRandom(seed)(name, x)
		}
		r.Run("main")
		check := func(what string, v *Value) {
			got := r.Tensor(v)
			if !bytes.Equal(got.Bytes(), separate.memory[v].Bytes()) {
				t.Fatalf("seed %d: %s differs from a run without shared memory\n%v", seed, what, p)
			}
			most := 1.0
			for _, want := range recorded.memory[v].F32() {
				most = max(most, math.Abs(float64(want)))
			}
			if !(most < 1e6) {
				large++
				return
			}
			for i, want := range recorded.memory[v].F32() {
				if d := math.Abs(float64(got.F32()[i] - want)); !(d <= 1e-3*most) {
					t.Fatalf("seed %d: %s[%d] = %v, as recorded %v\n%v", seed, what, i, got.F32()[i], want, p)
				}
			}
		}
		for i, v := range outputs {
			check(fmt.Sprint("output ", i), v)
		}
		for _, v := range p.inputs {
			if v.kind == State {
				check(v.Name, v)
			} else if !bytes.Equal(r.Tensor(v).Bytes(), separate.memory[v].Bytes()) {
				t.Fatalf("seed %d: the run changed %s", seed, v.Name)
			}
		}
		places := map[int64]bool{}
		values := 0
		for _, c := range p.calls {
			for _, v := range c.out {
				if pl, ok := p.place[v]; ok {
					places[pl.offset] = true
					values++
				}
			}
		}
		reused += values - len(places)
	}
	return fused, reused, large
}

// TestLayout checks, with a liveness of its own, that no two values alive at once, or within the calls that
// Overlap asks for, overlap and that the arena
// is no larger than all of them and no smaller than those alive at the worst moment.
func TestLayout(t *testing.T) {
	for seed := range uint64(200) {
		b, outputs := randomGraph(1000+seed, 10+int(seed)%80)
		reuseDistance := int(seed) % 3 * 4
		b.Overlap(reuseDistance)
		p := mustCompile(t, b, outputs...)
		type extent struct {
			at, end  int64
			from, to int
			what     string
			value    *Value
		}
		var all []extent
		var sum int64
		first := map[*Value]*Value{} // of those that one memory was handed on to
		for i, c := range p.calls {
			if s, ok := p.scratch[c]; ok {
				all = append(all, extent{s.offset, s.offset + s.size, i, i, "scratch of " + c.String(), nil})
				sum += kernel.AlignUp(s.size)
			}
			for _, v := range c.out {
				if root(v).kind != Computed {
					continue
				}
				to := i
				for j := i + 1; j < len(p.calls); j++ {
					for _, w := range p.calls[j].in {
						if w == v {
							to = j
						}
					}
				}
				for _, o := range outputs {
					if o == v {
						to = len(p.calls)
					}
				}
				pl, ok := p.place[v]
				if !ok || pl.offset%kernel.Align != 0 || pl.size != v.Type.Bytes() {
					t.Fatalf("seed %d: %s has the place %+v", seed, v.Name, pl)
				}
				first[v] = v
				for _, w := range c.in {
					if was, ok := p.place[w]; ok && was.offset == pl.offset && mayShare(c, v, w) {
						first[v] = first[w]
					}
				}
				all = append(all, extent{pl.offset, pl.offset + pl.size, i, to, v.Name, v})
				sum += kernel.AlignUp(pl.size)
			}
		}
		for i, x := range all {
			if x.end > p.arena {
				t.Fatalf("seed %d: %s ends at %d of %d", seed, x.what, x.end, p.arena)
			}
			for _, y := range all[:i] { // y begins no later than x
				if x.from > y.to+reuseDistance || x.at >= y.end || y.at >= x.end {
					continue
				}
				if x.from >= y.to && x.at == y.at && x.value != nil && y.value != nil &&
					first[x.value] == first[y.value] {
					continue
				}
				t.Fatalf("seed %d: %s [%d,%d) of calls %d-%d lies over %s [%d,%d) of calls %d-%d\n%v",
					seed, x.what, x.at, x.end, x.from, x.to, y.what, y.at, y.end, y.from, y.to, p)
			}
		}
		var most int64
		for i := range p.calls {
			held := map[int64]int64{}
			for _, x := range all {
				if x.from <= i && i <= x.to {
					held[x.at] = max(held[x.at], kernel.AlignUp(x.end-x.at))
				}
			}
			var now int64
			for _, n := range held {
				now += n
			}
			most = max(most, now)
		}
		if p.arena < most || p.arena > sum {
			t.Fatalf("seed %d: an arena of %d bytes; %d are alive at once, %d in all", seed, p.arena, most, sum)
		}
		need, err := Need(p)
		if err != nil || need.Arena != p.arena {
			t.Fatalf("seed %d: Need says %v, %v", seed, need, err)
		}
	}
}

// mayShare tells whether an output may lie where an input lay.
func mayShare(c *call, out, in *Value) bool {
	if out == nil || in == nil {
		return false
	}
	aliases := overwrites(c)
	if k, ok := c.kernel.(kernel.InPlace); ok {
		aliases = append(aliases[:len(aliases):len(aliases)], k.InPlace()...)
	}
	for _, a := range aliases {
		if c.out[a.Out] == out && c.in[a.In] == in {
			return true
		}
	}
	return false
}

func TestPlansAreDeterministic(t *testing.T) {
	for seed := range uint64(5) {
		var want string
		for i := range 10 {
			b, outputs := randomGraph(seed, 60)
			got := mustCompile(t, b, outputs...).String()
			if i == 0 {
				want = got
			} else if got != want {
				t.Fatalf("seed %d: build %d made another plan:\n%s\nthe first was\n%s", seed, i, got, want)
			}
		}
	}
}

// A GEMM is added in place to what only its sum reads, and to nothing else.
func TestSumsMergeIntoGEMMs(t *testing.T) {
	build := func(f func(b *Builder, x, s *Value) []*Value) (adds, calls int) {
		b := NewBuilder(kernel.F32)
		p := mustCompile(t, b, f(b, b.Batch("x", floats(4, 4)), b.State("g", "s", floats(4, 4)))...)
		for _, c := range p.calls {
			if c.kernel.Name() == "add" {
				adds++
			}
		}
		return adds, len(p.calls)
	}
	mul := kernel.MatMul{}
	for _, c := range []struct {
		name        string
		adds, calls int
		f           func(b *Builder, x, s *Value) []*Value
	}{
		{"two GEMMs", 0, 2, func(b *Builder, x, _ *Value) []*Value {
			return []*Value{b.Apply(kernel.Add{}, b.Apply(mul, x, x), b.Apply(mul, x, x))}
		}},
		{"the sum of three", 0, 3, func(b *Builder, x, _ *Value) []*Value {
			return []*Value{b.Apply(kernel.Add{}, b.Apply(kernel.Add{}, b.Apply(mul, x, x), b.Apply(mul, x, x)),
				b.Apply(mul, x, x))}
		}},
		{"onto a state", 0, 1, func(b *Builder, x, s *Value) []*Value {
			b.Apply(kernel.AddTo{}, s, b.Apply(mul, x, x))
			return nil
		}},
		{"an addend from the batch", 1, 2, func(b *Builder, x, _ *Value) []*Value {
			return []*Value{b.Apply(kernel.Add{}, x, b.Apply(mul, x, x))}
		}},
		{"an addend read elsewhere", 1, 4, func(b *Builder, x, _ *Value) []*Value {
			a := b.Apply(kernel.SwiGLU{}, x, x)
			y := b.Apply(kernel.Add{}, a, b.Apply(mul, x, x))
			return []*Value{y, b.Apply(mul, a, x)}
		}},
		{"an addend that is an output", 1, 3, func(b *Builder, x, _ *Value) []*Value {
			a := b.Apply(mul, x, x)
			return []*Value{a, b.Apply(kernel.Add{}, a, b.Apply(mul, x, x))}
		}},
		{"a GEMM read elsewhere", 1, 4, func(b *Builder, x, _ *Value) []*Value {
			a, p := b.Apply(kernel.SwiGLU{}, x, x), b.Apply(mul, x, x)
			return []*Value{b.Apply(kernel.Add{}, a, p), b.Apply(mul, p, x)}
		}},
		{"a GEMM that is an output", 1, 3, func(b *Builder, x, _ *Value) []*Value {
			a, p := b.Apply(kernel.SwiGLU{}, x, x), b.Apply(mul, x, x)
			return []*Value{b.Apply(kernel.Add{}, a, p), p}
		}},
		{"a GEMM made before its addend", 1, 3, func(b *Builder, x, _ *Value) []*Value {
			p := b.Apply(mul, x, x)
			return []*Value{b.Apply(kernel.Add{}, p, b.Apply(kernel.SwiGLU{}, x, x))}
		}},
		{"a state that is read before its GEMM is made", 1, 3, func(b *Builder, x, s *Value) []*Value {
			y := b.Apply(kernel.Add{}, s, x)
			b.Apply(kernel.AddTo{}, s, b.Apply(mul, x, x))
			return []*Value{b.Apply(mul, y, x)}
		}},
		{"a state that is read after its GEMM is made", 2, 4, func(b *Builder, x, s *Value) []*Value {
			sum := b.Apply(mul, x, x)
			y := b.Apply(kernel.Add{}, s, x)
			b.Apply(kernel.AddTo{}, s, sum)
			return []*Value{b.Apply(mul, y, x)}
		}},
		{"an addend read before its GEMM is made", 0, 3, func(b *Builder, x, _ *Value) []*Value {
			a := b.Apply(kernel.SwiGLU{}, x, x)
			other := b.Apply(mul, a, x)
			return []*Value{b.Apply(kernel.Add{}, a, b.Apply(mul, x, x)), other}
		}},
		// the plain sum must leave the state alone; the sum into the state merges, and so makes two calls
		{"a sum with a state's new value", 1, 3, func(b *Builder, x, s *Value) []*Value {
			s = b.Apply(kernel.AddTo{}, s, b.Apply(mul, x, x))
			return []*Value{b.Apply(kernel.Add{}, s, b.Apply(mul, x, x))}
		}},
		{"a GEMM that reads the state's memory", 1, 2, func(b *Builder, x, s *Value) []*Value {
			b.Apply(kernel.AddTo{}, s, b.Apply(mul, s, x))
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if adds, calls := build(c.f); adds != c.adds || calls != c.calls {
				t.Errorf("%d additions among %d calls, want %d among %d", adds, calls, c.adds, c.calls)
			}
		})
	}
}
