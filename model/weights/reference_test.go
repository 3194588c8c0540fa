package weights

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

const stories = "../../configs/assets/stories260K"

// TestPythonFile proves reading and writing against a file that the Python
// safetensors library wrote (testdata/make_python.py).
func TestPythonFile(t *testing.T) {
	const path = "testdata/python.safetensors"
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const odd = "odd \"name\" \\ / \t\n\x01 <é> & \u2028 \x7f"
	if n := len(f.Names()); n != 19 {
		t.Errorf("%d tensors, expected 19: %q", n, f.Names())
	}
	if got, want := f.Metadata()["format"], `pt "x" <é>`; got != want {
		t.Errorf("metadata format = %q, expected %q", got, want)
	}
	floats := map[string][]float32{
		"z.f32": {1.5, -2, 3.25, 0, float32(math.Copysign(0, -1)), math.Float32frombits(71362)},
		"f64":   {1.0 / 3, float32(math.Inf(-1))},
		"f16":   {math.Float32frombits(0x3dccc000), 65504, -0x1p-24},
		"bf16": {math.Float32frombits(0x3dcd0000), math.Float32frombits(0x7f620000), math.Float32frombits(0x80010000),
			2, 5},
		"empty": {},
	}
	for name, want := range floats {
		tensor, ok := f.Tensor(name)
		if !ok {
			t.Errorf("no tensor %q", name)
			continue
		}
		got := make([]float32, tensor.Len())
		if err := Float32s(tensor, got); err != nil {
			t.Error(err)
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d values, expected %d", name, len(got), len(want))
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%s[%d] = %g (%#x), expected %g (%#x)", name, i, got[i], math.Float32bits(got[i]), want[i],
					math.Float32bits(want[i]))
			}
		}
	}
	ints := map[string][]int64{
		"i64": {math.MinInt64, math.MaxInt64}, "i32": {-5, 6, 7}, "i16": {-5, 300}, "i8": {-128, 127},
		"u8": {0, 255, 3}, "u16": {65535}, "u32": {4294967295}, "bool": {1, 0, 1}, "scalar": {42}, odd: {1},
	}
	for name, want := range ints {
		tensor, _ := f.Tensor(name)
		got := make([]int64, len(want))
		if err := Int64s(tensor, got); err != nil {
			t.Error(err)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s = %v, expected %v", name, got, want)
			}
		}
	}

	var all []Tensor
	for _, name := range f.Names() {
		tensor, _ := f.Tensor(name)
		all = append(all, tensor)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Encode(all, f.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("Encode differs from the Python library's bytes:\n%q\n%q", got, want)
	}
	out := filepath.Join(t.TempDir(), "again.safetensors")
	if err := Write(out, all, f.Metadata()); err != nil {
		t.Fatal(err)
	}
	if got, err = os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Write differs from the Python library's bytes (%v)", err)
	}
}

// torchBF16 is the SHA-256 of the file that torch 2.11 and safetensors 0.8 write of the model's weights rounded to
// bf16.
const torchBF16 = "523e80129fa5d49563fbbca01905ca920497e967e338e21f5be02dcf7e862c19"

// roundedStories writes the model's weights, rounded to nearest even, and holds the file to torch's bytes.
func roundedStories(t *testing.T, set *Set) string {
	t.Helper()
	var all []Tensor
	for _, name := range set.Names() {
		full, _ := set.Tensor(name)
		values := make([]float32, full.Len())
		if err := Float32s(full, values); err != nil {
			t.Fatal(err)
		}
		mine, err := FromFloat32s(name, BF16, full.Shape, values)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mine)
	}
	path := filepath.Join(t.TempDir(), "bf16.safetensors")
	if err := Write(path, all, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(written)); got != torchBF16 {
		t.Errorf("the weights rounded to bf16 have the hash %s, torch's %s", got, torchBF16)
	}
	return path
}

// TestStories compares the two files of one model: the bf16 file is the F32
// file rounded to nearest even by torch.
func TestStories(t *testing.T) {
	set, err := OpenDir(stories)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	half, err := Open(roundedStories(t, set))
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	fromFS, err := OpenFS(os.DirFS("../../configs"), "assets/stories260K")
	if err != nil {
		t.Fatal(err)
	}
	defer fromFS.Close()
	parameters := 0
	for _, name := range set.Names() {
		full, _ := set.Tensor(name)
		parameters += full.Len()
		values := make([]float32, full.Len())
		if err := Float32s(full, values); err != nil {
			t.Fatal(err)
		}
		rounded, ok := half.Tensor(name)
		if !ok || rounded.DType != BF16 || full.DType != F32 {
			t.Fatalf("%s: types %s and %s, expected F32 and BF16", name, full.DType, rounded.DType)
		}
		wide := make([]float32, rounded.Len())
		if err := Float32s(rounded, wide); err != nil {
			t.Fatal(err)
		}
		for i := range wide {
			if d := math.Abs(float64(wide[i] - values[i])); d > math.Abs(float64(values[i]))/256 {
				t.Fatalf("%s[%d]: bf16 %g, float32 %g", name, i, wide[i], values[i])
			}
		}
		embedded, _ := fromFS.Tensor(name)
		if !bytes.Equal(embedded.Data, full.Data) {
			t.Errorf("%s: OpenFS and OpenDir differ", name)
		}
	}
	if parameters != 260032 {
		t.Errorf("%d parameters, expected 260032", parameters)
	}
}
