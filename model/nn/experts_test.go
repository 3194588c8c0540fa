package nn_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// numbered is a checkpoint in which the numbers of every tensor follow from its name.
type numbered struct{}

func (numbered) Float32s(name string, from int, dst []float32) error {
	h := fnv.New32a()
	h.Write([]byte(name)) //nolint:errcheck // a hash takes all
	for i := range dst {
		dst[i] = float32(int(h.Sum32()>>8)*(from+i+1)%2003)/1000 - 1
	}
	return nil
}

// putting counts how often a store is told that a tensor is written.
type putting struct {
	*graph.Memory
	mu  *sync.Mutex
	put map[string]int
}

func (p putting) Put(names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.put[name]++
	}
	return p.Memory.Put(names...)
}

// TestExpertsAreStacked: each expert's matrix lies in the stack as it is stored alone, to the byte, and the stack is
// sent once every time that it is loaded.
func TestExpertsAreStacked(t *testing.T) {
	const experts, in, out = 5, 24, 20
	plain, nested := quant.Default(), quant.Default()
	plain.DoubleQuant = false
	for what, scheme := range map[string]*quant.Config{"floats": nil, "nf4": &plain, "nested nf4": &nested} {
		n := nn.New(nn.Options{Scheme: scheme})
		x, starts := n.Batch("x", kernel.T(kernel.F32, 6, in)), n.Batch("starts", kernel.T(kernel.I32, experts+1))
		m := compile(t, n, nn.ExpertLayers(n, "experts", "up_proj", experts, in, out).Apply(x,
			nn.Sorted{Starts: starts}))
		store := putting{m, new(sync.Mutex), map[string]int{}}
		for range 2 {
			if err := n.Load(context.Background(), numbered{}, store, 3); err != nil {
				t.Fatal(err)
			}
		}
		for name, times := range store.put {
			if times != 2 {
				t.Errorf("%s: %s is sent %d times in two loads", what, name, times)
			}
		}
		for e := range experts {
			name := fmt.Sprintf("experts.%d.up_proj.weight", e)
			own := make([]float32, in*out)
			if err := (numbered{}).Float32s(name, 0, own); err != nil {
				t.Fatal(err)
			}
			part := func(suffix string) []byte {
				all, err := m.Tensor("experts.up_proj.weight" + suffix)
				if err != nil {
					t.Fatal(err)
				}
				size := len(all.Bytes()) / experts
				return all.Bytes()[e*size:][:size]
			}
			if scheme == nil {
				want := kernel.NewTensor(kernel.T(kernel.F32, len(own)), kernel.Alloc(int64(4*len(own))))
				copy(want.F32(), own)
				if !bytes.Equal(part(""), want.Bytes()) {
					t.Errorf("%s: %s differs", what, name)
				}
				continue
			}
			packed, err := quant.Quantise(own, out, in, *scheme)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range scheme.Parts(out, in) {
				var want []byte
				if p.Floats == nil {
					want = p.Bytes(&packed)
				} else {
					f := p.Floats(&packed)
					x := kernel.NewTensor(kernel.T(kernel.F32, len(f)), kernel.Alloc(int64(4*len(f))))
					copy(x.F32(), f)
					want = x.Bytes()
				}
				if !bytes.Equal(part(p.Suffix), want) {
					t.Errorf("%s: %s%s differs from the matrix stored alone", what, name, p.Suffix)
				}
			}
		}
	}
}

// TestRoutersWithoutInfluence: a router whose weights are always 1 has no gradient.
func TestRoutersWithoutInfluence(t *testing.T) {
	for _, c := range []struct {
		experts, perToken int
		normalise, none   bool
	}{{4, 1, true, true}, {4, 1, false, false}, {4, 2, true, false}, {1, 1, false, true}, {1, 1, true, true}} {
		n := nn.New(nn.Options{})
		n.MoE("mlp", n.Batch("x", kernel.T(kernel.F32, 6, 8)), nil, nn.MoE{Gate: "gate_proj", Up: "up_proj",
			Down: "down_proj", Experts: c.experts, PerToken: c.perToken, Inner: 8, Normalise: c.normalise,
			Activation: "silu"})
		if err := n.Err(); err != nil {
			t.Fatal(err)
		}
		if got := len(n.Uninfluential) == 1; got != c.none {
			t.Errorf("%+v: %v", c, n.Uninfluential)
		}
	}
}
