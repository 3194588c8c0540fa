package families_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func furthest(t testing.TB, got []float32, want []float64) (d, size float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d numbers, want %d", len(got), len(want))
	}
	for i, w := range want {
		d, size = max(d, math.Abs(float64(got[i])-w)), max(size, math.Abs(w))
		if math.IsNaN(float64(got[i])) {
			d = math.Inf(1)
		}
	}
	return d, size
}

// TestLogitsEqualTransformers covers what configurations can ask for: grouped heads, biases, head sizes that are not
// the width's share, tied heads, sliding windows, every kind of rotary scaling, heads that are rotated in part, fused
// projections, norms of queries and keys, layers without positions, multipliers.
func TestLogitsEqualTransformers(t *testing.T) {
	seen := map[string][]float64{}
	for _, m := range models(t) {
		name := m.name
		t.Run(name, func(t *testing.T) {
			ref := golden.Open(t, golden.Path(t, filepath.Join(m.folder, "logits.safetensors")))
			ids := ref.Ints("ids")
			w := build(t, m.config(t), 1, len(ids), nn.Options{}, nil, adapter.Config{})
			logits := w.logits()
			r := w.start(t, m.open(t), logits)
			copy(r.ints("ids"), ids)
			r.run.Run("main")
			want := ref.Floats(name + ".logits")
			d, size := furthest(t, r.run.Tensor(logits).F32(), want)
			t.Logf("logits within %.3g differ by at most %.3g", size, d)
			if !(d <= 1e-4) || size < 1 {
				t.Errorf("logits within %.3g differ by up to %.3g, tolerance 1e-4", size, d)
			}
			for other, numbers := range seen { // a case that equals another tests nothing
				if len(numbers) != len(want) {
					continue
				}
				if d, _ := furthest(t, r.run.Tensor(logits).F32(), numbers); d < 1e-2 {
					t.Errorf("the logits are those of %s", other)
				}
			}
			seen[name] = want
		})
	}
}

// runPEFT runs a step with the adapter that PEFT made in a folder, over the rows that its gradients are of, and
// compares loss and logits.
func runPEFT(t *testing.T, dir string, c model.Config,
	from *weights.Set) (w *network, r *running, grads []*nn.Value, ref golden.Tensors) {
	t.Helper()
	return runPEFTOver(t, dir, c, nn.Options{}, reader{from})
}

// runPEFTOver is runPEFT over weights that are stored as the options say.
func runPEFTOver(t *testing.T, dir string, c model.Config, o nn.Options,
	from nn.Reader) (w *network, r *running, grads []*nn.Value, ref golden.Tensors) {
	t.Helper()
	ref = golden.Open(t, filepath.Join(dir, "grads.safetensors"))
	saved, err := adapter.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	lora := saved.Config
	saved.Close()
	lora.Dropout = 0
	ids, labels, shape := ref.Ints("input_ids"), ref.Ints("labels"), ref.Shape("input_ids")
	B, T := shape[0], shape[1]
	method := adapter.Methods["lora"]
	w = build(t, c, B, T, o, &method, lora)
	loss := w.loss()
	if b := w.Balance(); b != nil {
		loss = b.Add(w.Net, loss, w.Batch("labels", kernel.T(kernel.I32, B*T)),
			w.Batch("scale", kernel.T(w.Float(), 1)), nil)
	}
	logits := w.logits()
	grads = w.Grad(loss, w.trained.Params...)
	r = w.startFrom(t, from, append([]*nn.Value{loss, logits}, grads...)...)
	r.load(dir, w.trained)
	copy(r.ints("ids"), ids)
	trained := 0
	for i := range labels { // each place predicts the next one's label
		next := int32(kernel.Untrained)
		if i%T != T-1 {
			next = labels[i+1]
		}
		if r.ints("labels")[i] = next; next >= 0 {
			trained++
		}
	}
	r.tensor("scale").F32()[0] = 1 / float32(trained)
	r.run.Run("main")

	if d, size := furthest(t, r.run.Tensor(loss).F32(), ref.Floats("loss")); !(d <= 1e-5*size) {
		t.Errorf("loss %v, PEFT %v", r.run.Tensor(loss).F32(), ref.Floats("loss"))
	}
	want := ref.Floats("logits")
	d, size := furthest(t, r.run.Tensor(logits).F32()[:len(want)], want)
	t.Logf("logits within %.3g differ by at most %.3g", size, d)
	if !(d <= 1e-4) {
		t.Errorf("logits differ by up to %.3g, tolerance 1e-4", d)
	}
	return w, r, grads, ref
}

// TestGradientsEqualPEFT compares loss, logits and gradients of adapters that PEFT made.
func TestGradientsEqualPEFT(t *testing.T) {
	adapters := 0
	for _, m := range models(t) {
		dir := m.path(t, ".lora")
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		adapters++
		t.Run(m.name, func(t *testing.T) {
			w, r, grads, ref := runPEFT(t, dir, m.config(t), m.open(t))
			sameGradients(t, w, r, grads, ref, len(ref.Names())-4)
		})
	}
	// llama's are in train's TestGradientsEqualPEFT, those of mixtures of experts in experts_test.go
	const elsewhere = 10
	if want := len(families.Table) - elsewhere; adapters < want {
		t.Errorf("adapters of %d models, want %d", adapters, want)
	}
}

// TestPEFTReadsOurAdapter: PEFT gives the same logits with an adapter that this program trained.
func TestPEFTReadsOurAdapter(t *testing.T) {
	dir := golden.Path(t, "ours")
	saved, err := adapter.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	lora := saved.Config
	saved.Close()
	lora.Dropout = 0
	ref := golden.Open(t, filepath.Join(dir, "logits.safetensors"))
	ids := ref.Ints("ids")
	stories := filepath.Join(golden.Root(t), "configs", "assets", "stories260K")
	method := adapter.Methods["lora"]
	w := build(t, loadConfig(t, filepath.Join(stories, "config.json")), 1, len(ids), nn.Options{}, &method, lora)
	logits := w.logits()
	r := w.start(t, openWeights(t, filepath.Join(stories, "model.safetensors"), model.Config{}), logits)
	r.load(dir, w.trained)
	copy(r.ints("ids"), ids)
	r.run.Run("main")
	d, size := furthest(t, r.run.Tensor(logits).F32(), ref.Floats("logits"))
	t.Logf("logits within %.3g differ by at most %.3g", size, d)
	if !(d <= 1e-4) {
		t.Errorf("logits within %.3g differ from PEFT's by up to %.3g, tolerance 1e-4", size, d)
	}
}

func TestUnknownFamily(t *testing.T) {
	_, err := families.For(model.Config{ModelType: "gpt2"})
	want := `config.json: model_type "gpt2" is not one of ` +
		strings.Join(slices.Sorted(maps.Keys(families.Table)), ", ")
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
