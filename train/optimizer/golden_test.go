package optimizer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/train/optimizer"
)

// reference is one of optim.json's sets of hyper-parameters.
type reference struct {
	Hyper struct {
		LR             *float64  `json:"lr"`
		Momentum       float64   `json:"momentum"`
		Nesterov       bool      `json:"nesterov"`
		WeightDecay    float64   `json:"weight_decay"`
		AdjustLR       *string   `json:"adjust_lr_fn"`
		ScaleParameter bool      `json:"scale_parameter"`
		RelativeStep   bool      `json:"relative_step"`
		WarmupInit     bool      `json:"warmup_init"`
		ClipThreshold  float64   `json:"clip_threshold"`
		Beta1          float64   `json:"beta1"`
		Betas          []float64 `json:"betas"`
		WarmupSteps    int       `json:"warmup_steps"`
	} `json:"hyper"`
}

// config returns our settings for a set of hyper-parameters, and the learning rate of a step, from 1.
func (r reference) config() (optimizer.Config, func(step int) float64) {
	h := r.Hyper
	c := optimizer.Config{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: h.WeightDecay}
	if len(h.Betas) == 2 {
		c.Beta1, c.Beta2 = h.Betas[0], h.Betas[1]
	}
	c.SGDMomentum, c.SGDNesterov = h.Momentum, h.Nesterov
	c.MuonMomentum, c.MuonNesterov, c.MuonAdjustLR = h.Momentum, h.Nesterov, "original"
	if h.AdjustLR != nil {
		c.MuonAdjustLR = *h.AdjustLR
	}
	c.AdafactorBeta1, c.AdafactorClipThreshold, c.AdafactorScaleParameter = h.Beta1, h.ClipThreshold, h.ScaleParameter
	c.AdafactorRelativeStep, c.AdafactorWarmupInit = h.RelativeStep, h.WarmupInit
	return c, func(step int) float64 {
		lr := 0.0
		if h.LR != nil {
			lr = *h.LR
		}
		if h.WarmupSteps > 0 {
			lr *= min(1, float64(step)/float64(h.WarmupSteps))
		}
		return lr
	}
}

// TestOptimizersEqualReferences makes ten updates of LoRA's A and B, a full matrix and a vector as torch, transformers
// and schedulefree do: in float64 to 1e-12, in float32 to the last bits, and Muon in float32, whose iterations are in
// bfloat16, beside torch's own float32 run. All tensors together give the bytes of each alone.
func TestOptimizersEqualReferences(t *testing.T) {
	var all map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "optimizers/optim.json"), &all)
	cases := golden.Open(t, golden.Path(t, "optimizers/cases.safetensors"))
	want := golden.Open(t, golden.Path(t, "optimizers/after.safetensors"))
	for name, of := range map[string]string{
		"sgd_momentum": "sgd", "sgd_nesterov": "sgd",
		"muon": "muon", "muon_match_rms_adamw": "muon", "muon_no_nesterov": "muon",
		"adafactor_trainer": "adafactor", "adafactor_relative": "adafactor", "adafactor_beta1": "adafactor",
		"schedule_free_adamw": "schedule_free_adamw", "schedule_free_adamw_warmup": "schedule_free_adamw",
		"lion_32bit.decoupled": "lion",
	} {
		var r reference
		if err := json.Unmarshal(all[strings.TrimSuffix(name, ".decoupled")], &r); err != nil {
			t.Fatal(err)
		}
		c, rate := r.config()
		tensors := []string{"lora_A", "lora_B", "full"}
		if of != "muon" {
			tensors = append(tensors, "vector")
		}
		for _, float := range []kernel.DType{kernel.F64, kernel.F32} {
			prefix, tolerance := "", 1e-12
			if float == kernel.F32 {
				tolerance = 2e-6
				if of == "muon" {
					prefix, tolerance = "torch.", 2e-3
				}
			}
			t.Run(fmt.Sprint(name, " ", float), func(t *testing.T) {
				u := newShaped(t, float, of, c, tensors, cases, true)
				alone := newShaped(t, float, of, c, tensors, cases, false)
				worst := 0.0
				for s := 1; s <= 10; s++ {
					for _, tensor := range tensors {
						grads := cases.Floats(tensor + ".grads")
						g := grads[(s-1)*len(grads)/10 : s*len(grads)/10]
						u.set(t, "gradient of "+tensor, g)
						alone.set(t, "gradient of "+tensor, g)
					}
					u.step(t, rate(s), s)
					alone.step(t, rate(s), s)
					for _, tensor := range tensors {
						if got, own := u.bytes(t, tensor), alone.bytes(t, tensor); !bytes.Equal(got, own) {
							t.Fatalf("step %d: %s differs from its update alone", s, tensor)
						}
						if s < 10 {
							continue
						}
						key := fmt.Sprintf("%s/%s%s.step10", name, prefix, tensor)
						worst = max(worst, u.near(t, tensor, key, want.Floats(key), tolerance))
					}
				}
				t.Logf("within %.1e", worst)
				if of == "schedule_free_adamw" {
					u.show(t, name, tensors, want, tolerance)
				}
			})
		}
	}
}

