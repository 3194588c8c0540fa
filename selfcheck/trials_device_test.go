//go:build gpu

package selfcheck

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestGPUTrialsChangeNoBits: the algorithms that trials find fastest give the bits of those that the library chooses,
// and the next run knows them.
func TestGPUTrialsChangeNoBits(t *testing.T) {
	gputest.Need(t)
	folder := t.TempDir()
	t.Setenv("TRAINER_CACHE", folder)
	tried := chained(t)
	files, err := filepath.Glob(filepath.Join(folder, "gemm-*.json"))
	if err != nil || len(files) != 1 {
		t.Skipf("no choices of a library were kept: %v, %v", files, err)
	}
	var a gpu.Algorithms
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	faster := 0
	for key, algorithm := range a.Fastest {
		if !bytes.Equal(algorithm, a.Choice[key]) {
			faster++
		}
	}
	t.Logf("%d shapes, %d tried, %d with another algorithm than the library's first", len(a.Choice), len(a.Fastest),
		faster)
	if len(a.Fastest) < 3 {
		t.Errorf("tried %d shapes of %d, want 3", len(a.Fastest), len(a.Choice))
	}
	a.Fastest = a.Choice
	if b, err = json.Marshal(a); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if first := chained(t); !bytes.Equal(tried, first) {
		t.Error("the fastest algorithms give other bits than the first ones")
	}
	after, err := os.ReadFile(files[0])
	if err != nil || !bytes.Equal(after, b) {
		t.Errorf("what was known has been tried again, %v", err)
	}
}

// chained returns the results of GEMMs one after the other, in each order of the weight's rows and in bf16 and fp32.
func chained(t *testing.T) []byte {
	t.Helper()
	on := gputest.Open(t)
	const M, C = 1792, 2048
	b := graph.NewBuilder(kernel.F32)
	x, w := b.Frozen("x", kernel.T(kernel.F32, M, C)), b.Frozen("w", kernel.T(kernel.F32, C, C))
	var outputs []*graph.Value
	for i := range 6 {
		x = b.Apply(kernel.MatMul{TransB: i%2 == 0, FP32Out: i == 5}, x, w)
		outputs = append(outputs, x)
	}
	outputs = append(outputs, b.Apply(kernel.MatMul{TransA: true}, outputs[0], outputs[1]))
	plan, err := on.Compile(b, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	store, err := on.NewStore(plan)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the numbers were read
	n := uint32(1)
	for i, name := range []string{"x", "w"} {
		scale := []float32{1, 0.04}[i]
		v, err := store.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.F32() {
			n = n*1664525 + 1013904223 // Numerical Recipes' generator
			v.F32()[i] = scale * float32(int32(n)) / (1 << 31)
		}
		if err := store.Put(name); err != nil {
			t.Fatal(err)
		}
	}
	run, err := on.Bind(plan, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Run("main"); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, v := range outputs {
		read, err := run.Read(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read.Bytes()...)
	}
	return all
}
