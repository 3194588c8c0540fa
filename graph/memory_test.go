package graph

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestPlansShareMemory: what one plan writes to a state of a name, another reads; the arena is that of the
// larger plan, every input is held once, and Need says so before anything is held.
func TestPlansShareMemory(t *testing.T) {
	writer := NewBuilder(kernel.F32)
	s := writer.State("g", "s", floats(3, 5))
	writer.State("g", "unused", floats(7))
	x := writer.Batch("x", floats(3, 5))
	writer.Apply(kernel.AddTo{}, s, writer.Apply(kernel.Add{}, x, x))
	pw := mustCompile(t, writer)

	reader := NewBuilder(kernel.F32)
	w := reader.Frozen("w", floats(5, 40))
	big := reader.Apply(kernel.MatMul{}, reader.State("g", "s", floats(3, 5)), w)
	pr := mustCompile(t, reader, big)

	need, err := Need(pw, pr)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMemory(pw, pr)
	if err != nil {
		t.Fatal(err)
	}
	if need.Total() != m.Bytes().Total() || need.Arena != max(pw.arena, pr.arena) {
		t.Errorf("needed %+v, held %+v", need, m.Bytes())
	}
	if need.Batch != 64 || need.Frozen != 832 || need.State["g"] != 64+64 || len(need.State) != 1 {
		t.Errorf("needed %+v", need)
	}
	cpu := kernel.NewCPU(1)
	rw, err := pw.Bind(m, cpu)
	if err != nil {
		t.Fatal(err)
	}
	rr, err := pr.Bind(m, cpu)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(name string, v float32) {
		x, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.F32() {
			x.F32()[i] = v
		}
	}
	fill("x", 1)
	fill("w", 0.5)
	for range 2 { // the sum stays from run to run
		rw.Run("main") //nolint:errcheck // the CPU has none
	}
	rr.Run("main") //nolint:errcheck // the CPU has none
	if got := rr.Tensor(big).F32()[7]; got != 4*5*0.5 {
		t.Errorf("the other plan reads %v, want 10", got)
	}
	if n := testing.AllocsPerRun(10, func() { rw.Run("main"); rr.Run("main") }); n != 0 { //nolint:errcheck // the CPU has none
		t.Errorf("a run allocates %v times", n)
	}
	if _, err := pr.Bind(mustMemory(t, pw), cpu); err == nil {
		t.Error("a plan was bound to memory that is not for it")
	}
	if _, err := m.Tensor("y"); err == nil || err.Error() != `no plan uses a tensor named "y"` {
		t.Errorf("a tensor that is not there: %v", err)
	}
}

