//go:build gpu

package graph

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// deviceReader copies outputs to pinned memory behind the work on the stream.
type deviceReader struct {
	readQueue
	stream  *gpu.Stream
	names   string
	from    []kernel.DeviceTensor
	offset  []int64 // of each output in a slot's memory
	memory  [readsAhead]*gpu.Pinned
	arrived [readsAhead]*gpu.Event
	slots   [readsAhead][]kernel.Tensor
}

// Reader is for outputs that Compile was given and that are stored as they are typed.
func (r *deviceRun) Reader(outputs ...*Value) (Reader, error) {
	d := &deviceReader{stream: r.stream}
	r.readers = append(r.readers, d)
	var bytes int64
	var names []string
	for _, v := range outputs {
		names = append(names, v.Name)
		t, ok := r.values[v]
		if !ok {
			return nil, fmt.Errorf("%s is no output of the plan", v.Name)
		}
		if t.DType != v.Type.DType {
			return nil, fmt.Errorf("%s is %v, stored as %v: it can be read after waiting only", v.Name, v.Type, t.DType)
		}
		d.from, d.offset = append(d.from, t), append(d.offset, bytes)
		bytes += kernel.AlignUp(t.Bytes())
	}
	d.names = strings.Join(names, ", ")
	for i := range d.slots {
		var err error
		if d.memory[i], err = r.store.g.Device.NewPinned(int(bytes)); err != nil {
			return nil, err
		}
		if d.arrived[i], err = r.store.g.Device.NewEvent(); err != nil {
			return nil, err
		}
		for j, t := range d.from {
			d.slots[i] = append(d.slots[i], kernel.NewTensor(t.Type, d.memory[i].Bytes[d.offset[j]:][:t.Bytes()]))
		}
	}
	return d, nil
}

func (d *deviceReader) Queue() error {
	slot, err := d.ask()
	if err != nil {
		return err
	}
	for i, t := range d.from {
		if err := d.stream.CopyOut(d.memory[slot], d.offset[i], t.Ptr, t.Bytes()); err != nil {
			return fmt.Errorf("read %s: %w", d.names, err)
		}
	}
	return d.arrived[slot].Record(d.stream)
}

func (d *deviceReader) Next() ([]kernel.Tensor, error) {
	slot, err := d.next()
	if err != nil {
		return nil, err
	}
	if err := d.arrived[slot].Synchronize(); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.names, err)
	}
	return d.slots[slot], nil
}

func (d *deviceReader) close() error {
	var err error
	for i := range d.slots {
		if d.arrived[i] != nil {
			err = errors.Join(err, d.arrived[i].Close())
		}
		err = errors.Join(err, d.memory[i].Free())
	}
	return err
}
