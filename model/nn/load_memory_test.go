package nn_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// ones is a checkpoint of ones, which allocates nothing.
type ones struct{}

func (ones) Float32s(_ string, _ int, dst []float32) error {
	for i := range dst {
		dst[i] = 1
	}
	return nil
}

// TestLoadingLeavesLittleGarbage: packing weights allocates less than the packed weights take, or the process would
// outgrow the plan while it loads.
func TestLoadingLeavesLittleGarbage(t *testing.T) {
	const layers, size = 40, 256
	q := quant.Default()
	n := nn.New(nn.Options{Scheme: &q})
	x := n.Batch("x", kernel.T(kernel.F32, 3, size))
	y := x
	for i := range layers {
		y = n.Linear(fmt.Sprintf("l%d", i), size, size, false).Apply(y)
	}
	m := compile(t, n, y)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := n.Load(context.Background(), ones{}, m, 1); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated, packed := after.TotalAlloc-before.TotalAlloc, uint64(layers*size*size/2)
	t.Logf("%d bytes for %d of packed weights", allocated, packed)
	if allocated > packed {
		t.Errorf("loading allocates %d bytes for %d of packed weights", allocated, packed)
	}
}
