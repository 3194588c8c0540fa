package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// checkGrad refuses what would give a wrong gradient without a word: a loss that depends on a parameter
// through a kernel, an input or an output that no gradient passes.
func (b *Builder) checkGrad(loss *Value, params []*Value) error {
	if b.graded {
		return errors.New("differentiate: a computation is differentiated once")
	}
	if loss == nil || slices.Contains(params, nil) {
		return errors.New("differentiate: the loss or a parameter is missing")
	}
	if len(loss.Type.Shape) != 0 {
		return fmt.Errorf("differentiate: the loss is %v, not a scalar", loss.Type)
	}
	seen := map[*Value]bool{}
	var visit func(v *Value) error
	visit = func(v *Value) error {
		if seen[v] || !v.depends {
			return nil
		}
		seen[v] = true
		if v.call == nil {
			return nil
		}
		if v.out > 0 {
			return fmt.Errorf("differentiate: the loss depends on parameters through output %d of %v, which passes no gradient", v.out, v.call)
		}
		want := (&op{b: b, call: v.call}).DiffWRT(len(v.call.in))
		for i, x := range v.call.in {
			if err := visit(x); err != nil {
				return err
			}
			if x.depends && !want[i] {
				return fmt.Errorf("differentiate: %v passes no gradient to its input %d, which depends on parameters",
					v.call, i)
			}
		}
		return nil
	}
	if err := visit(loss); err != nil {
		return err
	}
	for _, p := range params {
		if !p.depends || p.call != nil {
			return fmt.Errorf("differentiate: %s is no parameter", p.Name)
		}
		if !seen[p] {
			return fmt.Errorf("differentiate: the loss does not depend on %s", p.Name)
		}
	}
	return nil
}

func (b *Builder) checkCompile(outputs []*Value) error {
	if b.err != nil {
		return nil
	}
	if b.compiled {
		return errors.New("a computation is compiled once")
	}
	if slices.Contains(outputs, nil) {
		return errors.New("an output is missing")
	}
	for _, v := range b.inputs {
		if v.span && v.part == "" && v.Type.Bytes() != b.groupBytes(v.group) {
			return fmt.Errorf("the span of %q was taken before all its members were declared", v.group)
		}
	}
	return nil
}

// groupBytes returns what the members of a group take.
func (b *Builder) groupBytes(group string) int64 {
	var n int64
	for _, v := range b.inputs {
		if v.kind == State && v.group == group && !v.span {
			n += kernel.AlignUp(v.Type.Bytes())
		}
	}
	return n
}
