package nn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// packedCheckpoint has some weights packed.
type packedCheckpoint struct {
	nn.Reader
	packed map[string]quant.Packed
}

func (c packedCheckpoint) Packed(name string) (quant.Packed, bool) {
	p, ok := c.packed[name]
	return p, ok
}

func (c packedCheckpoint) Float32s(name string, from int, dst []float32) error {
	if p, ok := c.packed[name]; ok {
		p.DequantiseRange(dst, from, from+len(dst))
		return nil
	}
	return c.Reader.Float32s(name, from, dst)
}

// storedAs is a checkpoint whose weights q_proj and k_proj are packed, and o_proj is not.
func storedAs(t *testing.T, c quant.Config, in, out int) (packedCheckpoint, func(name string) *quant.Config) {
	t.Helper()
	numbers := checkpoint{map[string]int{"q_proj.weight": in * out, "k_proj.weight": in * out,
		"o_proj.weight": in * out}, map[string]int{}}
	r := packedCheckpoint{numbers, map[string]quant.Packed{}}
	for _, name := range []string{"q_proj.weight", "k_proj.weight"} {
		p, err := quant.Quantise(numbers.numbers(name), out, in, c)
		if err != nil {
			t.Fatal(err)
		}
		r.packed[name] = p
	}
	return r, func(name string) *quant.Config {
		if _, ok := r.packed[name]; ok {
			return &c
		}
		return nil
	}
}

// partsTaker is a store that takes what is no work, weights as they are stored, and nothing that has to be packed.
type partsTaker struct {
	*graph.Memory
	taken []string
}

func (m *partsTaker) Load(_ context.Context, all []graph.WeightLoad, _ int) ([]error, error) {
	each := make([]error, len(all))
	for i, f := range all {
		to, err := m.Tensor(f.Into[0])
		if err != nil {
			return nil, err
		}
		if f.Packed != nil || len(f.Into) != 1 || to.DType != f.DType {
			each[i] = errors.ErrUnsupported
			continue
		}
		m.taken = append(m.taken, fmt.Sprintf("%s %d %v", f.Into[0], f.Elems, f.DType))
		size := f.DType.Size()
		for from := 0; from < f.Elems && each[i] == nil; from += 7 { // in pieces
			n := min(7, f.Elems-from)
			each[i] = f.Read(to.Bytes()[from*size:(from+n)*size], from)
		}
	}
	return each, nil
}

// TestPackedWeightsAreTakenAsTheyAre: layers that a checkpoint stores packed are packed, others are numbers; on the
// host and through a store that loads weights itself, part by part. Where weights are kept dequantised, they are its
// numbers.
func TestPackedWeightsAreTakenAsTheyAre(t *testing.T) {
	const in, out = 40, 30
	for _, c := range []quant.Config{{Bits: 4, Type: "nf4", BlockSize: 64}, quant.Default(), quant.DefaultOf("fp4"),
		quant.DefaultOf("int8")} {
		for _, dequantised := range []bool{false, true} {
			from, stored := storedAs(t, c, in, out)
			build := func() (*nn.Net, *graph.Memory) {
				n := nn.New(nn.Options{Stored: stored, Dequantised: dequantised})
				x := n.Batch("x", kernel.T(kernel.F32, 3, in))
				return n, compile(t, n, n.Linear("q_proj", in, out, false).Apply(x), n.Linear("k_proj", in, out, false).
					Apply(x), n.Linear("o_proj", in, out, false).Apply(x))
			}
			n, host := build()
			if err := n.Load(context.Background(), from, host, 2); err != nil {
				t.Fatal(err)
			}
			if got := len(n.Quantised()); got != 2 {
				t.Errorf("%+v: %d quantised layers, want 2", c, got)
			}
			n, m := build()
			device := &partsTaker{Memory: m}
			if err := n.Load(context.Background(), from, device, 2); err != nil {
				t.Fatal(err)
			}
			want := []string{"q_proj.weight 1200 f32", "k_proj.weight 1200 f32", "o_proj.weight 1200 f32"}
			if !dequantised {
				want = nil
				for _, name := range []string{"q_proj.weight", "k_proj.weight"} {
					for _, p := range c.Parts(out, in) {
						want = append(want, fmt.Sprintf("%s%s %d %s", name, p.Suffix, p.Len,
							map[bool]string{false: "u8", true: "f32"}[p.Floats != nil]))
					}
				}
				want = append(want, "o_proj.weight 1200 f32")
			}
			if got := strings.Join(device.taken, ", "); got != strings.Join(want, ", ") {
				t.Errorf("%+v: taken %s\nwant %s", c, got, strings.Join(want, ", "))
			}
			for _, w := range n.Weights() {
				for i, name := range w.Into {
					a, err := host.Tensor(name)
					if err != nil {
						t.Fatal(err)
					}
					b, err := m.Tensor(name)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(a.Bytes(), b.Bytes()) {
						t.Errorf("%+v dequantised %v: %s differs between host and store", c, dequantised, name)
					}
					p, packed := from.packed[w.Name]
					if part := c.Parts(out, in)[min(i, len(w.Into)-1)]; packed && !dequantised && part.Bytes != nil &&
						!bytes.Equal(a.Bytes(), part.Bytes(&p)) {
						t.Errorf("%+v: %s is not what the checkpoint stores", c, name)
					}
				}
			}
		}
	}
}

// TestPackedWeightsLeaveNoGarbage: a checkpoint that has weights packed is loaded without a copy of them.
func TestPackedWeightsLeaveNoGarbage(t *testing.T) {
	const layers, size = 20, 256
	p, err := quant.Quantise(make([]float32, size*size), size, size, quant.Default())
	if err != nil {
		t.Fatal(err)
	}
	q := quant.Default()
	n := nn.New(nn.Options{Stored: func(string) *quant.Config { return &q }})
	from := packedCheckpoint{ones{}, map[string]quant.Packed{}}
	y := n.Batch("x", kernel.T(kernel.F32, 3, size))
	for i := range layers {
		name := fmt.Sprintf("l%d", i)
		y, from.packed[name+".weight"] = n.Linear(name, size, size, false).Apply(y), p
	}
	m := compile(t, n, y)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := n.Load(context.Background(), from, m, 1); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated, packed := after.TotalAlloc-before.TotalAlloc, uint64(layers*size*size/2)
	t.Logf("%d bytes for %d of packed weights", allocated, packed)
	if allocated > packed/20 {
		t.Errorf("loading allocates %d bytes for %d of packed weights", allocated, packed)
	}
}
