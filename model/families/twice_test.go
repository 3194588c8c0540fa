package families_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
)

// TestAppliedTwice applies every family to two batches in one network: its layers are declared once, so weights,
// trained tensors and adapted layers are those of one application, and equal batches give equal bits.
func TestAppliedTwice(t *testing.T) {
	const rows, ts = 2, 6
	method, lora := adapter.Methods["lora"], adapter.Default()
	lora.TargetModules = adapter.Targets{adapter.AllLinear}
	all := models(t)
	names, file := expertModels(t)
	for _, name := range names {
		all = append(all, referenceModel{expertFolder(name), name, file[name]})
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			c := m.config(t)
			once := build(t, c, rows, ts, nn.Options{}, &method, lora)
			w := build(t, c, rows, ts, nn.Options{}, &method, lora)
			f, err := families.For(c)
			if err != nil {
				t.Fatal(err)
			}
			again := w.in
			again.IDs = w.Batch("other ids", kernel.T(kernel.I32, rows*ts))
			second := f(w.Net, c, again)
			w.Head(c.HeadName(), c.VocabSize, c.HiddenSize)
			if err := w.Err(); err != nil {
				t.Fatal(err)
			}
			if a, b := once.WeightNames(), w.WeightNames(); !slices.Equal(a, b) ||
				len(once.Weights()) != len(w.Weights()) {
				t.Fatalf("%d weights (%d named), applied once %d (%d)", len(w.Weights()), len(b),
					len(once.Weights()), len(a))
			}
			if a, b := len(once.trained.List()), len(w.trained.List()); a != b || !slices.Equal(once.trained.Layers,
				w.trained.Layers) || !slices.Equal(once.Quantised(), w.Quantised()) {
				t.Fatalf("%d trained tensors in %v, applied once %d in %v", b, w.trained.Layers, a, once.trained.Layers)
			}
			if !slices.Equal(once.Uninfluential, w.Uninfluential) {
				t.Errorf("without influence are %v, applied once %v", w.Uninfluential, once.Uninfluential)
			}
			r := w.start(t, m.open(t), w.hidden, second)
			for i := range rows * ts {
				r.ints("ids")[i] = int32(7 * i % c.VocabSize)
				r.ints("other ids")[i] = int32(7 * i % c.VocabSize)
			}
			if err := r.run.Run("main"); err != nil {
				t.Fatal(err)
			}
			a, b := r.run.Tensor(w.hidden).F32(), r.run.Tensor(second).F32()
			if !slices.Equal(a, b) || slices.Max(a) == 0 {
				t.Error("the second application gives other numbers")
			}
			r.ints("other ids")[0]++
			if err := r.run.Run("main"); err != nil {
				t.Fatal(err)
			}
			if a, b := r.run.Tensor(w.hidden).F32(), r.run.Tensor(second).F32(); slices.Equal(a, b) {
				t.Error("another batch gives the same numbers")
			}
		})
	}
}
