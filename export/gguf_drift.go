package export

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/session"
)

// rounded reads the weights that a GGUF file stands for, by the model's names and in the model's order: base and adapter
// through the types of the file.
type rounded struct {
	mu    sync.Mutex
	c     *checkpoint
	types map[string]gguf.Type // by the model's names; others stay float32

	name string // of the tensor that is held
	held []float32
}

// Float32s reads elements [from, from+len(dst)) of a tensor.
func (r *rounded) Float32s(name string, from int, dst []float32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.types[name]
	if !ok || t == gguf.F32 {
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
		width := shape[len(shape)-1]
		r.c.cpu.Range(n/width, 16, func(a, b int) {
			y := make([]byte, width/t.Block()*t.BlockBytes())
			for row := a; row < b; row++ {
				x := r.held[row*width : (row+1)*width]
				t.Quantise(x, y)
				t.Dequantise(y, x)
			}
		})()
		r.name = name
	}
	copy(dst, r.held[from:])
	return nil
}

// typesOf are the types that the model's tensors have in a file; odd is one whose blocks run along other numbers there than in
// the model's order, "" = there is none.
func (k *keeping) typesOf() (types map[string]gguf.Type, odd string) {
	for name, to := range k.types {
		shape := k.c.Shape(name)
		if to.Type.Block() > 1 && (len(shape) == 0 || shape[len(shape)-1] != to.Shape[0]) {
			return nil, name
		}
	}
	types = map[string]gguf.Type{}
	for name, to := range k.types {
		types[name] = to.Type
	}
	return types, ""
}

// drift compares what a file stands for with base and adapter unmerged, over texts and over rows of the adapter's run.
func (c *checkpoint) drift(ctx context.Context, o Options, env session.Env, k *keeping) (*Drift, []string, error) {
	rows, notes, err := samplesFor(c.s, o.Check, o.Own)
	if err != nil || rows.empty() {
		return nil, notes, err
	}
	types, odd := k.typesOf()
	if odd != "" {
		return nil, append(notes, fmt.Sprintf("the logits are not compared: the blocks of %s run along other numbers in the file than in the model", odd)), nil
	}
	again := &checkpoint{ctx: ctx, s: c.s, updates: c.updates, cpu: c.cpu, over: c.over, trained: c.trained}
	with := variant{name: o.Model, scheme: c.over, adapter: func() (*adapter.Saved, error) { return adapter.Open(o.Adapter) }}
	d, err := comparison{rows: rows, env: env, with: with, merged: variant{name: o.Model, reader: &rounded{c: again, types: types}}}.drift(ctx)
	if errors.Is(err, session.ErrDoesNotFit) {
		return nil, append(notes, doesNotFit(err)), nil
	}
	return d, notes, err
}
