//go:build gpu

package graph

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// keeps returns what this rank keeps of a value that is held in slices: [from, to) of its numbers as they are stored,
// and where they lie. from is to where it keeps none.
func (s *deviceStore) keeps(sl sliced) (from, to int, at gpu.Ptr, err error) {
	slice, err := s.device(sl.unit)
	if err != nil {
		return 0, 0, 0, err
	}
	first, last, place := sl.part(s.rank, slice.Bytes())
	size := int64(sl.as.Size()) // slices end at multiples of every size
	return int(first / size), int(last / size), slice.Ptr.Add(place), nil
}

// sendPart sends this rank's part of a whole value.
func (s *deviceStore) sendPart(sl sliced, t kernel.Tensor) error {
	from, to, at, err := s.keeps(sl)
	if err != nil || from == to {
		return err
	}
	part := kernel.T(t.DType, to-from)
	return send(kernel.DeviceTensor{Type: kernel.T(sl.as, to-from), Ptr: at},
		kernel.NewTensor(part, t.Bytes()[int64(from)*int64(t.DType.Size()):]))
}

// parts are what a rank keeps of a weight that is held in slices. Numbers are kept as they come; what is packed is
// packed whole, in the arena, and the rank's bytes of it are copied to their place.
type parts struct {
	numbers kept // of a weight that is stored as numbers
	// where the whole parts are packed; those that are not held in slices lie in their place
	packed  []kernel.DeviceTensor
	kept    []kept // of each of packed, in its numbers
	sliced  []bool
	staging int64 // bytes of the arena: for packing and for the whole parts
}

// kept are numbers [from, to) of a tensor, and where they lie.
type kept struct {
	from, to int
	at       gpu.Ptr
}

func (s *deviceStore) hasSliceOf(names []string) bool {
	for _, name := range names {
		if _, ok := s.layout.sliced[name]; ok {
			return true
		}
	}
	return false
}

// acceptParts returns accept for a weight that is held in slices.
func (l *loading) acceptParts(a *transfer) error {
	if a.Members > 1 {
		return errors.ErrUnsupported
	}
	p := &parts{packed: make([]kernel.DeviceTensor, len(a.Into)), kept: make([]kept, len(a.Into)),
		sliced: make([]bool, len(a.Into))}
	for i, name := range a.Into {
		sl, ok := l.store.layout.sliced[name]
		if !ok {
			var err error
			if p.packed[i], err = l.store.device(name); err != nil {
				return errUnread
			}
			continue
		}
		from, to, at, err := l.store.keeps(sl)
		if err != nil {
			return err
		}
		p.packed[i].Type, p.kept[i], p.sliced[i] = kernel.Type{DType: sl.as, Shape: sl.typ.Shape}, kept{from, to, at},
			true
	}
	a.parts = p
	if a.Packed == nil {
		p.numbers = p.kept[0]
		a.to = kernel.DeviceTensor{Type: p.packed[0].Type, Ptr: p.numbers.at}
		if a.DType == a.to.DType || kernel.Converts(a.DType, a.to.DType) {
			return nil
		}
		return errors.ErrUnsupported
	}
	k, ok := a.Packed.(kernel.PacksOnGPU)
	if !ok {
		return errors.ErrUnsupported
	}
	pack, ok := k.PackGPU(l.store.g, p.packed, a.DType, a.Dequantised)
	if !ok {
		return errors.ErrUnsupported
	}
	p.staging = (pack.Staging + gpu.Align - 1) &^ (gpu.Align - 1)
	for i, t := range p.packed {
		if p.sliced[i] {
			p.staging += kernel.AlignUp(t.Bytes())
		}
	}
	if p.staging > l.halfBytes {
		return errors.ErrUnsupported
	}
	a.pack = &pack
	return nil
}

// place gives the whole parts their place in the arena, behind what packing works in.
func (p *parts) place(g *kernel.GPU, a *transfer) {
	at := a.staging.Add((a.pack.Staging + gpu.Align - 1) &^ (gpu.Align - 1))
	for i := range p.packed {
		if p.sliced[i] {
			p.packed[i].Ptr = at
			at = at.Add(kernel.AlignUp(p.packed[i].Bytes()))
		}
	}
	pack, _ := a.Packed.(kernel.PacksOnGPU).PackGPU(g, p.packed, a.DType, a.Dequantised) // as it was accepted
	a.pack = &pack
}

// keep copies the rank's part of what was packed.
func (p *parts) keep(s *gpu.Stream) error {
	for i, k := range p.kept {
		if !p.sliced[i] || k.from == k.to {
			continue
		}
		size := int64(p.packed[i].DType.Size())
		if err := s.Copy(k.at, p.packed[i].Ptr.Add(int64(k.from)*size), int64(k.to-k.from)*size); err != nil {
			return err
		}
	}
	return nil
}