// near compares a tensor with reference numbers and returns the largest difference.
func (u *update) near(t *testing.T, tensor, what string, want []float64, tolerance float64) (worst float64) {
	t.Helper()
	for i, got := range u.get(t, tensor)[:len(want)] {
		d := math.Abs(got - want[i])
		if !(d <= tolerance) {
			t.Fatalf("%s[%d] = %v, want %v", what, i, got, want[i])
		}
		worst = max(worst, d)
	}
	return worst
}

// show compares the averaged weights of schedule-free AdamW, and that training goes on with the bytes it had.
func (u *update) show(t *testing.T, name string, tensors []string, want golden.Tensors, tolerance float64) {
	t.Helper()
	before := u.bytes(t, tensors[0])
	if err := u.run.Run("average"); err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		u.near(t, tensor, tensor+".x", want.Floats(name+"/"+tensor+".x"), tolerance)
	}
	if err := u.run.Run("trained"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, u.bytes(t, tensors[0])) {
		t.Error("showing the average changes the weights to train")
	}
}

func (u *update) bytes(t *testing.T, name string) []byte {
	t.Helper()
	x, err := u.m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(x.Bytes())
}

// newShaped is an optimizer with parameters of the given shapes in one buffer, on the CPU.
func newShaped(t *testing.T, float kernel.DType, name string, c optimizer.Config, tensors []string,
	from golden.Tensors, together bool) *update {
	t.Helper()
	u := &update{Optimizer: optimizer.Optimizers[name](c)}
	n := nn.New(nn.Options{Float: float})
	all := optimizer.Update{Net: n, Norm: n.Batch("norm", kernel.T(float, 2)), Numbers: n.Batch("numbers",
		kernel.T(float, optimizer.NumbersSize))}
	at := 0
	for _, name := range tensors {
		typ := kernel.T(float, from.Shape(name+".param0")...)
		one := optimizer.Tensor{Name: name, Shape: typ.Shape, From: at, Param: n.State("adapter", name, typ),
			Grad: n.State("gradients", "gradient of "+name, typ)}
		all.Tensors, all.Extents = append(all.Tensors, one), append(all.Extents, optimizer.Extent{From: at,
			Numbers: typ.Elems()})
		at += int(kernel.AlignUp(typ.Bytes())) / float.Size()
	}
	updates := []optimizer.Update{all}
	updates[0].Params, updates[0].Grads = n.Span("adapter"), n.Span("gradients")
	if !together {
		updates = nil
		for i, v := range all.Tensors {
			one := all
			one.Params, one.Grads, one.Tensor = n.Part(v.Param), n.Part(v.Grad), v.Name
			one.Tensors, one.Extents = all.Tensors[i:i+1:i+1], []optimizer.Extent{{Numbers: v.Param.Type.Elems()}}
			one.Tensors[0].From = 0
			updates = append(updates, one)
		}
	}
	for _, one := range updates {
		u.Apply(one)
	}
	if a, ok := u.Optimizer.(optimizer.Averaging); ok {
		for _, segment := range []string{"average", "trained"} {
			n.Segment(segment)
			for _, one := range updates {
				a.Show(one, segment == "average")
			}
		}
	}
	u.bind(t, n)
	for _, name := range tensors {
		u.set(t, name, from.Floats(name+".param0"))
	}
	return u
}

