package kernel

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBodiesStoreComputeType: a GPU body that asked for bf16 would read other bytes in a plan of another precision.
func TestBodiesStoreComputeType(t *testing.T) {
	files, err := filepath.Glob("*.go")
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if err != nil || len(files) < 10 {
		t.Fatalf("bodies %v, %v", files, err)
	}
	asks := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`\[\]DType\{[^}]*\}`).FindAllString(string(b), -1) {
			// Weights in bf16 alone are kept so in every precision.
			if f != "stochastic.go" && regexp.MustCompile(`\bB?F16\b`).MatchString(line) {
				t.Errorf("%s: %s: ask for ComputeType, which the plan's precision resolves", f, line)
			}
			if regexp.MustCompile(`\bComputeType\b`).MatchString(line) {
				asks++
			}
		}
	}
	if asks < 20 {
		t.Errorf("%d lists of stored types name ComputeType: the search misses them", asks)
	}
}

func TestPrecision(t *testing.T) {
	for p, want := range map[Precision]string{PrecisionBF16: "bf16 bf16", PrecisionFP16: "fp16 f16",
		PrecisionTF32: "tf32 f32", PrecisionFP32: "fp32 f32"} {
		if got := p.String() + " " + p.Stored(ComputeType).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if p.Stored(I32) != I32 || p.Stored(F32) != F32 {
			t.Errorf("%v changes a type that is not ComputeType", p)
		}
	}
	if got := Precision(0).String(); got != "precision(0)" {
		t.Errorf("precision 0 is called %q", got)
	}
}
