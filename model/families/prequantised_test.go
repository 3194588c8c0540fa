package families_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/quant"
)

// prequantised are the folders that transformers and bitsandbytes saved, and how many weights are quantised in each.
var prequantised = map[string]int{"nf4": 7, "nf4_nested": 7, "fp4": 7, "fp4_nested": 7, "nf4_dynamic": 2, "int8": 7}

func openPrequantised(t testing.TB, name string) *quantised.Checkpoint {
	t.Helper()
	dir := golden.Path(t, "prequantised/"+name)
	config := loadConfig(t, dir+"/config.json")
	c, err := quantised.Open(openWeights(t, dir+"/model.safetensors", config), config.Quantization)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrequantisedLogits: a folder that is quantised already gives the logits of its dequantised weights in
// transformers, with weights that stay packed and with weights that are dequantised while they load.
func TestPrequantisedLogits(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "prequantised/logits.safetensors"))
	ids := ref.Ints("ids")
	for name, n := range prequantised {
		for _, dequantised := range []bool{false, true} {
			from := openPrequantised(t, name)
			if from.Quantised() != n {
				t.Errorf("%s: %d quantised weights, want %d", name, from.Quantised(), n)
			}
			c := loadConfig(t, golden.Path(t, "prequantised/"+name+"/config.json"))
			w := build(t, c, 1, len(ids), nn.Options{Stored: from.Config, Dequantised: dequantised}, nil,
				adapter.Config{})
			logits := w.Apply(kernel.MatMul{TransB: true}, w.hidden, w.head)
			r := w.startFrom(t, from, logits)
			copy(r.ints("ids"), ids)
			r.run.Run("main")
			d, size := furthest(t, r.run.Tensor(logits).F32(), ref.Floats(name+".logits"))
			t.Logf("%s, dequantised %v: logits within %.3g differ by at most %.3g", name, dequantised, size, d)
			if !(d <= 1e-4) || size < 1 {
				t.Errorf("%s, dequantised %v: logits within %.3g differ by up to %.3g, tolerance 1e-4", name,
					dequantised, size, d)
			}
		}
	}
}

// TestPrequantisedEqualsQuantisingHere: what a folder stores is what the original becomes here, to the byte; the second
// scales to the last place, as the reference's mean is summed in another order.
func TestPrequantisedEqualsQuantisingHere(t *testing.T) {
	original := openWeights(t, golden.Path(t, "prequantised/original/model.safetensors"), model.Config{})
	for name := range prequantised {
		from := openPrequantised(t, name)
		for _, tensor := range from.Names() {
			stored, ok := from.Packed(tensor)
			if !ok {
				continue
			}
			x := make([]float32, stored.Len())
			if err := (reader{original}).Float32s(tensor, 0, x); err != nil {
				t.Fatal(err)
			}
			here, err := quant.Quantise(x, stored.Rows, stored.Cols, *from.Config(tensor))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(here.Codes, stored.Codes) || !slices.Equal(here.AbsmaxU8, stored.AbsmaxU8) ||
				!slices.Equal(here.Absmax, stored.Absmax) {
				t.Errorf("%s: %s has other codes or scales", name, tensor)
			}
			if !slices.Equal(here.Table2, stored.Table2) {
				t.Errorf("%s: %s has another table of scales", name, tensor)
			}
			near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= 2e-7*math.Abs(float64(b)) }
			if !near(here.Offset, stored.Offset) || !slices.EqualFunc(here.Absmax2, stored.Absmax2,
				func(a, b float32) bool {
					return math.Abs(float64(a-b)) <= 2e-7*math.Abs(float64(stored.Offset)+float64(b))
				}) {
				t.Errorf("%s: %s has the second scales %v and %v, want %v and %v", name, tensor, here.Offset,
					here.Absmax2, stored.Offset, stored.Absmax2)
			}
		}
	}
}
