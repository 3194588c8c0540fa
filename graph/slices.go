package graph

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// sliced is a frozen value that a rank has a slice of.
type sliced struct {
	unit string // the name of the slice of its unit
	at   int64  // its first byte among those of all ranks
	typ  kernel.Type
	as   kernel.DType // stored
}

// bytes that the value takes as it is stored.
func (s sliced) bytes() int64 { return kernel.Type{DType: s.as, Shape: s.typ.Shape}.Bytes() }

// slicesOf lists the values that plans hold in slices. All of them must have one idea of what is where.
func slicesOf(plans []*Plan) (all map[string]sliced, ranks int, err error) {
	all = map[string]sliced{}
	for i, p := range plans {
		if i > 0 && p.ranks != plans[0].ranks {
			return nil, 0, fmt.Errorf("two plans that share memory hold frozen values in slices of %d and of %d ranks",
				plans[0].ranks, p.ranks)
		}
		ranks = p.ranks
		for _, u := range p.sharded {
			for k, v := range u.values {
				s := sliced{u.slice.Name, u.kernel.At[k], v.Type, u.kernel.Parts[k].DType}
				if was, ok := all[v.Name]; ok && (was.unit != s.unit || was.at != s.at || was.as != s.as ||
					!was.typ.Equal(s.typ)) {
					return nil, 0, fmt.Errorf("two plans that share memory have %s at bytes %d and %d of %s", v.Name,
						was.at, s.at, s.unit)
				}
				all[v.Name] = s
			}
		}
	}
	return all, ranks, nil
}

// rankAmong returns the rank if it is one of those that hold slices, of whom there are so many; 0 where each has all.
func rankAmong(ranks, rank, world int) (int, error) {
	switch {
	case ranks < 2:
		return 0, nil
	case world != ranks:
		return 0, fmt.Errorf("frozen values are held in slices of %d ranks, which the machine has not joined", ranks)
	}
	return rank, nil
}

// part returns what a rank keeps of a value: [from, to) of its bytes, which lie at a place of the rank's slice.
func (s sliced) part(rank int, slice int64) (from, to, at int64) {
	first := int64(rank) * slice
	from, to = max(first-s.at, 0), min(first+slice-s.at, s.bytes())
	if from >= to {
		return 0, 0, 0
	}
	return from, to, s.at + from - first
}

// staged returns a whole value on its way into a slice, or the error of one that went there.
func (m *Memory) staged(name string) (kernel.Tensor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.staging[name]; ok {
		return t, nil
	}
	if m.kept[name] {
		return kernel.Tensor{}, errSliced(name)
	}
	t := kernel.NewTensor(m.sliced[name].typ, kernel.Alloc(m.sliced[name].typ.Bytes()))
	m.staging[name] = t
	return t, nil
}

func errSliced(name string) error {
	return fmt.Errorf("%s is held in slices, of which this rank has one", name)
}

// Put keeps the rank's part of values that are held in slices; the other tensors are the memory.
func (m *Memory) Put(names ...string) error {
	for _, name := range names {
		s, ok := m.sliced[name]
		if !ok {
			continue
		}
		m.mu.Lock()
		whole, there := m.staging[name]
		delete(m.staging, name)
		m.kept[name] = there || m.kept[name]
		m.mu.Unlock()
		if !there {
			return fmt.Errorf("nothing was written to %s", name)
		}
		slice := m.inputs[s.unit].Bytes()
		from, to, at := s.part(m.rank, int64(len(slice)))
		copy(slice[at:], whole.Bytes()[from:to])
	}
	return nil
}

// Sliced returns the names of frozen values of which ranks have a slice, sorted.
func (m *Memory) Sliced() []string {
	var names []string
	for name := range m.sliced {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
