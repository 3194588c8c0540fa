package kerneltest

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/tierlora/tierlora/kernel"
)

// flaw is what a square is done wrong with; every kind of fault has at least one.
type flaw string

// square is y = x*x, with scratch memory and every optional interface, and one flaw.
type square struct{ flaw flaw }

func (s square) Name() string { return strings.TrimPrefix("square", string(s.flaw)) }

func (s square) Shape(in []kernel.Type) ([]kernel.Type, error) {
	switch {
	case s.flaw == "refuses the case":
		return nil, errors.New("no")
	case len(in) < 1, len(in) > 1 && s.flaw != "takes more inputs":
		return nil, errors.New("takes one input")
	case s.flaw == "takes other elements" && in[0].DType == kernel.I32:
	case in[0].DType != kernel.F32 && in[0].DType != kernel.F64:
		return nil, errors.New("want a float")
	}
	if len(in[0].Shape) != 1 && s.flaw != "takes other shapes" {
		return nil, errors.New("want a vector")
	}
	if s.flaw == "output too small" {
		return []kernel.Type{kernel.T(in[0].DType, max(1, in[0].Elems()-1))}, nil
	}
	return []kernel.Type{in[0]}, nil
}

func (s square) Grads() kernel.Backward {
	switch s.flaw {
	case "gradient without factor":
		return kernel.Backward{Calls: []kernel.Call{{Kernel: product{},
			In: []kernel.Ref{kernel.In(0), kernel.Upstream()}}}, Grads: []kernel.Ref{kernel.FromCall(0, 0)}}
	case "gradient of wrong type":
		return kernel.Backward{Calls: []kernel.Call{{Kernel: sum{}, In: []kernel.Ref{kernel.Upstream()}}},
			Grads: []kernel.Ref{kernel.FromCall(0, 0)}}
	case "gradient reads a later call":
		return kernel.Backward{Calls: []kernel.Call{{Kernel: kernel.Add{},
			In: []kernel.Ref{kernel.FromCall(1, 0), kernel.Upstream()}},
			{Kernel: sum{}, In: []kernel.Ref{kernel.Upstream()}}}, Grads: []kernel.Ref{kernel.FromCall(0, 0)}}
	case "too few gradients":
		return kernel.Backward{}
	}
	return kernel.Backward{
		Calls: []kernel.Call{
			{Kernel: kernel.Add{}, In: []kernel.Ref{kernel.In(0), kernel.In(0)}},
			{Kernel: product{}, In: []kernel.Ref{kernel.FromCall(0, 0), kernel.Upstream()}},
		},
		Grads: []kernel.Ref{kernel.FromCall(1, 0)},
	}
}

func (s square) InPlace() []kernel.Alias { return []kernel.Alias{{Out: 0, In: 0}} }

func (s square) Accumulate() (kernel.Kernel, bool) { return squareTo(s), true }

func (s square) Scratch(in []kernel.Type, workers int) int64 { return 64 }

func (s square) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	if in[0].DType == kernel.F64 {
		return squareBody[float64](s.flaw, c, in, out)
	}
	return squareBody[float32](s.flaw, c, in, out)
}

func (s square) Cost(in, out []kernel.Type, _ kernel.Content) kernel.Cost {
	c := kernel.Cost{Bytes: in[0].Bytes() + out[0].Bytes(), FLOPs: int64(in[0].Elems())}
	if s.flaw == "moves more than it has" {
		c.Bytes++
	}
	return c
}

var counter float64

