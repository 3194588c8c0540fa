// Package golden reads reference numbers that other programs made: transformers, PEFT, bitsandbytes,
// tokenizers. What tests of a fresh clone need lies in testdata; the whole set is read from the folder that
// the environment variable TRAINER_DATA names.
package golden

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// Env names the variable with the folder of the whole reference data.
const Env = "TRAINER_DATA"

// Root is the module's folder.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}

// Path is the place of a reference file or folder of this module, such as "train/lora/curve.json". What is packed
// (packed.go) is unpacked for the length of the test.
func Path(t testing.TB, name string) string {
	t.Helper()
	place := filepath.Join(Root(t), "internal", "golden", "testdata", filepath.FromSlash(name))
	if info, err := os.Stat(place); err == nil && info.IsDir() {
		return unpackedFolder(t, place)
	} else if err == nil {
		return place
	}
	for _, ending := range packings {
		if _, err := os.Stat(place + ending); err == nil {
			return unpackedFile(t, place+ending, t.TempDir())
		}
	}
	return place
}

// Outside is the place of a file under TRAINER_DATA; the test is skipped where that is not set.
func Outside(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(Env)
	if dir == "" {
		t.Skipf("%s is not set: %s is not in the repository", Env, name)
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

// JSON reads a JSON file into v. Where there is only a gzipped file of the name with .gz, JSON reads that.
func JSON(t testing.TB, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if packed, failed := os.ReadFile(path + ".gz"); failed == nil {
			raw, err = unzip(packed, 0)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Tensors is an open SafeTensors file of reference numbers.
type Tensors struct {
	t testing.TB
	f *weights.File
}

// Open opens a SafeTensors file for the length of the test.
func Open(t testing.TB, path string) Tensors {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Tensors{t, f}
}

// Names lists the tensors, sorted.
func (g Tensors) Names() []string { return g.f.Names() }

// Shape of a tensor.
func (g Tensors) Shape(name string) []int { return g.get(name).Shape }

// Floats are a tensor's elements.
func (g Tensors) Floats(name string) []float64 {
	g.t.Helper()
	t := g.get(name)
	out := make([]float64, t.Len())
	if err := weights.Float64s(t, out); err != nil {
		g.t.Fatal(err)
	}
	return out
}

// Ints are a tensor's elements.
func (g Tensors) Ints(name string) []int32 {
	g.t.Helper()
	t := g.get(name)
	wide := make([]int64, t.Len())
	if err := weights.Int64s(t, wide); err != nil {
		g.t.Fatal(err)
	}
	out := make([]int32, len(wide))
	for i, v := range wide {
		out[i] = int32(v)
	}
	return out
}

// Bytes are a tensor's bytes as the file has them.
func (g Tensors) Bytes(name string) []byte { return g.get(name).Data }

func (g Tensors) get(name string) weights.Tensor {
	g.t.Helper()
	t, ok := g.f.Tensor(name)
	if !ok {
		g.t.Fatalf("the reference file has no tensor %q", name)
	}
	return t
}

// ReadFile is a file's bytes.
func ReadFile(t testing.TB, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// StoriesDir is the folder of the small model that the repository holds.
func StoriesDir(t testing.TB) string {
	return filepath.Join(Root(t), "configs", "assets", "stories260K")
}

// SmolLM2 is the folder of SmolLM2-135M-Instruct, which the repository does not hold (269 MB). Where the environment
// does not name it the test is skipped.
func SmolLM2(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TRAINER_SMOLLM2")
	if dir == "" {
		t.Skip("TRAINER_SMOLLM2 is not set: the model is not in the repository")
	}
	return dir
}

// Near compares two numbers.
func Near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= tolerance) {
		t.Errorf("%s = %.9g, want %.9g: off by %.3g, tolerance %.3g", what, got, want, d, tolerance)
	}
}

// Numbers are a vector's as float64.
func Numbers(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
