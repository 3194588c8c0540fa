package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// untiedStories returns a folder with the small model whose head is a tensor of its own, with the embeddings' numbers.
func untiedStories(t testing.TB) string {
	t.Helper()
	from, dir := golden.StoriesDir(t), t.TempDir()
	whole, err := weights.Open(filepath.Join(from, weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close() //nolint:errcheck // read only
	var all []weights.Tensor
	for _, n := range whole.Names() {
		x, _ := whole.Tensor(n)
		all = append(all, x)
		if n == "model.embed_tokens.weight" {
			x.Name = "lm_head.weight"
			all = append(all, x)
		}
	}
	file, err := weights.Encode(all, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	golden.JSON(t, filepath.Join(from, "config.json"), &config)
	config["tie_word_embeddings"] = false
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": raw, weights.SingleFile: file,
		"tokenizer.json": golden.ReadFile(t, from, "tokenizer.json")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fullStep returns a step that trains every weight of a model.
func fullStep(t testing.TB, b *session.Base, float kernel.DType, z session.Shape, c Config, workers int) *testStep {
	t.Helper()
	nw := network(t, b, float, nil, nil)
	nw.Trainable = func(string) bool { return true }
	on := graph.NewCPU(workers)
	planned, err := step.Plan(nw, z, c.Step(crossEntropy), step.Summing{}, on)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(planned.Net); err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), planned.Net, m, 2) },
		&planned.Program)
	if err != nil {
		t.Fatal(err)
	}
	return &testStep{Step: planned, memory: m, run: m.Runs[0]}
}

// digest is the norm, the sum and the product with cos(0.1 i) of a tensor.
type digest struct {
	Norm   float64 `json:"norm"`
	Sum    float64 `json:"sum"`
	DotCos float64 `json:"dot_cos"`
}

func digestOf(v []float64) (d digest) {
	squares := 0.
	for i, x := range v {
		squares += x * x
		d.Sum += x
		d.DotCos += x * math.Cos(0.1*float64(i))
	}
	d.Norm = math.Sqrt(squares)
	return d
}

// near compares digests; sums are compared with the size that sums of so many numbers of that norm have.
func (d digest) near(t testing.TB, what string, got digest, tolerance float64, elems int) {
	t.Helper()
	golden.Near(t, "norm of "+what, got.Norm, d.Norm, tolerance*d.Norm)
	size := d.Norm * math.Sqrt(float64(elems))
	golden.Near(t, "sum of "+what, got.Sum, d.Sum, tolerance*size)
	golden.Near(t, "product of "+what, got.DotCos, d.DotCos, tolerance*size)
}