func squareBody[F kernel.Float](flaw flaw, c *kernel.CPU, in, out []kernel.Tensor) func() {
	x, y := kernel.Floats[F](in[0]), kernel.Floats[F](out[0])
	scratch, raw := c.Scratch, out[0].Bytes()
	work := c.Range(len(x), 4, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y[i] = x[i] * x[i]
		}
	})
	n := len(x)
	switch flaw {
	case "panics":
		return func() { panic("broken") }
	case "writes beside the output":
		return func() { work(); *behind(raw) = 7 }
	case "writes beside the scratch":
		return func() { work(); *behind(scratch) = 7 }
	case "changes its input":
		return func() { work(); x[n-1] = 0 }
	case "leaves an element":
		return func() { keep := y[n/2]; work(); y[n/2] = keep }
	case "reads dirty scratch":
		return func() { work(); y[0] += F(scratch[0]) }
	case "adds to the output":
		return func() { keep := y[0]; work(); y[0] += keep }
	case "loses precision":
		return func() {
			work()
			var f F = 1
			if f/3 != F(float32(1)/3) {
				return
			}
			y[0] *= 1.001
		}
	case "infinite in float32":
		return func() {
			work()
			if F(1e30)*F(1e30) > 1e38 && F(16777217) == F(16777216) {
				y[n-1] = y[n-1] / (x[0] - x[0])
			}
		}
	case "counts its runs":
		return func() { work(); counter++; y[0] += F(counter) }
	case "depends on the workers":
		return func() { work(); y[0] += F(c.Workers()) }
	case "not in place":
		return func() {
			for i := range x {
				y[i] = x[i] * x[i]
				if i > 0 && raw != nil && &x[0] == &y[0] {
					y[i] += x[i-1]
				}
			}
		}
	case "allocates":
		return func() { work(); sink = make([]byte, n) }
	}
	return work
}

var sink []byte

// behind returns the byte after b, as assembly with a wrong length would reach it.
func behind(b []byte) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), len(b)))
}

// squareTo is square's accumulating form.
type squareTo struct{ flaw flaw }

func (s squareTo) Name() string { return "square" }
func (s squareTo) Shape(in []kernel.Type) ([]kernel.Type, error) {
	if len(in) != 2 || !in[0].Equal(in[1]) && s.flaw != "sum of unequal types" {
		return nil, errors.New("want two equal inputs")
	}
	if _, err := (square{}).Shape(in[:1]); err != nil {
		return nil, err
	}
	return []kernel.Type{in[1]}, nil
}
func (s squareTo) Overwrites() []kernel.Alias {
	if s.flaw == "sum elsewhere" {
		return nil
	}
	return []kernel.Alias{{Out: 0, In: 1}}
}
func (s squareTo) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	if in[0].DType == kernel.F64 {
		return squareToBody[float64](s.flaw, in, out)
	}
	return squareToBody[float32](s.flaw, in, out)
}
func squareToBody[F kernel.Float](flaw flaw, in, out []kernel.Tensor) func() {
	x, y := kernel.Floats[F](in[0]), kernel.Floats[F](out[0])
	return func() {
		for i, v := range x {
			if flaw == "sum without addend" {
				y[i] = 0
			}
			y[i] += v * v
		}
		if flaw == "sum allocates" {
			sink = make([]byte, len(x))
		}
	}
}

// product is the elementwise product, for gradients.
type product struct{}

func (product) Name() string                                  { return "product" }
func (product) Shape(in []kernel.Type) ([]kernel.Type, error) { return kernel.Add{}.Shape(in) }
func (product) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	a, b, y := in[0].F64(), in[1].F64(), out[0].F64()
	return func() {
		for i := range y {
			y[i] = a[i] * b[i]
		}
	}
}

// sum adds all elements.
type sum struct{}

func (sum) Name() string { return "sum" }
func (sum) Shape(in []kernel.Type) ([]kernel.Type, error) {
	return []kernel.Type{kernel.T(in[0].DType)}, nil
}
func (sum) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	x, y := in[0].F64(), out[0].F64()
	return func() {
		y[0] = 0
		for _, v := range x {
			y[0] += v
		}
	}
}

func squareCase(f flaw) Case {
	return Case{Name: string(f), Kernel: square{f}, In: []Input{Normal(33)}, Bound: 1e-7}
}

func TestSoundKernelPasses(t *testing.T) {
	Run(t, squareCase("none"),
		Case{Name: "one element", Kernel: square{}, In: []Input{Normal(1)}, Bound: 1e-7},
		Case{Name: "any type", Kernel: duplicate{}, AnyType: true, In: []Input{Ints([]int32{1, 2}, 2)}},
		Case{Name: "fixed types", Kernel: duplicate{}, AnyType: true, In: []Input{Normal(3, 5).As(kernel.BF16)}})
}