// TestLion8BitEqualsBitsandbytes makes ten updates of a block of 256 numbers with moments in 8 bits beside the torch
// reference of bitsandbytes: codes, scale and parameters.
func TestLion8BitEqualsBitsandbytes(t *testing.T) {
	ref := golden.Open(t, golden.Path(t, "optimizers/lion_8bit.safetensors"))
	start, grads := ref.Floats("param0"), ref.Floats("grads")
	// bitsandbytes' reference has 8 bits for tensors of any size; the optimizer for those of at least 4096 numbers.
	const padded, block = 4096, 256
	c := optimizer.Config{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1}
	u := newFlat(t, kernel.F32, "lion_8bit", c, []string{"p"}, map[string]int{"p": padded}, true)
	fill := func(name string, v []float64) {
		u.set(t, name, append(v[:len(v):len(v)], make([]float64, padded-len(v))...))
	}
	fill("p", start)
	for s := 1; s <= 10; s++ {
		fill("gradient of p", grads[(s-1)*block:s*block])
		u.step(t, 1e-3, s)
		if s != 1 && s != 2 && s != 10 {
			continue
		}
		key := fmt.Sprintf("lion.step%d.", s)
		u.near(t, "p", key+"param", ref.Floats(key+"param"), 2e-7)
		if got := u.bytes(t, "momentum in 8 bits")[:block]; !bytes.Equal(got, ref.Bytes(key+"state1")) {
			t.Errorf("step %d: codes %v, want %v", s, got, ref.Bytes(key+"state1"))
		}
		u.near(t, "momentum's scales", key+"absmax1", ref.Floats(key+"absmax1"), 1e-7)
	}
}

// TestMuonNeedsMatrices: vectors, embeddings and heads alone are refused, and beside a matrix they get AdamW's update.
func TestMuonNeedsMatrices(t *testing.T) {
	c := optimizer.Config{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	check := optimizer.Optimizers["muon"](c).(optimizer.Checker).Check
	vectors := []optimizer.Tensor{{Name: "model.norm.weight", Shape: []int{64}}, {Name: "model.embed_tokens.weight",
		Shape: []int{512, 64}},
		{Name: "lm_head.weight", Shape: []int{512, 64}}}
	if err := check(vectors); err == nil || !strings.Contains(err.Error(),
		"muon updates matrices, and no trained tensor is one") {
		t.Error(err)
	}
	if err := check(append(vectors, optimizer.Tensor{Name: "q_proj.lora_A.weight", Shape: []int{8, 64}})); err != nil {
		t.Error(err)
	}
	cases := golden.Open(t, golden.Path(t, "optimizers/cases.safetensors"))
	both := newShaped(t, kernel.F64, "muon", c, []string{"lora_A", "vector"}, cases, true)
	alone := newShaped(t, kernel.F64, "adamw", c, []string{"vector"}, cases, true)
	for _, u := range []*update{both, alone} {
		u.set(t, "gradient of vector", cases.Floats("vector.grads")[:9])
		u.step(t, 1e-2, 1)
	}
	if got, want := both.bytes(t, "vector"), alone.bytes(t, "vector"); !bytes.Equal(got, want) {
		t.Error("a vector does not get AdamW's update")
	}
}
