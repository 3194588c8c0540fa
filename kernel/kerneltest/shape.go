package kerneltest

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

func (c *checker) shape() {
	if c.Kernel.Name() == "" {
		c.fail("shape", "the kernel has no name")
	}
	for _, float := range floats {
		k, types := c.at(float), c.types(float)
		if _, err := k.Shape(types); err != nil {
			c.fail("shape", "%v is refused: %w", types, err)
			return
		}
		if _, err := k.Shape(types[:len(types)-1]); err == nil {
			c.fail("shape", "%d inputs are accepted", len(types)-1)
		}
		if _, err := k.Shape(append(slices.Clone(types), types[len(types)-1])); err == nil {
			c.fail("shape", "%d inputs are accepted", len(types)+1)
		}
		for i := range types {
			c.wrongElements(k, types, i)
			c.wrongDimensions(k, types, i)
		}
	}
	for what, types := range c.Rejects {
		if _, err := c.Kernel.Shape(types); err == nil {
			c.fail("shape", "%s: %v is accepted", what, types)
		}
	}
}

func (c *checker) wrongElements(k kernel.Kernel, types []kernel.Type, i int) {
	refused := false
	for d := kernel.F32; d <= kernel.U8; d++ {
		if d == types[i].DType {
			continue
		}
		refused = c.tryTypes(k, types, i, kernel.T(d, types[i].Shape...)) || refused
	}
	if !refused && !c.AnyType {
		c.fail("shape", "input %d is accepted in every element type", i)
	}
}

func (c *checker) wrongDimensions(k kernel.Kernel, types []kernel.Type, i int) {
	s := types[i].Shape
	c.tryTypes(k, types, i, kernel.T(types[i].DType, append([]int{1}, s...)...))
	for d := range s {
		for _, by := range []int{-1, 1} {
			if s[d]+by < 1 {
				continue
			}
			longer := slices.Clone(s)
			longer[d] += by
			c.tryTypes(k, types, i, kernel.T(types[i].DType, longer...))
		}
	}
	if len(s) > 0 {
		c.tryTypes(k, types, i, kernel.T(types[i].DType, s[1:]...))
	}
}

// tryTypes changes the type of input i. Where Shape accepts it, the body must run on zeros within its
// memory; the result tells whether it was refused.
func (c *checker) tryTypes(k kernel.Kernel, types []kernel.Type, i int, t kernel.Type) bool {
	types = slices.Clone(types)
	types[i] = t
	if _, err := k.Shape(types); err != nil {
		return true
	}
	in := make([]*buffer, len(types))
	for j, t := range types {
		in[j] = newBuffer(t)
	}
	if p := recovered(func() {
		b, err := bind(k, 1, in, nil, poison)
		if err != nil {
			c.fail("shape", "%v: %w", types, err)
			return
		}
		b.run()
		for _, x := range append(slices.Clone(in), b.out...) {
			if !x.guarded() {
				c.fail("sentinel", "%v is accepted, and memory outside %v is written", types, x.Type)
			}
		}
		if b.scratch != nil && !b.scratch.guarded() {
			c.fail("sentinel", "%v is accepted, and memory outside the scratch of %v is written", types, b.scratch.Type)
		}
	}); p != nil {
		c.fail("shape", "%v is accepted, and the body panics: %v", types, p)
	}
	return false
}
