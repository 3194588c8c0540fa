package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tierlora/tierlora/kernel"
)

// gradientBound is the largest difference from central differences, relative to the largest element of the
// gradient.
const gradientBound = 1e-6

// samples is how many single elements of an input are differentiated; a random direction covers the rest.
const samples = 20

// gradient compares Backward, interpreted in float64, with central differences of sum(weight * output 0).
func (c *checker) gradient() {
	k, ok := c.at(kernel.F64).(kernel.Differentiable)
	if !ok {
		return
	}
	back := k.Grads()
	if len(back.Grads) != len(c.In) {
		c.fail("gradient", "%d gradients for %d inputs", len(back.Grads), len(c.In))
		return
	}
	f, err := bind(k, 1, c.inputs(kernel.F64), nil, poison)
	if err != nil {
		c.fail("gradient", "%w", err)
		return
	}
	f.run()
	upstream := newBuffer(f.out[0].Type)
	r := rand.New(rand.NewPCG(c.seed(-1), 1))
	_, terminal := k.(kernel.Terminal)
	for i := range upstream.Elems() {
		upstream.set(i, 1)
		if !terminal {
			upstream.set(i, r.NormFloat64())
		}
	}
	in, out := clones(f.in), clones(f.out)
	objective := func() float64 {
		f.run()
		sum := 0.0
		for i, w := range upstream.all() {
			sum += w * f.out[0].get(i)
		}
		return sum
	}
	for i, ref := range back.Grads {
		if ref.Kind() == kernel.RefNone || in[i].DType != kernel.F64 {
			continue
		}
		g, err := evaluate(back, ref, in, out, upstream)
		if err != nil {
			c.fail("gradient", "input %d: %w", i, err)
			continue
		}
		if !g.Type.Equal(in[i].Type) {
			c.fail("gradient", "input %d is %v, its gradient %v", i, in[i].Type, g.Type)
			continue
		}
		c.compareGradient(i, f.in[i], g.all(), objective, r)
	}
}

func (c *checker) compareGradient(i int, x *buffer, g []float64, objective func() float64, r *rand.Rand) {
	step := c.Step
	if step == 0 {
		step = 1e-3
	}
	start := x.all()
	// along is the derivative in a direction, to fourth order in the step.
	along := func(direction func(j int) float64) float64 {
		at := func(h float64) float64 {
			for j, v := range start {
				x.set(j, v+h*direction(j))
			}
			return objective()
		}
		d := (8*(at(step)-at(-step)) - (at(2*step) - at(-2*step))) / (12 * step)
		at(0)
		return d
	}
	scale := 0.0
	for _, v := range g {
		scale = math.Max(scale, math.Abs(v))
	}
	stride := max(1, len(g)/samples)
	worst := 0.0
	for j := r.IntN(stride); j < len(g); j += stride {
		want := along(func(k int) float64 {
			if k == j {
				return 1
			}
			return 0
		})
		bound := math.Max(scale, math.Abs(want))
		if d := math.Abs(g[j] - want); !(d <= gradientBound*bound+1e-10) {
			c.fail("gradient", "input %d, element %d is %v, central differences say %v", i, j, g[j], want)
			return
		} else if bound > 0 {
			worst = math.Max(worst, d/bound)
		}
	}
	direction := make([]float64, len(g))
	got, size := 0.0, 0.0
	for j, v := range g {
		direction[j] = r.NormFloat64()
		got += v * direction[j]
		size += v * v
	}
	want := along(func(j int) float64 { return direction[j] })
	if d := math.Abs(got - want); !(d <= gradientBound*math.Max(math.Sqrt(size), math.Abs(want))+1e-10) {
		c.fail("gradient", "input %d, in a random direction is %v, central differences say %v", i, got, want)
	}
	c.measured += fmt.Sprintf("gradient of input %d within %.1e; ", i, worst)
}

// evaluate interprets a Backward as the graph does: the calls that the reference depends on, in order.
func evaluate(back kernel.Backward, want kernel.Ref, in, out []*buffer, upstream *buffer) (*buffer, error) {
	done := make([][]*buffer, len(back.Calls))
	var resolve func(r kernel.Ref) (*buffer, error)
	resolve = func(r kernel.Ref) (*buffer, error) {
		switch r.Kind() {
		case kernel.RefIn:
			return in[r.Index], nil
		case kernel.RefOut:
			return out[r.Index], nil
		case kernel.RefUpstream:
			return upstream, nil
		case kernel.RefCall:
			if done[r.Call] == nil {
				call := back.Calls[r.Call]
				args := make([]*buffer, len(call.In))
				for j, a := range call.In {
					if a.Kind() == kernel.RefCall && a.Call >= r.Call {
						return nil, fmt.Errorf("call %d reads call %d, which comes later", r.Call, a.Call)
					}
					x, err := resolve(a)
					if err != nil {
						return nil, err
					}
					args[j] = x.clone()
				}
				var err error
				if done[r.Call], err = result(call.Kernel, 1, args, poison); err != nil {
					return nil, fmt.Errorf("call %d, %s: %w", r.Call, call.Kernel.Name(), err)
				}
			}
			return done[r.Call][r.Index], nil
		}
		return nil, fmt.Errorf("a reference to nothing is read")
	}
	return resolve(want)
}

func clones(b []*buffer) []*buffer {
	c := make([]*buffer, len(b))
	for i, x := range b {
		c[i] = x.clone()
	}
	return c
}
