package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// savedGoldens is the folder of PEFT's adapters with modules_to_save outside of the repository.
const savedGoldens = "goldens/methods/adapters/"

// savedFolder returns the folder of an adapter of PEFT's. One that is stored without its embeddings gets those that the
// reference numbers have once, and its head where PEFT writes one with the same numbers.
func savedFolder(t *testing.T, name string) string {
	t.Helper()
	switch name {
	case "norms_saved", "tokens": // the former without its gradients, whose norms are compared
		return golden.Path(t, "saved/"+name)
	}
	dir := golden.Outside(t, savedGoldens+name)
	if _, err := os.Stat(filepath.Join(dir, adapter.WeightsFile)); err == nil {
		return dir
	}
	var about struct {
		Files map[string][]int `json:"file_as_PEFT_writes_it"`
	}
	golden.JSON(t, filepath.Join(dir, "grads.json"), &about)
	with := golden.Outside(t, savedGoldens+"embed_and_head_saved")
	both, err := weights.Open(filepath.Join(with, adapter.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close() //nolint:errcheck // read only
	own, err := weights.Open(filepath.Join(dir, "adapter_model.without_embedding.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close() //nolint:errcheck // read only
	var tensors []weights.Tensor
	for name := range about.Files {
		x, ok := own.Tensor(name)
		if !ok {
			x, _ = both.Tensor(adapter.PEFTName("model.embed_tokens.weight"))
			x.Name = name
		}
		tensors = append(tensors, x)
	}
	raw, err := weights.Encode(tensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := t.TempDir()
	for name, data := range map[string][]byte{adapter.WeightsFile: raw,
		adapter.ConfigFile:  golden.ReadFile(t, dir, adapter.ConfigFile),
		"grads.json":        golden.ReadFile(t, dir, "grads.json"),
		"grads.safetensors": golden.ReadFile(t, dir, "grads.safetensors")} {
		if err := os.WriteFile(filepath.Join(whole, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return whole
}

// TestSavedGradientsEqualPEFT compares the loss and all gradients of adapters with modules_to_save over a tied model:
// all norms, the embeddings alone, embeddings and head apart, and both as one; and of one with trained rows of tokens.
func TestSavedGradientsEqualPEFT(t *testing.T) {
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "dora/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	z := session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}
	for _, name := range []string{"norms_saved", "embed_saved", "embed_and_head_saved", "embed_saved_tied", "tokens"} {
		for _, c := range []struct {
			float               kernel.DType
			loss, tensor, norms float64
		}{{kernel.F32, 1e-5, 2e-3, 2e-3}, {kernel.F64, 1e-9, 1e-6, 1e-9}} {
			t.Run(fmt.Sprint(name, " ", c.float), func(t *testing.T) {
				dir := savedFolder(t, name)
				cfg := peftConfigOf(t, dir)
				ts := newTestStep(t, b, network(t, b, c.float, nil, &cfg), z, Default(), 2, dir)
				checkPEFTGradients(t, ts, dir, ids, labels, dims[1], peftTolerance{c.loss, c.tensor, c.norms})
			})
		}
	}
}

// peftTolerance bounds the relative error of a loss, of a tensor's gradient, and of the gradient's norm.
type peftTolerance struct{ loss, tensor, norm float64 }

// checkPEFTGradients compares the loss of a batch and the gradients of all trained tensors with those of a folder of
// PEFT's. Rows have T tokens.
func checkPEFTGradients(t *testing.T, ts *testStep, dir string, ids, labels []int32, T int, within peftTolerance) {
	t.Helper()
	trained := ts.fill(t, ids, labels, T)
	ts.set(t, "loss scale", 1/float64(trained))
	ts.run.Run(step.SegmentBegin)
	ts.run.Run(step.SegmentMicro)
	var want struct {
		Loss  float64            `json:"loss_f64"`
		Norms map[string]float64 `json:"norm_f64"`
	}
	golden.JSON(t, filepath.Join(dir, "grads.json"), &want)
	golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, within.loss*want.Loss)
	if len(ts.Trained.Params) != len(want.Norms) {
		t.Errorf("%d tensors are trained, PEFT trains %d", len(ts.Trained.Params), len(want.Norms))
	}
	gradients := filepath.Join(dir, "grads.safetensors")
	_, missing := os.Stat(gradients)
	var ref golden.Tensors
	if missing == nil {
		ref = golden.Open(t, gradients)
	}
	for _, p := range ts.Trained.Params {
		x, err := ts.memory.Tensor("gradient of " + p.Name)
		if err != nil {
			t.Fatal(err)
		}
		name, got := nameInPEFT(p.Name, want.Norms), numbers(x)
		sum := 0.0
		for _, g := range got {
			sum += g * g
		}
		golden.Near(t, "norm of "+name, math.Sqrt(sum), want.Norms[name], within.norm*want.Norms[name])
		if missing != nil {
			continue
		}
		of := savedGradient(ref, name, len(got))
		if strings.HasSuffix(name, ".lora_embedding_A") {
			of = transposed(of, p.Type.Shape[1])
		}
		if d := distance(got, of); !(d <= within.tensor) {
			t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, within.tensor)
		}
	}
}

// nameInPEFT returns PEFT's name of a trained tensor: the bias of an adapted layer is its base layer's.
func nameInPEFT(name string, known map[string]float64) string {
	peft := adapter.PEFTName(name)
	if _, ok := known[peft]; !ok && strings.HasSuffix(peft, ".bias") {
		return strings.TrimSuffix(peft, "bias") + "base_layer.bias"
	}
	return peft
}

// transposed returns a matrix of so many rows column by column.
func transposed(x []float64, rows int) []float64 {
	y, cols := make([]float64, len(x)), len(x)/rows
	for r := range rows {
		for c := range cols {
			y[c*rows+r] = x[r*cols+c]
		}
	}
	return y
}

// savedGradient returns a reference gradient of n numbers. That of embeddings is stored by the rows of tokens that
// occur.
func savedGradient(ref golden.Tensors, name string, n int) []float64 {
	if !slices.Contains(ref.Names(), name+".rows") {
		return ref.Floats(name)
	}
	all, rows, of := make([]float64, n), ref.Ints(name+".rows"), ref.Floats(name+".grads_of_rows")
	width := len(of) / len(rows)
	for i, row := range rows {
		copy(all[int(row)*width:], of[i*width:(i+1)*width])
	}
	return all
}
