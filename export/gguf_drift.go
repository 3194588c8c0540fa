package export

import (
	"context"
	"errors"
	"sync"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/session"
)

// rounded reads the weights that a GGUF file stands for, by the model's names and in the model's order: base and
// adapter through the types of the file.
type rounded struct {
	mu    sync.Mutex
	c     *checkpoint
	types map[string]place // by the model's names; others stay float32

	name string // of the tensor that is held
	held []float32
}

// Float32s reads elements [from, from+len(dst)) of a tensor.
func (r *rounded) Float32s(name string, from int, dst []float32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.types[name]
	if !ok || t.Type == gguf.F32 {
		return r.c.Floats(name, from, dst)
	}
	if r.name != name {
		shape := r.c.Shape(name)
		n := 1
		for _, size := range shape {
			n *= size
		}
		r.name, r.held = "", make([]float32, n)
		if err := r.c.Floats(name, 0, r.held); err != nil {
			return err
		}
		r.round(t, shape)
		r.name = name
	}
	copy(dst, r.held[from:])
	return nil
}

// round takes what is held of a tensor through its type, row by row of the file.
func (r *rounded) round(t place, shape []int) {
	width, step, rows := shape[len(shape)-1], 1, len(r.held)/shape[len(shape)-1]
	start := func(row int) int { return row * width }
	if t.from.Transposed { // [E,in,out]: a row is a column of one of E matrices
		in, out := shape[1], shape[2]
		width, step, rows = in, out, shape[0]*out
		start = func(row int) int { return row/out*in*out + row%out }
	}
	r.c.cpu.Range(rows, 16, func(a, b int) {
		x, y := make([]float32, width), make([]byte, width/t.Block()*t.BlockBytes())
		at := func(row, k int) int {
			if t.from.Columns != nil {
				k = t.from.Columns(k)
			}
			return start(row) + k*step
		}
		for row := a; row < b; row++ {
			for k := range x {
				x[k] = r.held[at(row, k)]
			}
			t.Quantise(x, y)
			t.Dequantise(y, x)
			for k := range x {
				r.held[at(row, k)] = x[k]
			}
		}
	})()
}

// drift compares what a file stands for with base and adapter unmerged, over texts and over rows of the adapter's run.
func (c *checkpoint) drift(ctx context.Context, o Options, env session.Env, k *keeping) (*Drift, []string, error) {
	rows, notes, err := samplesFor(c.s, o.Check, o.Own)
	if err != nil || rows.empty() {
		return nil, notes, err
	}
	again := &checkpoint{ctx: ctx, s: c.s, updates: c.updates, cpu: c.cpu, over: c.over, trained: c.trained}
	with := variant{name: o.Model, scheme: c.over, adapter: func() (*adapter.Saved, error) {
		return adapter.Open(o.Adapter)
	}}
	d, err := comparison{rows: rows, env: env, with: with, merged: variant{name: o.Model, tokens: with.adapter,
		reader: &rounded{c: again, types: k.types}}}.drift(ctx)
	if errors.Is(err, session.ErrDoesNotFit) {
		return nil, append(notes, doesNotFit(err)), nil
	}
	return d, notes, err
}
