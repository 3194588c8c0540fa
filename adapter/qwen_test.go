package adapter_test

import (
	"math"
	"os"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestForeignAdapter reads a published adapter of a 3B model into that model's plan, without the weights.
func TestForeignAdapter(t *testing.T) {
	saved, err := adapter.Open(golden.Outside(t, "data/adapters/qwen2.5-3b-law-r4"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	c, err := families.ParseConfig(readFile(t, golden.Outside(t, "data/configs/qwen2.5-3b-instruct.config.json")))
	if err != nil {
		t.Fatal(err)
	}
	trained := &adapter.Trained{}
	n := nn.New(nn.Options{Wrap: adapter.Methods["lora"].Wrapper(trained, saved.Config)})
	build, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	i32 := func(size int) kernel.Type { return kernel.T(kernel.I32, size) }
	cu := n.Batch("cu", i32(2))
	build(n, c, nn.Batch{IDs: n.Batch("ids", i32(8)), Positions: n.Batch("positions", i32(8)), CuQ: cu, CuK: cu, MaxLen: 8})
	if err := n.Err(); err != nil {
		t.Fatal(err)
	}
	if err := trained.CheckTargets(saved.Config, nil); err != nil {
		t.Fatal(err)
	}
	var params []adapter.Param
	count := 0
	for _, v := range trained.Params {
		params = append(params, adapter.Param{Name: v.Name, Shape: v.Type.Shape, Data: make([]float32, v.Type.Elems())})
		count += v.Type.Elems()
	}
	if err := saved.Read(params); err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		sum := 0.0
		for _, x := range p.Data {
			sum += math.Abs(float64(x))
		}
		if !(sum > 0) || math.IsInf(sum, 0) {
			t.Errorf("%s sums to %v", p.Name, sum)
		}
	}
	t.Logf("%d layers, %d tensors, %d numbers, rank %d, scale %v, base %s", len(trained.Layers), len(params), count, saved.Config.R, saved.Config.Scale(trained.Layers[0]), saved.BaseModel)
}