// Every check is seen to fail: a kernel with one flaw has faults of the kind that names it.
func TestFlawsAreFound(t *testing.T) {
	for f, kind := range map[flaw]string{
		"refuses the case":            "shape",
		"takes more inputs":           "shape",
		"takes other elements":        "shape", // i32 is accepted, and the body cannot read it
		"takes other shapes":          "",      // and runs on them: no fault
		"output too small":            "shape",
		"panics":                      "shape",
		"writes beside the output":    "sentinel",
		"writes beside the scratch":   "sentinel",
		"changes its input":           "sentinel",
		"leaves an element":           "unwritten",
		"reads dirty scratch":         "unwritten",
		"adds to the output":          "unwritten",
		"loses precision":             "precision",
		"infinite in float32":         "precision",
		"gradient without factor":     "gradient",
		"gradient of wrong type":      "gradient",
		"gradient reads a later call": "gradient",
		"too few gradients":           "gradient",
		"counts its runs":             "unwritten",
		"depends on the workers":      "repeat",
		"not in place":                "in place",
		"sum elsewhere":               "accumulate",
		"sum without addend":          "accumulate",
		"sum of unequal types":        "shape",
		"sum allocates":               "allocation",
		"allocates":                   "allocation",
		"moves more than it has":      "cost",
	} {
		faults, _ := check(squareCase(f))
		found := kind == "" && len(faults) == 0
		for _, x := range faults {
			found = found || x.kind == kind
		}
		if !found {
			t.Errorf("%s: found %v, want a fault of kind %q", f, faults, kind)
		}
	}
	c := squareCase("none")
	c.Rejects = map[string][]kernel.Type{"a vector": {kernel.T(kernel.F32, 3)}}
	if faults, _ := check(c); len(faults) != 1 || faults[0].kind != "shape" {
		t.Errorf("a list that must be refused: %v", faults)
	}
	c = Case{Name: "every type", Kernel: duplicate{}, In: []Input{Normal(3)}}
	if faults, _ := check(c); len(faults) != 2 || faults[0].kind != "shape" { // in f32 and in f64
		t.Errorf("a kernel of every type that does not say so: %v", faults)
	}
	if _, err := bind(identityOfAnotherType{}, 1, []*buffer{newBuffer(kernel.T(kernel.F32, 3))}, nil,
		poison); err == nil {
		t.Error("an output in the memory of an input of another type is accepted")
	}
}

// A repeated binding is checked apart: a flaw that only a second run of one binding shows.
func TestSecondRunIsCompared(t *testing.T) {
	c := &checker{Case: Case{Name: "second run", Kernel: &stateful{}, In: []Input{Normal(3)}}}
	c.repeat()
	if len(c.faults) == 0 || c.faults[0].kind != "repeat" {
		t.Errorf("found %v", c.faults)
	}
}

// duplicate copies tensors of every type.
type duplicate struct{}

func (duplicate) Name() string { return "duplicate" }
func (duplicate) Shape(in []kernel.Type) ([]kernel.Type, error) {
	if len(in) != 1 {
		return nil, errors.New("takes one input")
	}
	return in, nil
}
func (duplicate) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() { copy(out[0].Bytes(), in[0].Bytes()) }
}

// stateful is wrong from its second run on.
type stateful struct{}

func (*stateful) Name() string                                  { return "stateful" }
func (*stateful) Shape(in []kernel.Type) ([]kernel.Type, error) { return in, nil }
func (*stateful) CPU(c *kernel.CPU, in, out []kernel.Tensor) func() {
	runs := byte(0)
	y := out[0].Bytes()
	return func() {
		copy(y, in[0].Bytes())
		y[0] += runs
		runs++
	}
}

// identityOfAnotherType overwrites an input with an output of another type.
type identityOfAnotherType struct{ duplicate }

func (identityOfAnotherType) Shape([]kernel.Type) ([]kernel.Type, error) {
	return []kernel.Type{kernel.T(kernel.I32, 3)}, nil
}
func (identityOfAnotherType) Overwrites() []kernel.Alias { return []kernel.Alias{{Out: 0, In: 0}} }

func TestHalfNumbers(t *testing.T) {
	for _, v := range []float64{0, 1, -1, 0.5, 1.5, -2.25, 1000, 6.103515625e-05} {
		if got := fromHalf(toHalf(v)); got != v {
			t.Errorf("%v becomes %v", v, got)
		}
	}
}
