package graph

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// recorded keeps what ranges a run opened and closed.
type recorded struct{ names, open []string }

func (r *recorded) Push(name string) { r.names, r.open = append(r.names, name), append(r.open, name) }
func (r *recorded) Pop()             { r.open = r.open[:len(r.open)-1] }

// TestRangesCostNothingUnasked: without the variable nothing is called and nothing allocated, numbers in names
// included.
func TestRangesCostNothingUnasked(t *testing.T) {
	if ranges != nil {
		t.Fatal("ranges are on in a test")
	}
	n := 0
	if a := testing.AllocsPerRun(1000, func() {
		n++
		step := StartRangeNumber("step", n)
		StartRange("data").End()
		step.End()
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
	r := &recorded{}
	before := StartRange("begun before they were on")
	ranges = r
	defer func() { ranges = nil }()
	before.End()
	step := StartRangeNumber("step", 7)
	StartRange("data").End()
	step.End()
	if len(r.names) != 2 || r.names[0] != "step 7" || r.names[1] != "data" || len(r.open) != 0 {
		t.Errorf("ranges %q, open %q", r.names, r.open)
	}
}

func BenchmarkRangesUnasked(b *testing.B) {
	for b.Loop() {
		StartRangeNumber("step", 7).End()
	}
}

func TestRangesVariable(t *testing.T) {
	for value, want := range map[string][2]bool{"": {}, "0": {}, "1": {true, false}, "calls": {true, true}} {
		t.Setenv(RangesVariable, value)
		if asked, calls, err := RangesAsked(); asked != want[0] || calls != want[1] || err != nil {
			t.Errorf("%q: %v, %v, %v", value, asked, calls, err)
		}
	}
	t.Setenv(RangesVariable, "yes")
	if _, _, err := RangesAsked(); err == nil {
		t.Error("yes is accepted")
	}
}

// TestTimeCalls: every call of a segment is shown once, in order, with its place and cost, and the numbers are those of
// Run.
func TestTimeCalls(t *testing.T) {
	b := NewBuilder(kernel.F32)
	x := b.Batch("x", kernel.T(kernel.F32, 3, 4))
	w := b.Param("p", "w", kernel.T(kernel.F32, 5, 4))
	var y *Value
	b.In("model.layers.2", func() { b.In("mlp", func() { y = b.Apply(kernel.MatMul{TransB: true}, x, w) }) })
	labels, scale := b.Batch("labels", kernel.T(kernel.I32, 3)), b.Batch("scale", kernel.T(kernel.F32, 1))
	loss := b.Apply(kernel.LinearCrossEntropy{Chunk: 3, Grad: true}, y, b.Frozen("head", kernel.T(kernel.F32, 6, 5)),
		labels, scale)
	grad := b.Grad(loss, w)[0]
	on := NewCPU(1)
	plan, err := on.Compile(b, loss, grad)
	if err != nil {
		t.Fatal(err)
	}
	store, err := on.NewStore(plan)
	if err != nil {
		t.Fatal(err)
	}
	run, err := on.Bind(plan, store)
	if err != nil {
		t.Fatal(err)
	}
	var calls []CallTime
	err = run.(CallTimer).TimeCalls(kernel.Content{}, []string{"main"}, func(c CallTime) { calls = append(calls, c) })
	if err != nil || len(calls) != plan.Calls()["main"] {
		t.Fatalf("%d of %d calls, %v", len(calls), plan.Calls()["main"], err)
	}
	first, last := calls[0], calls[len(calls)-1]
	if first.Line() != "matmul f32[3,5]" || first.Layer() != "model.layers.2" || first.Scope != "model.layers.2.mlp" ||
		first.Pass != "forward" ||
		first.Stream != StreamCompute || !first.Costed || first.Cost.FLOPs != 2*3*4*5 {
		t.Errorf("first %+v", first)
	}
	if last.Line() != "matmul f32[5,4]" || last.Scope != first.Scope || last.Pass != "backward" {
		t.Errorf("last %+v", last)
	}
	for i, c := range calls[1:] {
		if c.Start < calls[i].Start+calls[i].Took {
			t.Errorf("call %d begins at %v, the one before it ends at %v", i+1, c.Start, calls[i].Start+calls[i].Took)
		}
	}
	ceilings := Ceilings{Copy: 1e9, GEMM: 1e9}
	if got := ceilings.Least(kernel.Cost{Bytes: 500, FLOPs: 2000}); got != 2e-6 {
		t.Errorf("least %v s", got)
	}
}
