package nn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// taker is a store that takes weights itself: numbers as they are, packed ones not, and says what it is told to.
type taker struct {
	*graph.Memory
	t     *testing.T
	taken []graph.WeightLoad
	say   map[string]error // by the first name in Into
	end   error
}

func (m *taker) Load(_ context.Context, all []graph.WeightLoad, workers int) ([]error, error) {
	each := make([]error, len(all))
	m.taken = all
	for i, f := range all {
		each[i] = m.say[f.Into[0]]
		if f.Packed != nil && each[i] == nil {
			each[i] = errors.ErrUnsupported
		}
		if each[i] != nil {
			continue
		}
		to, err := m.Tensor(f.Into[0])
		if err != nil {
			m.t.Fatal(err)
		}
		raw := make([]byte, f.Elems*f.DType.Size())
		half := f.Elems / 2
		if err := errors.Join(f.Read(raw[:half*f.DType.Size()], 0), f.Read(raw[half*f.DType.Size():],
			half)); err != nil {
			each[i] = err
			continue
		}
		for k := range to.F32() {
			if f.DType == kernel.BF16 {
				to.F32()[k] = kernel.FromBF16(binary.LittleEndian.Uint16(raw[2*k:]))
			} else {
				to.F32()[k] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:]))
			}
		}
	}
	return each, m.end
}

// halves is a checkpoint that stores one tensor as bf16.
type halves struct {
	checkpoint
	name string
}

func (h halves) Stored(name string) (kernel.DType, func([]byte, int) error, bool) {
	return kernel.BF16, func(dst []byte, from int) error {
		for i, x := range h.numbers(name)[from : from+len(dst)/2] {
			binary.LittleEndian.PutUint16(dst[2*i:], kernel.ToBF16(x))
		}
		return nil
	}, name == h.name
}

func takerNet(t *testing.T, dequantised bool) (*nn.Net, *graph.Memory, checkpoint) {
	t.Helper()
	const in, out = 40, 30
	q := quant.Default()
	n := nn.New(nn.Options{Scheme: &q, Dequantised: dequantised})
	x := n.Batch("x", kernel.T(kernel.F32, 3, in))
	m := compile(t, n, n.Linear("up_proj", in, out, true).Apply(x), n.Apply(kernel.MatMul{TransB: true}, x,
		n.Head("head", out, in)))
	return n, m, checkpoint{map[string]int{"up_proj.weight": in * out, "up_proj.bias": out, "head": in * out},
		map[string]int{}}
}

// TestLoaderTakesWeights: a store that fills weights itself gets them as they are stored, and what it cannot fill
// the host does.
func TestLoaderTakesWeights(t *testing.T) {
	for _, dequantised := range []bool{false, true} {
		n, want, c := takerNet(t, dequantised)
		r := halves{c, "head"}
		if err := n.Load(context.Background(), r, want, 2); err != nil {
			t.Fatal(err)
		}
		n, m, _ := takerNet(t, dequantised)
		s := &taker{Memory: m, t: t}
		if err := n.Load(context.Background(), r, s, 2); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range s.taken {
			got += fmt.Sprintf("%s %d %v %v %v, ", strings.Join(f.Into, " "), f.Elems, f.DType,
				f.Packed != nil, f.Dequantised)
		}
		list := "up_proj.bias 30 f32 false false, up_proj.weight up_proj.weight.absmax up_proj.weight.nested_absmax " +
			"up_proj.weight.nested_offset 1200 f32 true false, head 1200 bf16 false false, "
		if dequantised {
			list = "up_proj.bias 30 f32 false false, up_proj.weight 1200 f32 true true, head 1200 bf16 false false, "
		}
		if got != list {
			t.Errorf("taken %s\nwant  %s", got, list)
		}
		for _, w := range n.Weights() {
			for _, name := range w.Into {
				a, err := m.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				b, err := want.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				if name == "head" { // as bf16, when it is read so
					for i, x := range b.F32() {
						b.F32()[i] = kernel.FromBF16(kernel.ToBF16(x))
					}
				}
				if !bytes.Equal(a.Bytes(), b.Bytes()) {
					t.Errorf("dequantised %v: %s differs", dequantised, name)
				}
			}
		}
	}
}

// TestLoaderErrors: what a store says of a weight is said with its name; of a number that is not finite, what the
// host says.
func TestLoaderErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		say  map[string]error
		end  error
		want string
	}{
		{map[string]error{"head": broken}, nil, "load head: broken"},
		{map[string]error{"head": broken, "up_proj.bias": broken}, nil, "load up_proj.bias: broken\nload head: broken"},
		{map[string]error{"head": broken}, context.Canceled, "context canceled"},
		{map[string]error{"up_proj.weight": graph.ErrNotFinite}, nil,
			"load up_proj.weight: quantise a matrix [30,40]: row 0 column 7 is NaN; a frozen weight must be finite"},
	} {
		n, m, numbers := takerNet(t, false)
		err := n.Load(context.Background(), spoiled{numbers, c.say["up_proj.weight"] != nil}, &taker{Memory: m, t: t,
			say: c.say, end: c.end}, 2)
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// spoiled is a checkpoint with a number that is not finite.
type spoiled struct {
	checkpoint
	on bool
}

func (s spoiled) Float32s(name string, from int, dst []float32) error {
	err := s.checkpoint.Float32s(name, from, dst)
	if s.on && name == "up_proj.weight" && from == 0 {
		dst[7] = float32(math.NaN())
	}
	return err
}