func mustMemory(t *testing.T, plans ...*Plan) *Memory {
	t.Helper()
	m, err := NewMemory(plans...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPlansThatDisagree(t *testing.T) {
	plan := func(n int) *Plan {
		b := NewBuilder(kernel.F32)
		x := b.State("", "x", floats(n))
		return mustCompile(t, b, b.Apply(kernel.Add{}, x, x))
	}
	_, err := NewMemory(plan(4), plan(5))
	const want = `two plans that share memory see "x" as f32[4] and f32[5]`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestPlansShareABatchOfSeveralLengths: what the host writes to the longest one's input the shorter plans see the start
// of, in the memory that the longest needs alone. A batch's input of another type is refused, and so is one that is too
// short.
func TestPlansShareABatchOfSeveralLengths(t *testing.T) {
	cpu := kernel.NewCPU(1)
	plan := func(n int, typ kernel.DType) (*Plan, *Value) {
		b := NewBuilder(kernel.F32)
		x, sum := b.Batch("x", kernel.T(typ, n)), b.State("", fmt.Sprint("sum ", n), kernel.T(typ, n))
		b.Apply(kernel.AddTo{}, sum, x)
		return mustCompile(t, b, sum), sum
	}
	short, sumOfShort := plan(40, kernel.F32)
	long, sumOfLong := plan(100, kernel.F32)
	for _, plans := range [][]*Plan{{short, long}, {long, short}} {
		need, err := Need(plans...)
		alone, _ := Need(long)
		if err != nil || need.Batch != alone.Batch {
			t.Fatalf("%v holds a batch of %d bytes, the longest alone %d: %v", plans, need.Batch, alone.Batch, err)
		}
		m := mustMemory(t, plans...)
		x, err := m.Tensor("x")
		if err != nil || x.Elems() != 100 {
			t.Fatalf("%v, %v", x.Type, err)
		}
		for i := range x.F32() {
			x.F32()[i] = float32(i)
		}
		for _, p := range []struct {
			plan *Plan
			sum  *Value
		}{{short, sumOfShort}, {long, sumOfLong}} {
			r, err := p.plan.Bind(m, cpu)
			if err != nil {
				t.Fatal(err)
			}
			r.Run("main") //nolint:errcheck // the CPU has none
			for i, got := range r.Tensor(p.sum).F32() {
				if got != float32(i) {
					t.Fatalf("element %d of %d is %v", i, p.sum.Type.Elems(), got)
				}
			}
		}
	}
	other, _ := plan(50, kernel.F64)
	if _, err := Need(long, other); err == nil ||
		err.Error() != `two plans that share memory see "x" as f32[100] and f64[50]` {
		t.Errorf("of two types: %v", err)
	}
	m := mustMemory(t, short)
	m.inputs["sum 100"] = kernel.NewTensor(sumOfLong.Type, kernel.Alloc(400))
	if _, err := long.Bind(m, cpu); err == nil ||
		err.Error() != "the plan reads x as f32[100], the memory holds f32[40]" {
		t.Errorf("in memory of a shorter plan: %v", err)
	}
}

// TestSpanIsItsMembers: a group's span lies over its members, each aligned, with zeros between.
func TestSpanIsItsMembers(t *testing.T) {
	b := NewBuilder(kernel.F32)
	members := []*Value{b.State("g", "p", floats(3)), b.State("g", "q", floats(20)), b.State("g", "r", floats(2, 2))}
	b.Segment("members")
	for _, v := range members {
		b.Apply(kernel.AddTo{}, v, v)
	}
	b.Segment("span")
	span := b.Span("g")
	b.Apply(kernel.AddTo{}, span, span)
	m, r := mustBind(t, mustCompile(t, b))
	if span.Type.Elems() != 16+32+16 {
		t.Fatalf("the span is %v", span.Type)
	}
	at := []int{0, 16, 48}
	all := r.Tensor(span).F32()
	for i, v := range members {
		x, err := m.Tensor(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		for j := range x.F32() {
			x.F32()[j] = float32(1 + i)
		}
		if &all[at[i]] != &x.F32()[0] {
			t.Errorf("%s does not lie at element %d", v.Name, at[i])
		}
	}
	r.Run("members") //nolint:errcheck // the CPU has none
	r.Run("span")    //nolint:errcheck // the CPU has none
	sum := float32(0)
	for _, x := range all {
		sum += x
	}
	if want := float32(4 * (3*1 + 20*2 + 4*3)); sum != want {
		t.Errorf("the span sums to %v, want %v", sum, want)
	}
}

// TestReaderKeepsWhatWasThere: outputs are as they were when they were asked for, whatever ran since.
func TestReaderKeepsWhatWasThere(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x, sum := b.Batch("x", floats(3)), b.State("", "sum", floats(3))
	b.Apply(kernel.AddTo{}, sum, x)
	m, run := mustBind(t, mustCompile(t, b, sum))
	in, err := m.Tensor("x")
	if err != nil {
		t.Fatal(err)
	}
	copy(in.F32(), []float32{1, 2, 3})
	r, err := run.Reader(sum)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err == nil {
		t.Error("nothing was asked for and something came")
	}
	for round := range 3 {
		for range readsAhead {
			if err := errors.Join(run.Run("main"), r.Queue()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Queue(); err == nil {
			t.Error("asked for more often than there are slots")
		}
		for i := range readsAhead {
			got, err := r.Next()
			if want := float32(2 * (round*readsAhead + i + 1)); err != nil || got[0].F32()[1] != want {
				t.Errorf("round %d, reading %d: %v, want %v, %v", round, i, got[0].F32(), want, err)
			}
		}
	}
}

// TestOffloadedStates: states of the optimizer in host memory are no part of the machine's, Movable says before how
// many bytes leave, and two steps of AdamW have the same bits.
func TestOffloadedStates(t *testing.T) {
	const n = 100
	step := func(offload bool) (Bytes, []float32) {
		b := NewBuilder(kernel.F32)
		p, g := b.Param("params", "p", floats(n)), b.State("gradients", "g", floats(n))
		m := b.State("adam m", "m", floats(n)).Movable(offload)
		v := b.State("adam v", "v", floats(n)).Movable(offload)
		b.Apply(kernel.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, p, g, m, v, b.Batch("clip", floats(2)),
			b.Batch("numbers", floats(4)))
		plan := mustCompile(t, b)
		memory := mustMemory(t, plan)
		cpu := kernel.NewCPU(1)
		run, err := plan.Bind(memory, cpu)
		if err != nil {
			t.Fatal(err)
		}
		write := func(name string, value func(i int) float32) {
			x, err := memory.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range x.F32() {
				x.F32()[i] = value(i)
			}
		}
		write("p", func(i int) float32 { return float32(i) / 7 })
		write("g", func(i int) float32 { return float32(i%11) - 5 })
		write("clip", func(int) float32 { return 0.5 })
		write("numbers", func(i int) float32 { return []float32{0.01, 0.1, 0.001, 0}[i] })
		for range 2 {
			run.Run("main") //nolint:errcheck // the CPU has none
		}
		all := []float32{}
		for _, name := range []string{"p", "m", "v"} {
			x, err := memory.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x.F32()...)
		}
		return memory.Bytes(), all
	}
	here, want := step(false)
	there, got := step(true)
	const moved = 2 * 448 // 100 float32, aligned
	if here.Movable != moved || here.Offloaded() != 0 || there.Movable != 0 || there.Offloaded() != moved ||
		here.Total()-there.Total() != moved || there.State["adam m"] != 0 || there.HostState["adam v"] != moved/2 {
		t.Errorf("%+v with the states in the machine's memory, %+v with them in the host's", here, there)
	}
	if !slices.Equal(want, got) || want[3] == 3.0/7 {
		t.Error("the states' place changes numbers")
	}
}

// TestTransientStateLiesInTheArena: a group that all its plans mark as transient lies behind their values in the arena,
// in bytes that another plan's values take; Clear zeroes it. A plan that does not mark the group keeps it apart.
func TestTransientStateLiesInTheArena(t *testing.T) {
	sampler := func(marks bool) *Plan {
		b := NewBuilder(kernel.F32)
		if marks {
			Transient(b, "cache")
		}
		x := b.Batch("x", floats(3, 5))
		b.Apply(kernel.AddTo{}, b.State("cache", "c", floats(3, 5)), b.Apply(kernel.Add{}, x, x))
		b.Apply(kernel.AddTo{}, b.State("", "kept", floats(3, 5)), x)
		return mustCompile(t, b)
	}
	trainer := NewBuilder(kernel.F32)
	big := trainer.Apply(kernel.MatMul{}, trainer.Batch("y", floats(40, 5)), trainer.Frozen("w", floats(5, 40)))
	train := mustCompile(t, trainer, big)
	own, cache := sampler(true), kernel.AlignUp(60)
	need, err := Need(own, train)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := TransientBytes(own, train)
	if err != nil || need.Arena != train.arena || taken != cache || len(need.State) != 1 ||
		need.State["other"] != cache {
		t.Errorf("beside a larger plan: %+v, want an arena of %d with a cache of %d", need, train.arena, cache)
	}
	if need, _ = Need(own); need.Arena != kernel.AlignUp(own.arena)+cache {
		t.Errorf("alone: an arena of %d, want %d and %d", need.Arena, own.arena, cache)
	}
	taken, _ = TransientBytes(own, sampler(false))
	if need, _ = Need(own, sampler(false)); taken != 0 || need.State["cache"] != cache {
		t.Errorf("with a plan that keeps the cache: %+v", need)
	}
	m, err := NewMemory(own, train)
	if err != nil {
		t.Fatal(err)
	}
	run, err := own.Bind(m, kernel.NewCPU(1))
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.arena {
		m.arena[i] = 0xff // NaN
	}
	if err := m.Clear("cache"); err != nil {
		t.Fatal(err)
	}
	x, _ := m.Tensor("x")
	for i := range x.F32() {
		x.F32()[i] = 1
	}
	for range 2 {
		if err := run.Run("main"); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := m.Tensor("c")
	for i, got := range c.F32() {
		if got != 4 {
			t.Fatalf("the cache has %v at %d after two runs that add 2", got, i)
		}
	}
}
