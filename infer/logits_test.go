package infer

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

func TestLogitsEqualTransformers(t *testing.T) {
	b := stories(t)
	ref := golden.Open(t, golden.Path(t, "forward/forward.safetensors"))
	for _, c := range []struct {
		float     kernel.DType
		tag       string
		tolerance float64
	}{{kernel.F32, "f32", 1e-4}, {kernel.F64, "f64", 1e-10}} {
		for _, seq := range []string{"short", "medium", "long"} {
			t.Run(seq+" "+c.tag, func(t *testing.T) {
				ids := ref.Ints(seq + ".ids")
				want := ref.Floats(seq + "." + c.tag + ".logits")
				rows := ref.Shape(seq + "." + c.tag + ".logits")[0]
				got := logitsOf(t, b, c.float, ids, rows)
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				worst := 0.0
				for i := range want {
					worst = math.Max(worst, math.Abs(got[i]-want[i]))
				}
				if !(worst <= c.tolerance) {
					t.Errorf("logits differ by up to %.3g, tolerance %.3g", worst, c.tolerance)
				}
			})
		}
	}
}

func logitsOf(t testing.TB, b *session.Base, float kernel.DType, ids []int32, rows int) []float64 {
	t.Helper()
	on := graph.NewCPU(2)
	l, err := oneSequence(network(t, b, float), len(ids), rows, len(ids), on)
	if err != nil {
		t.Fatal(err)
	}
	r := l.bound(t, b, on)
	if err := r.forward(piece{ids: ids}); err != nil {
		t.Fatal(err)
	}
	got, err := r.logits()
	if err != nil {
		t.Fatal(err)
	}
	return numbers(got)
}

// TestDecodingEqualsTheWhole feeds a sequence piece by piece through the cache, as generation does, and
// compares every row with transformers' logits of the whole.
func TestDecodingEqualsTheWhole(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "families/logits.safetensors"))
	ids := ref.Ints("ids")
	var files map[string]string
	golden.JSON(t, golden.Path(t, "families/models.json"), &files)
	for name, file := range files {
		for _, size := range []int{1, 5} {
			t.Run(name, func(t *testing.T) {
				c, err := families.ParseConfig(golden.ReadFile(t, golden.Path(t, "families/"+name+".config.json")))
				if err != nil {
					t.Fatal(err)
				}
				set, err := weights.OpenFS(fstest.MapFS{"model.safetensors": {Data: golden.ReadFile(t,
					golden.Path(t, "families/"+file+".safetensors"))}}, ".")
				if err != nil {
					t.Fatal(err)
				}
				b := &session.Base{Name: name, Config: c, Weights: set}
				t.Cleanup(func() { b.Close() })
				on := graph.NewCPU(2)
				l, err := oneSequence(network(t, b, kernel.F32), size, size, len(ids), on)
				if err != nil {
					t.Fatal(err)
				}
				r := l.bound(t, b, on)
				want := ref.Floats(name + ".logits")
				worst := 0.0
				for at := 0; at < len(ids); at += size {
					part := ids[at:min(at+size, len(ids))]
					if err := r.forward(piece{start: at, ids: part}); err != nil {
						t.Fatal(err)
					}
					x, err := r.logits()
					if err != nil {
						t.Fatal(err)
					}
					got := numbers(x)
					skip := max(0, size-len(part)) // rows are the last ones; short pieces repeat their first
					for i := range part {
						for v := range c.VocabSize {
							worst = math.Max(worst, math.Abs(got[(skip+i)*c.VocabSize+v]-want[(at+i)*c.VocabSize+v]))
						}
					}
				}
				if !(worst <= 1e-4) {
					t.Errorf("in pieces of %d: logits differ by up to %.3g, tolerance 1e-4", size, worst)
				}
			})
		}
	}
}
