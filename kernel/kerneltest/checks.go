package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// sentinels runs the kernel between guards, twice with different memory beneath its outputs.
func (c *checker) sentinels() {
	for _, float := range floats {
		k := c.at(float)
		before := c.inputs(float)
		b, err := bind(k, 2, clones(before), nil, poison)
		if err != nil {
			c.fail("shape", "%w", err)
			return
		}
		b.run()
		may := overwritten(k)
		for i, x := range b.in {
			if !x.guarded() {
				c.fail("sentinel", "memory outside input %d is written", i)
			}
			if !may[i] && !x.equal(before[i]) {
				c.fail("sentinel", "input %d is changed: %s", i, x.differ(before[i]))
			}
		}
		for i, x := range b.out {
			if !x.guarded() {
				c.fail("sentinel", "memory outside output %d is written", i)
			}
		}
		if b.scratch != nil && !b.scratch.guarded() {
			c.fail("sentinel", "memory outside the scratch of %v is written", b.scratch.Type)
		}
		again, err := result(k, 2, clones(before), otherPoison)
		if err != nil {
			c.fail("shape", "%w", err)
			return
		}
		for i, x := range b.out {
			if !x.equal(again[i]) {
				c.fail("unwritten", "output %d depends on what was in memory: %s", i, x.differ(again[i]))
			}
		}
	}
}

// precision compares the float32 result with the float64 result.
func (c *checker) precision() {
	got, err := result(c.at(kernel.F32), 1, c.inputs(kernel.F32), poison)
	if err != nil {
		c.fail("precision", "%w", err)
		return
	}
	want, err := result(c.at(kernel.F64), 1, c.inputs(kernel.F64), poison)
	if err != nil {
		c.fail("precision", "%w", err)
		return
	}
	for i := range got {
		rel, at := difference(got[i].all(), want[i].all())
		c.measured += fmt.Sprintf("output %d in float32 within %.1e; ", i, rel)
		if !(rel <= c.Bound) {
			c.fail("precision",
				"output %d, element %d is %v in float32, %v in float64: %.2e of the largest, allowed %.2e",
				i, at, got[i].get(at), want[i].get(at), rel, c.Bound)
		}
	}
}

// difference returns the largest difference relative to the largest finite magnitude, and where it is; NaN and
// infinities must agree.
func difference(got, want []float64) (rel float64, at int) {
	scale, worst := 0.0, 0.0
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			if !math.IsInf(w, 0) && !math.IsNaN(w) {
				scale = math.Max(scale, math.Abs(w))
			}
			continue
		}
		d := math.Abs(g - w)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return math.Inf(1), i
		}
		scale = math.Max(scale, math.Abs(w))
		if d > worst {
			worst, at = d, i
		}
	}
	if worst == 0 {
		return 0, at
	}
	return worst / scale, at
}

// repeat demands the same bits from a second run of the same binding and from every number of workers.
func (c *checker) repeat() {
	for _, float := range floats {
		k := c.at(float)
		first, err := result(k, 1, c.inputs(float), poison)
		if err != nil {
			c.fail("repeat", "%w", err)
			return
		}
		for workers := 1; workers <= maxWorkers; workers++ {
			in := c.inputs(float)
			b, err := bind(k, workers, clones(in), nil, poison)
			if err != nil {
				c.fail("repeat", "%w", err)
				return
			}
			for run := 1; run <= 3; run++ {
				for i, x := range in {
					copy(b.in[i].Bytes(), x.Bytes())
				}
				b.run()
				for i, x := range b.out {
					if !x.equal(first[i]) {
						c.fail("repeat", "%v, run %d with %d workers: output %d: %s", float, run, workers, i,
							x.differ(first[i]))
						return
					}
				}
			}
		}
	}
}