// eachTied runs a test on the small model with tied embeddings, and with a head of its own.
func eachTied(t *testing.T, f func(t *testing.T, b *session.Base, name string)) {
	dirs := map[string]string{"tied": golden.StoriesDir(t), "untied": untiedStories(t)}
	for _, name := range []string{"tied", "untied"} {
		t.Run(name, func(t *testing.T) {
			b, err := session.OpenBase(context.Background(), dirs[name], session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close() //nolint:errcheck // read only
			f(t, b, name)
		})
	}
}

// TestFullGradientsEqualTransformers compares the gradient of every base weight: digests of all, numbers of some. The
// numbers of the tied model's are outside.
func TestFullGradientsEqualTransformers(t *testing.T) {
	batch := golden.Open(t, golden.Path(t, "full/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	var want struct {
		Loss   float64           `json:"loss_f64"`
		Tied   map[string]digest `json:"tied"`
		Untied map[string]digest `json:"untied"`
	}
	golden.JSON(t, golden.Path(t, "full/grads.json"), &want)
	eachTied(t, func(t *testing.T, b *session.Base, name string) {
		digests, file := want.Tied, filepath.Join(os.Getenv(golden.Env), "goldens/methods/full/grads_tied.safetensors")
		if name == "untied" {
			digests, file = want.Untied, golden.Path(t, "full/grads_untied.safetensors")
		}
		for _, c := range []struct {
			float        kernel.DType
			loss, tensor float64
		}{{kernel.F32, 1e-5, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
			t.Run(c.float.String(), func(t *testing.T) {
				z := session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}
				ts := fullStep(t, b, c.float, z, Default(), 2)
				trained := ts.fill(t, ids, labels, dims[1])
				ts.set(t, "loss scale", 1/float64(trained))
				ts.run.Run(step.SegmentBegin)
				ts.run.Run(step.SegmentMicro)
				golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, c.loss*want.Loss)
				if len(ts.Trained.Params) != len(digests) {
					t.Errorf("%d gradients, want %d", len(ts.Trained.Params), len(digests))
				}
				var ref golden.Tensors
				if _, err := os.Stat(file); err == nil {
					ref = golden.Open(t, file)
				}
				for _, p := range ts.Trained.Params {
					x, err := ts.memory.Tensor(step.GradientName(p.Name))
					if err != nil {
						t.Fatal(err)
					}
					got := numbers(x)
					digests[p.Name].near(t, p.Name, digestOf(got), c.tensor, len(got))
					compareFull(t, ref, p.Name, got, c.tensor)
				}
			})
		}
	})
}

// compareFull compares a gradient with the reference's numbers, where those have it.
func compareFull(t *testing.T, ref golden.Tensors, name string, got []float64, tolerance float64) {
	t.Helper()
	if ref == (golden.Tensors{}) {
		return
	}
	names := ref.Names()
	if slices.Contains(names, name+".rows") {
		rows, want := ref.Ints(name+".rows"), ref.Floats(name+".grads_of_rows")
		width, of := len(want)/len(rows), make([]float64, len(got))
		for i, r := range rows {
			copy(of[int(r)*width:][:width], want[i*width:])
		}
		if d := distance(got, of); !(d <= tolerance) {
			t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", name, d, tolerance)
		}
	}
	if slices.Contains(names, name) {
		if d := distance(got, ref.Floats(name)); !(d <= tolerance) {
			t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", name, d, tolerance)
		}
	}
}

// TestFullCurvesEqualTransformers trains all weights for 20 steps as transformers' Trainer does, which decays all but
// norms, and compares losses, norms and the weights at the end.
func TestFullCurvesEqualTransformers(t *testing.T) {
	t.Parallel()
	data := golden.Open(t, golden.Path(t, "full/train.safetensors"))
	ids, labels := data.Ints("input_ids"), data.Ints("labels")
	type steps struct {
		curve
		Norms []float64 `json:"norm_of_all_parameters"`
	}
	var want struct {
		Steps       int               `json:"steps"`
		Rows        int               `json:"rows"`
		Length      int               `json:"length"`
		WeightDecay float64           `json:"weight_decay"`
		Clip        float64           `json:"clip"`
		NotDecayed  []string          `json:"not_decayed"`
		Tied        steps             `json:"tied_f64"`
		Untied      steps             `json:"untied_f64"`
		FinalTied   map[string]digest `json:"final_tied"`
		FinalUntied map[string]digest `json:"final_untied"`
	}
	golden.JSON(t, golden.Path(t, "full/curve.json"), &want)
	eachTied(t, func(t *testing.T, b *session.Base, name string) {
		curve, final := want.Tied, want.FinalTied
		if name == "untied" {
			curve, final = want.Untied, want.FinalUntied
		}
		ref := golden.Open(t, golden.Path(t, "full/final_"+name+".safetensors"))
		for _, v := range []struct {
			float                  kernel.DType
			loss, norm, end, whole float64
		}{{kernel.F32, 1e-4, 2e-2, 2e-3, 1e-5}, {kernel.F64, 1e-9, 1e-9, 1e-6, 1e-9}} {
			t.Run(v.float.String(), func(t *testing.T) {
				c := Default()
				c.WeightDecay, c.MaxGradNorm, c.MaxSteps = want.WeightDecay, want.Clip, want.Steps
				T, rows := want.Length, want.Rows
				ts := fullStep(t, b, v.float, session.Shape{Tokens: rows * T, Sequences: rows, MaxLen: T}, c, 2)
				for i, p := range ts.Trained.Params {
					if ts.Trained.Undecayed[i] != slices.Contains(want.NotDecayed, p.Name) {
						t.Errorf("%s: decayed against transformers' rule", p.Name)
					}
				}
				for at := range want.Steps {
					from := at * rows * T
					trained := ts.fill(t, ids[from:from+rows*T], labels[from:from+rows*T], T)
					ts.set(t, "loss scale", 1/float64(trained))
					h := adamNumbers(c, curve.LR[at], at+1)
					ts.set(t, "optimizer", h[:]...)
					ts.step(t)
					golden.Near(t, "loss", ts.read(t, ts.Loss)[0], curve.Loss[at], v.loss*curve.Loss[at])
					norm := curve.GradNorm[at]
					golden.Near(t, "gradient norm", ts.read(t, ts.Norm)[0], norm, v.norm*norm)
					golden.Near(t, "norm of all weights", ts.weightNorm(t), curve.Norms[at], v.whole*curve.Norms[at])
				}
				for _, p := range ts.Trained.Params {
					x, err := ts.memory.Tensor(p.Name)
					if err != nil {
						t.Fatal(err)
					}
					got := numbers(x)
					final[p.Name].near(t, p.Name, digestOf(got), v.end, len(got))
					if slices.Contains(ref.Names(), p.Name) {
						for i, w := range ref.Floats(p.Name) {
							golden.Near(t, p.Name, got[i], w, v.end)
						}
					}
				}
			})
		}
	})
}

// weightNorm returns the norm of all trained tensors.
func (ts *testStep) weightNorm(t testing.TB) float64 {
	t.Helper()
	sum := 0.
	for _, p := range ts.Trained.Params {
		x, err := ts.memory.Tensor(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range numbers(x) {
			sum += w * w
		}
	}
	return math.Sqrt(sum)
}
