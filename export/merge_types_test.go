package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// adapterOf writes an adapter of some layers whose A and B are made by a function of their place.
func adapterOf(t *testing.T, layers map[string][2]int, value func(b bool, i int) float32) string {
	t.Helper()
	c := adapter.Default()
	c.R, c.Alpha, c.TargetModules = 1, 1, nil
	var params []adapter.Param
	names := []string{}
	for l := range layers {
		names = append(names, l)
	}
	slices.Sort(names)
	for _, l := range names {
		in, out := layers[l][0], layers[l][1]
		c.TargetModules = append(c.TargetModules, l)
		a := adapter.Param{Name: l + ".lora_A.weight", Shape: []int{1, in}, Data: make([]float32, in)}
		b := adapter.Param{Name: l + ".lora_B.weight", Shape: []int{out, 1}, Data: make([]float32, out)}
		for i := range a.Data {
			a.Data[i] = value(false, i)
		}
		for i := range b.Data {
			b.Data[i] = value(true, i)
		}
		params = append(params, a, b)
	}
	return writeLoRA(t, c, "", names, params)
}

func read(t *testing.T, dir string) *weights.Set {
	t.Helper()
	set, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// TestNF4EqualsBitsandbytes: a folder in NF4 of a model that an adapter does not change has the bytes, tensor by
// tensor, that transformers and bitsandbytes wrote of it, and a configuration that says the same.
func TestNF4EqualsBitsandbytes(t *testing.T) {
	from := golden.Path(t, "prequantised/original")
	none := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {32, 32}}, func(b bool, i int) float32 {
		if b {
			return 0
		}
		return 1
	})
	out := filepath.Join(t.TempDir(), "nf4")
	if _, err := Merge(context.Background(), MergeOptions{Model: from, Adapters: One(none), Out: out, DType: NF4,
		AllowLoss: true}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	compareSets(t, read(t, out), read(t, golden.Path(t, "prequantised/nf4_nested")))
	var ours, theirs struct {
		Q map[string]any `json:"quantization_config"`
	}
	golden.JSON(t, filepath.Join(out, "config.json"), &ours)
	golden.JSON(t, golden.Path(t, "prequantised/nf4_nested/config.json"), &theirs)
	ours.Q["llm_int8_skip_modules"] = nil // theirs names none: the head is their default
	a, _ := json.Marshal(ours.Q)
	b, _ := json.Marshal(theirs.Q)
	if !bytes.Equal(a, b) {
		t.Errorf("quantization_config is\n%s, theirs\n%s", a, b)
	}
	again := filepath.Join(t.TempDir(), "kept") // of a folder that is quantised already the codes stay
	if _, err := Merge(context.Background(), MergeOptions{Model: golden.Path(t, "prequantised/nf4"),
		Adapters: One(none), Out: again, DType: NF4, AllowLoss: true}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	compareSets(t, read(t, again), read(t, golden.Path(t, "prequantised/nf4")))
}

func compareSets(t *testing.T, got, want *weights.Set) {
	t.Helper()
	if !slices.Equal(got.Names(), want.Names()) {
		t.Errorf("tensors %q, want %q", got.Names(), want.Names())
	}
	for _, name := range want.Names() {
		a, _ := got.Tensor(name)
		b, _ := want.Tensor(name)
		if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) || !bytes.Equal(a.Data, b.Data) {
			t.Errorf("%s: %v %v, want %v %v; %q, want %q", name, a.DType, a.Shape, b.DType, b.Shape,
				a.Data[:min(200, len(a.Data))], b.Data[:min(200, len(b.Data))])
		}
	}
}

// TestMergeTypes: every tensor is in the type asked for, config.json says it, shards hold no more than asked for and
// their index names them.
func TestMergeTypes(t *testing.T) {
	for name, want := range map[string]struct {
		d    weights.DType
		said string
	}{"bf16": {weights.BF16, "bfloat16"}, "fp16": {weights.F16, "float16"}, "fp32": {weights.F32, "float32"}} {
		out := filepath.Join(t.TempDir(), "merged")
		report, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(trained(t)),
			Out: out, DType: name, ShardSize: 300_000}, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		set := read(t, out)
		for _, n := range set.Names() {
			if x, _ := set.Tensor(n); x.DType != want.d {
				t.Errorf("%s: %s is %v", name, n, x.DType)
			}
		}
		files, _ := filepath.Glob(filepath.Join(out, "model-*.safetensors"))
		if len(files) != report.Files || report.Files < 2 {
			t.Errorf("%s: %d files, the report says %d", name, len(files), report.Files)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Size() > 310_000 {
				t.Errorf("%s: %s is too large", name, f)
			}
		}
		var config map[string]any
		golden.JSON(t, filepath.Join(out, "config.json"), &config)
		said := config["dtype"]
		if said == nil {
			said = config["torch_dtype"]
		}
		if said != want.said {
			t.Errorf("%s: config.json says %v", name, said)
		}
		if d := report.Drift; d == nil || d.Tokens < 100 || d.MeanKL > 0.01*d.AdapterKL ||
			math.Abs(d.Loss-d.MergedLoss) > 0.01 {
			t.Errorf("%s: drift %+v", name, d)
		}
	}
}