// inPlace tries every set of aliases that a plan may choose.
func (c *checker) inPlace() {
	p, ok := c.Kernel.(kernel.InPlace)
	if !ok {
		return
	}
	aliases := p.InPlace()
	for _, float := range floats {
		k := c.at(float)
		plain, err := result(k, 1, c.inputs(float), poison)
		if err != nil {
			c.fail("in place", "%w", err)
			return
		}
	sets:
		for set := 1; set < 1<<len(aliases); set++ {
			share, taken := map[int]int{}, map[int]bool{}
			for i, a := range aliases {
				if set>>i&1 == 0 {
					continue
				}
				if _, twice := share[a.Out]; twice || taken[a.In] {
					continue sets
				}
				share[a.Out], taken[a.In] = a.In, true
			}
			in := c.inputs(float)
			b, err := bind(k, 2, clones(in), share, poison)
			if err != nil {
				c.fail("in place", "outputs on inputs %v: %w", share, err)
				return
			}
			b.run()
			for i, x := range b.out {
				if !x.equal(plain[i]) {
					c.fail("in place", "outputs on inputs %v: output %d: %s", share, i, x.differ(plain[i]))
				}
			}
			for i, x := range b.in {
				if !taken[i] && !overwritten(k)[i] && !x.equal(in[i]) {
					c.fail("in place", "outputs on inputs %v: input %d is changed", share, i)
				}
			}
		}
	}
}

// accumulate compares the accumulating form with the kernel and a sum, and then runs the suite on it.
func (c *checker) accumulate() {
	a, ok := c.Kernel.(kernel.Accumulating)
	if !ok {
		return
	}
	variant, ok := a.Accumulate()
	if !ok {
		return
	}
	onto := len(c.In)
	found := false
	for _, o := range overwrites(variant) {
		found = found || o == kernel.Alias{Out: 0, In: onto}
	}
	if !found {
		c.fail("accumulate", "the accumulating form does not overwrite input %d", onto)
		return
	}
	out, err := c.Kernel.Shape(c.types(kernel.F32))
	if err != nil || len(out) != 1 {
		c.fail("accumulate", "a kernel with an accumulating form has one output, not %v", out)
		return
	}
	whole := Case{Name: c.Name + " accumulate", Kernel: variant, Bound: c.Bound, AnyType: c.AnyType}
	if c.At != nil {
		whole.At = func(float kernel.DType) kernel.Kernel {
			form, _ := c.At(float).(kernel.Accumulating).Accumulate()
			return form
		}
	}
	whole.In = append(append(whole.In, c.In...), Normal(out[0].Shape...))
	v := &checker{Case: whole}
	for _, float := range floats {
		in := v.inputs(float)
		addend := in[onto].clone()
		plain, err := result(c.at(float), 1, clones(in[:onto]), poison)
		if err != nil {
			c.fail("accumulate", "%w", err)
			return
		}
		sum, err := result(v.at(float), 1, in, poison)
		if err != nil {
			c.fail("accumulate", "%w", err)
			return
		}
		want := plain[0].all()
		for i := range want {
			want[i] += addend.get(i)
		}
		bound := math.Max(c.Bound, 1e-7)
		if float == kernel.F64 {
			bound = 1e-14 * math.Max(1, c.Bound/1e-7)
		}
		if rel, at := difference(sum[0].all(), want); !(rel <= bound) {
			c.fail("accumulate", "%v: element %d is %v, the kernel and a sum give %v", float, at, sum[0].get(at),
				want[at])
		}
	}
	if len(c.faults) == 0 {
		faults, _ := check(whole)
		for _, f := range faults {
			c.fail(f.kind, "accumulating form: %w", f.err)
		}
	}
}

// allocation counts what a run allocates, alone and with other threads.
func (c *checker) allocation() {
	for _, workers := range []int{1, 2} {
		b, err := bind(c.at(kernel.F32), workers, c.inputs(kernel.F32), nil, poison)
		if err != nil {
			c.fail("allocation", "%w", err)
			return
		}
		if n := testing.AllocsPerRun(5, b.run); n > 0 {
			c.fail("allocation", "a run with %d workers allocates %v times", workers, n)
		}
	}
}

// cost checks what the kernel says of itself; kernel_test lists those that say nothing.
func (c *checker) cost() {
	k, ok := c.Kernel.(kernel.Costed)
	if !ok {
		return
	}
	in := c.types(kernel.F32)
	out, err := c.Kernel.Shape(in)
	if err != nil {
		c.fail("cost", "%w", err)
		return
	}
	var most, elements int64
	for _, t := range append(append([]kernel.Type(nil), in...), out...) {
		most, elements = most+t.Bytes(), elements+int64(t.Elems())
	}
	if got := k.Cost(in, out, kernel.Content{}); got.FLOPs < 0 || got.Bytes < 0 || got.Bytes > most || got.Bytes == 0 &&
		elements > 0 && out[0].Elems() > 0 {
		c.fail("cost", "it says %+v; inputs and outputs have %d bytes", got, most)
	}
}
