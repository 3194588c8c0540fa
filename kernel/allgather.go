package kernel

import "fmt"

// AllGather makes tensors whole that lie in slices of equal length, one on each rank (FSDP's and ZeRO stage 3's all-gather).
//
//	slice u8[S] -> parts, of any types
//	the slices of rank 0, 1, ... one after the other are a text of World x S bytes; part i is that from byte At[i] on
//
// A plan lays the outputs out as the text has them, so that a GPU needs no copy of what it receives.
type AllGather struct {
	World int
	Parts []Type
	At    []int64 // bytes, ascending; parts do not overlap
}

func (AllGather) Name() string { return "allgather" }

func (k AllGather) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "u8[S]"); err != nil {
		return nil, err
	}
	if k.World < 1 || len(k.Parts) == 0 || len(k.At) != len(k.Parts) {
		return nil, fmt.Errorf("%d ranks, %d parts at %d places", k.World, len(k.Parts), len(k.At))
	}
	var end int64
	for i, t := range k.Parts {
		if k.At[i] < end {
			return nil, fmt.Errorf("part %d begins at byte %d, the one before it ends at %d", i, k.At[i], end)
		}
		end = k.At[i] + t.Bytes()
	}
	if all := int64(k.World) * in[0].Bytes(); end > all {
		return nil, fmt.Errorf("the parts end at byte %d, %d slices of %d bytes at %d", end, k.World, in[0].Bytes(), all)
	}
	return k.Parts, nil
}

func (k AllGather) CPU(c *CPU, in, out []Tensor) func() {
	mine := in[0].Bytes()
	alone, size := [][]byte{mine}, int64(len(mine))
	return func() {
		all, ok := c.gather("slices of the base model", alone, k.World)
		if !ok {
			return
		}
		for i, t := range out {
			at := k.At[i]
			for to := t.Bytes(); len(to) > 0; {
				n := copy(to, all[at/size][at%size:])
				to, at = to[n:], at+int64(n)
			}
		}
	}
}

// Cost is of the slice that is read and all that is written, most of it over the links.
func (k AllGather) Cost(in, _ []Type, _ Content) Cost {
	return Cost{Bytes: int64(k.World+1) * in[0].Bytes()}
}

func (k AllGather) Stored([]DType) (want, out []DType) {
	for _, t := range k.Parts {
		out = append(out, t.DType)
	}
	return []DType{U8}, out
}