// TestMergeRefusesLoss: an update of less than half a step of bf16 is lost in bf16 and not in fp32; the merge says so
// and leaves nothing.
func TestMergeRefusesLoss(t *testing.T) {
	model := filepath.Join(t.TempDir(), "bf16")
	zero := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64}}, func(bool, int) float32 {
		return 0
	})
	if _, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(zero), Out: model,
		DType: "bf16"}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	small := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64},
		"model.layers.1.self_attn.v_proj": {64, 32}}, func(bool, int) float32 {
		return 2e-4
	})
	above := t.TempDir()
	out := filepath.Join(above, "merged")
	o := MergeOptions{Model: model, Adapters: One(small), Out: out, DType: "bf16"}
	_, err := Merge(context.Background(), o, session.Env{})
	var loss *LossError
	if !errors.As(err, &loss) || loss.Rounding.Kept > 0.2 || loss.Rounding.BelowHalfStep < 0.8 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"rounding to bf16 keeps ", "% of the adapter's update: ",
		"model.layers.0.self_attn.q_proj: ", "the update is 4.07e-08 (root mean square), half a step 0.000682",
		"write --dtype fp32, or serve the base model with the adapter beside it; --allow-loss writes the folder anyway"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if left := entries(t, above); len(left) != 0 {
		t.Errorf("it left %q", left)
	}
	o.DType = "fp32"
	report, err := Merge(context.Background(), o, session.Env{})
	if err != nil || report.Rounding.Kept < 0.99 {
		t.Errorf("in fp32: %v, %+v", err, report.Rounding)
	}
	o.DType, o.AllowLoss, o.Out = "bf16", true, filepath.Join(above, "anyway")
	if report, err = Merge(context.Background(), o, session.Env{}); err != nil || report.Rounding.Kept > 0.2 {
		t.Errorf("allowed: %v, %+v", err, report.Rounding)
	}
}

// TestMergeRoundsOnce: every adapted number of a folder is the base's in bf16, plus the update in float64, rounded to
// float32 and then to the folder's type; where bf16 loses more of the update than a stated share, a note says which
// type keeps it.
func TestMergeRoundsOnce(t *testing.T) {
	const name = "model.layers.2.self_attn.v_proj"
	from := faint(t, map[string][2]int{name: {64, 32}})
	base := inBF16(t, golden.StoriesDir(t), idle(t, nil))
	was := read(t, base)
	before, _ := was.Tensor(name + ".weight")
	w := make([]float32, before.Len())
	if err := weights.Float32s(before, w); err != nil {
		t.Fatal(err)
	}
	for dtype, d := range map[string]weights.DType{"": weights.BF16, "bf16": weights.BF16, "fp16": weights.F16,
		"fp32": weights.F32} {
		out := filepath.Join(t.TempDir(), "merged")
		r, err := Merge(context.Background(), MergeOptions{Model: base, Adapters: One(from), Out: out, DType: dtype,
			AllowLoss: true, Check: []string{}}, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		after, _ := read(t, out).Tensor(name + ".weight")
		got, want := make([]float32, len(w)), make([]float32, len(w))
		if err := weights.Float32s(after, got); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			want[i] = float32(float64(w[i]) + float64(0.01*float32(1+i/64%7))*float64(0.0015*float32(i%64%11-5)))
		}
		weights.RoundFloat32s(want, d, want)
		if after.DType != d || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", dtype, after.DType, got[:5], want[:5])
		}
		noted := slices.ContainsFunc(r.Notes, func(n string) bool {
			return strings.HasPrefix(n, "bf16 keeps ") && strings.Contains(n, "--dtype fp16 keeps ") &&
				strings.HasSuffix(n, " in the same size, fp32 all of it")
		})
		if noted != (d == weights.BF16) {
			t.Errorf("%s: %.3f is kept, notes %q", dtype, r.Rounding.Kept, r.Notes)
		}
	}
}

// TestMergeBases: an adapter that was trained over NF4 gives over that, written as numbers, what it gave in training;
// added to the original weights it gives something else, and the report says how far.
func TestMergeBases(t *testing.T) {
	nf4 := quant.Default()
	o := MergeOptions{Model: golden.StoriesDir(t), Adapters: One(trained(t)), Out: filepath.Join(t.TempDir(),
		"a"), Trained: &nf4}
	report, err := Merge(context.Background(), o, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Base != "trained: nf4 with double quantisation, dequantised" || report.Drift.MeanKL > 1e-9 ||
		report.Drift.Trained != nil {
		t.Errorf("%+v, %+v", report, report.Drift)
	}
	o.Original, o.Out = true, filepath.Join(t.TempDir(), "b")
	if report, err = Merge(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if report.Base != "original, though nf4 was trained over" || report.Drift.MeanKL > 1e-9 ||
		report.Drift.Trained == nil || report.Drift.Trained.MeanKL < 0.01 {
		t.Errorf("%+v, %+v", report, report.Drift)
	}
}

// TestMergeFP16Overflow: a number that fp16 has not is named.
func TestMergeFP16Overflow(t *testing.T) {
	large := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64}}, func(bool, int) float32 {
		return 300
	})
	_, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(large),
		Out: filepath.Join(t.TempDir(), "x"), DType: "fp16"}, session.Env{})
	if err == nil || !strings.Contains(err.Error(), "tensor model.layers.0.self_attn.q_proj.weight is 9000") ||
		!strings.Contains(err.Error(), "which fp16 can't hold (65504 is its largest): use --dtype bf16 or fp32") {
		t.Errorf("%v", err)
	}
}
