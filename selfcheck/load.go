package selfcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// loadTypes are the types of a checkpoint's numbers that loading is checked with.
var loadTypes = []weights.DType{weights.BF16, weights.F16, weights.F32, weights.F64}

// loadKind is how linear layers' weights are kept.
type loadKind struct {
	store       *quant.Config // nil = as numbers
	dequantised bool
	already     bool // the checkpoint has them packed
}

// loadKinds returns the ways of storage, each kept packed and dequantised, of a checkpoint of numbers of type d and,
// for one type, of one that is packed. Only the latter has CUDA's table of scales.
func loadKinds(d weights.DType) []loadKind {
	kinds := []loadKind{{}}
	for i := range packedStores {
		c := &packedStores[i]
		for _, dequantised := range []bool{false, true} {
			if c.Map == quant.MapCPU {
				kinds = append(kinds, loadKind{c, dequantised, false})
			}
			if d == weights.BF16 {
				kinds = append(kinds, loadKind{c, dequantised, true})
			}
		}
	}
	return kinds
}

func (k loadKind) String() string {
	if k.store == nil {
		return "as numbers"
	}
	s := "packed" + storeName(*k.store)
	if k.dequantised {
		s += ", dequantised"
	}
	if k.already {
		s += ", from a packed file"
	}
	return s
}

// packedFile is a checkpoint that has linear layers' weights packed.
type packedFile struct {
	nn.StoredReader
	packed map[string]quant.Packed
}

func (r packedFile) Packed(name string) (quant.Packed, bool) { p, ok := r.packed[name]; return p, ok }

// Float32s dequantises what is packed.
func (r packedFile) Float32s(name string, from int, dst []float32) error {
	if p, ok := r.packed[name]; ok {
		p.DequantiseRange(dst, from, from+len(dst))
		return nil
	}
	return r.StoredReader.Float32s(name, from, dst)
}

// Stored has no numbers of what is packed.
func (r packedFile) Stored(name string) (kernel.DType, func([]byte, int) error, bool) {
	if _, ok := r.packed[name]; ok {
		return 0, nil, false
	}
	return r.StoredReader.Stored(name)
}

// packFile packs the linear layers' weights of a checkpoint.
func packFile(r nn.StoredReader, n *nn.Net, c quant.Config) (nn.StoredReader, error) {
	f := packedFile{r, map[string]quant.Packed{}}
	for _, w := range n.Weights() {
		if !strings.HasPrefix(w.Name, "linear") || len(w.Shape) != 2 {
			continue
		}
		x := make([]float32, w.Shape[0]*w.Shape[1])
		if err := r.Float32s(w.Name, 0, x); err != nil {
			return nil, err
		}
		var err error
		if f.packed[w.Name], err = quantised(x, w.Shape[0], w.Shape[1], c); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// loadSizes are linear layers [in,out]: one block, blocks that end short, scales that do not fill a block of their
// own, and several pieces.
var loadSizes = [][2]int{{64, 1}, {9, 7}, {65, 1}, {33, 7}, {130, 128}, {256, 65}, {1003, 401}}

// loadNet returns a network of linear layers, a table and a norm, and a checkpoint for it with numbers of type d.
func loadNet(d weights.DType, kind loadKind, sizes [][2]int) (*nn.Net, []*graph.Value, *weights.File, error) {
	n := nn.New(nn.Options{Scheme: kind.store, Dequantised: kind.dequantised})
	var out []*graph.Value
	for i, s := range sizes {
		out = append(out, n.Linear(fmt.Sprint("linear", i), s[0], s[1],
			true).Apply(n.Frozen(fmt.Sprint("x", i), kernel.T(kernel.F32, 2, s[0]))))
	}
	ids := n.Batch("ids", kernel.T(kernel.I32, 3))
	out = append(out, n.RMSNorm("norm", n.Embed("table", 500, 129, ids), 1e-5))
	r := rand.New(rand.NewPCG(5, uint64(d)))
	var all []weights.Tensor
	for _, w := range n.Weights() {
		x := make([]float32, kernel.T(kernel.F32, w.Shape...).Elems())
		for i := range x {
			x[i] = float32(r.NormFloat64() * 0.02)
		}
		clear(x[:min(len(x), 64)]) // a block of zeros
		t, err := weights.FromFloat32s(w.Name, d, w.Shape, x)
		if err != nil {
			return nil, nil, nil, err
		}
		all = append(all, t)
	}
	file, err := weights.Encode(all, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	f, err := weights.Decode(file)
	return n, out, f, errors.Join(err, n.Err())
}

// onHost hides that a store fills weights itself: they are packed on the host and sent.
type onHost struct{ graph.Store }

// loadedBytes returns what a network's frozen tensors hold after loading by the machine and by the host.
func loadedBytes(ctx context.Context, on graph.Machine, n *nn.Net, plan *graph.Plan, r nn.Reader) (byMachine,
	byHost map[string][]byte, err error) {
	for _, to := range []*map[string][]byte{&byMachine, &byHost} {
		m, err := on.NewStore(plan)
		if err != nil {
			return nil, nil, err
		}
		s := m
		if to == &byHost {
			s = onHost{m}
		}
		if err = n.Load(ctx, r, s, on.Workers()); err == nil {
			*to, err = frozenBytes(n, m)
		}
		if err = errors.Join(err, m.Close()); err != nil {
			return nil, nil, err
		}
	}
	return byMachine, byHost, nil
}

// frozenBytes returns a network's frozen tensors by their names in a store.
func frozenBytes(n *nn.Net, m graph.Store) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, w := range n.Weights() {
		if err := m.Get(w.Into...); err != nil {
			return nil, err
		}
		for _, name := range w.Into {
			x, err := m.Tensor(name)
			if err != nil {
				return nil, err
			}
			all[name] = bytes.Clone(x.Bytes())
		}
	}
	return all, nil
}

// checkLoad loads a network of small weights; the bytes must be the host's.
func checkLoad(ctx context.Context, on graph.Machine, d weights.DType, kind loadKind) (results []Result, err error) {
	failed := func(err error) ([]Result, error) {
		return []Result{{Kernel: "load", Case: fmt.Sprintf("%v, %v", d, kind), Status: StatusFail,
			Reason: err.Error()}}, err
	}
	n, out, file, err := loadNet(d, kind, loadSizes)
	if err != nil {
		return failed(err)
	}
	plan, err := on.Compile(n.Builder, out...)
	if err != nil {
		return failed(err)
	}
	from := session.Reader(file)
	if kind.already {
		if from, err = packFile(from, n, *kind.store); err != nil {
			return failed(err)
		}
	}
	got, want, err := loadedBytes(ctx, on, n, plan, from)
	if err != nil {
		return failed(err)
	}
	for _, w := range n.Weights() {
		r := Result{Kernel: "load", Case: fmt.Sprintf("%s %v %v, %v", w.Name, w.Shape, d, kind), Status: StatusPass}
		for _, name := range w.Into {
			if !bytes.Equal(got[name], want[name]) {
				r.Status, r.Error = StatusFail, 1
				r.Reason = fmt.Sprintf("byte %d of %d of %s differs from the host's",
					firstDifference(got[name], want[name]), len(want[name]), name)
			}
		}
		results = append(results, r)
	}
	return results, nil
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
