package kernel

import "fmt"

// SortByExpert puts the tokens' slots, TopK a token, in the order of their experts; slots of one expert stay in the order
// of the tokens. Slots of padding are with no expert: behind those of the last there are as many sorted rows without a slot.
//
//	experts i32[M,TopK], (real i32[M], 0 where a token is padding, if Real) -> rows i32[M,TopK], source i32[M*TopK], starts i32[Experts+1]
//
// rows is the sorted row of each slot, -1 of padding's, source the slot of each sorted row (token*TopK + place), -1 of one
// without, and expert e has the sorted rows starts[e]..starts[e+1]. An expert outside [0,Experts) counts as the last.
type SortByExpert struct {
	Experts int
	Real    bool
}

func (SortByExpert) Name() string { return "moe_sort" }

func (o SortByExpert) Shape(in []Type) ([]Type, error) {
	want := []string{"i32[M,K]"}
	if o.Real {
		want = append(want, "i32[M]")
	}
	d, err := Want(in, want...)
	if err != nil {
		return nil, err
	}
	if o.Experts < 1 || o.Experts > MaxExperts {
		return nil, fmt.Errorf("attribute Experts is %d, want 1 to %d", o.Experts, MaxExperts)
	}
	return []Type{in[0], T(I32, d.At('M')*d.At('K')), T(I32, o.Experts+1)}, nil
}

// MaxExperts bounds the experts of a layer.
const MaxExperts = 1024

func (o SortByExpert) CPU(_ *CPU, in, out []Tensor) func() {
	experts, rows, source, starts := in[0].I32(), out[0].I32(), out[1].I32(), out[2].I32()
	padding := func(int) bool { return false }
	if o.Real {
		real, k := in[1].I32(), in[0].Shape[1]
		padding = func(slot int) bool { return real[slot/k] == 0 }
	}
	of := func(slot int) int {
		if e := int(experts[slot]); e >= 0 && e < o.Experts {
			return e
		}
		return o.Experts - 1
	}
	return func() {
		clear(starts)
		for i := range experts {
			if !padding(i) {
				starts[of(i)+1]++
			}
		}
		for e := range o.Experts {
			starts[e+1] += starts[e]
		}
		for i := range source {
			source[i] = -1
		}
		for i := range experts { // starts[e] is where e's next slot goes, and at the end where e+1 begins
			if padding(i) {
				rows[i] = -1
				continue
			}
			e := of(i)
			rows[i], source[starts[e]] = starts[e], int32(i)
			starts[e]++
		}
		copy(starts[1:], starts[:o.Experts])
		starts[0] = 0
	}
}

func (SortByExpert) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }
