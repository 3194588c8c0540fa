package train

import (
	"context"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
)

// envSmolLM2 names the folder of SmolLM2-135M-Instruct, which the repository does not hold (269 MB).
const envSmolLM2 = "TIERLORA_SMOLLM2"

// envSmolLM2Steps is how many steps of the 100-step curves are run; 20 unless it says otherwise.
const envSmolLM2Steps = "TIERLORA_SMOLLM2_STEPS"

func smolLM2(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(envSmolLM2)
	if dir == "" {
		t.Skipf("%s is not set: the model is not in the repository", envSmolLM2)
	}
	return dir
}

// evaluation is what transformers computes in float32 over chat rows.
type evaluation struct {
	Mean float64 `json:"mean_nll"`
	Rows []struct {
		IDs     []int32 `json:"ids"`
		Prompt  int     `json:"prompt_tokens"`
		Trained int     `json:"trained_tokens"`
		NLL     float64 `json:"nll_sum"`
	} `json:"rows"`
}

func smolLM2Evaluation(t testing.TB) (want evaluation) {
	t.Helper()
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/evaluation.json"), &want)
	return want
}

func TestSmolLM2EvaluatesAsTransformers(t *testing.T) {
	dir := smolLM2(t)
	want := smolLM2Evaluation(t)
	b, err := openBase(context.Background(), dir, Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	longest := 0
	for _, r := range want.Rows {
		longest = max(longest, len(r.IDs))
	}
	nw, err := networkOf(Spec{Adapter: "lora"}, b)
	if err != nil {
		t.Fatal(err)
	}
	nw.Adapted = false
	on := graph.NewCPU(0)
	step, err := newEvalStep(nw, shape{longest, 1, longest}, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := on.NewStore(step.plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.load(context.Background(), step.net, m, on.Workers()); err != nil {
		t.Fatal(err)
	}
	run, err := on.Bind(step.plan, m)
	if err != nil {
		t.Fatal(err)
	}
	in, err := bindBatch(m, evalPrefix)
	if err != nil {
		t.Fatal(err)
	}
	var nll float64
	trained := 0
	for i, r := range want.Rows {
		ids, labels := make([]int32, longest), make([]int32, longest)
		for k := range labels {
			labels[k] = -100
			if k < len(r.IDs) {
				ids[k] = r.IDs[k]
				if k >= r.Prompt {
					labels[k] = r.IDs[k]
				}
			}
			in.positions[k] = int32(k)
		}
		copy(in.ids, ids)
		in.cu[0], in.cu[1], in.scale[0] = 0, int32(longest), 1
		n := shiftLabels(in.labels, labels, in.cu)
		if n != r.Trained {
			t.Fatalf("row %d: %d trained tokens, want %d", i, n, r.Trained)
		}
		got, err := in.evaluate(run, step)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "row's NLL", got/float64(n), r.NLL/float64(n), 1e-3)
		nll, trained = nll+got, trained+n
	}
	near(t, "mean NLL", nll/float64(trained), want.Mean, 1e-3)
}

func TestSmolLM2GeneratesAsTransformers(t *testing.T) {
	dir := smolLM2(t)
	var want []struct {
		Prompt    string  `json:"prompt"`
		PromptIDs []int32 `json:"prompt_ids"`
		NewIDs    []int32 `json:"new_ids"`
	}
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/generate.json"), &want)
	g, err := NewGenerator(context.Background(), dir, "", "cpu", Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, w := range want {
		if ids := g.base.tokenizer.IDs(w.Prompt, true); !slices.Equal(ids, w.PromptIDs) {
			t.Errorf("%q: prompt ids %v, want %v", w.Prompt, ids, w.PromptIDs)
		}
		ids, err := g.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: len(w.NewIDs)}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, w.NewIDs) {
			t.Errorf("%q: %v, want %v", w.Prompt, ids, w.NewIDs)
		}
	}
}

// TestSmolLM2CurvesEqualPEFT follows PEFT's learning curves on wikisql rows.
func TestSmolLM2CurvesEqualPEFT(t *testing.T) {
	dir := smolLM2(t)
	steps := 20
	if v := os.Getenv(envSmolLM2Steps); v != "" {
		var err error
		if steps, err = parseSteps(v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := openBase(context.Background(), dir, Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	batches := golden.Open(t, golden.Outside(t, "goldens/smollm2/batches.safetensors"))
	ids, labels, T := batches.Ints("input_ids"), batches.Ints("labels"), batches.Shape("input_ids")[1]
	init := golden.Outside(t, "goldens/smollm2/init")
	for _, name := range []string{"lora", "qlora_nf4_double"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Loss []float64 `json:"loss"`
				Norm []float64 `json:"grad_norm"`
				LR   []float64 `json:"lr"`
			}
			golden.JSON(t, golden.Outside(t, "goldens/smollm2/"+name+".json"), &want)
			cfg := peftConfigOf(t, init)
			c := Default()
			c.LearningRate, c.WarmupSteps, c.MaxSteps = 1e-3, 10, 100
			schedule := Schedules["cosine"](c, c.MaxSteps)
			ts := newTestStep(t, b, b.network(t, kernel.F32, schemeOf(name), &cfg), shape{T, 1, T}, c, 0, init)
			worst := 0.0
			for step := range steps {
				near(t, "learning rate", schedule(step), want.LR[step], 1e-15)
				trained := ts.fill(t, ids[step*T:(step+1)*T], labels[step*T:(step+1)*T], T)
				ts.set(t, "loss scale", 1/float64(trained))
				h := hyper(c, want.LR[step], step+1)
				ts.set(t, "optimizer", h[:]...)
				ts.step(t)
				loss := ts.read(t, ts.loss)[0]
				d := math.Abs(loss-want.Loss[step]) / want.Loss[step]
				worst = math.Max(worst, d)
				if !(d <= 1e-3) {
					t.Errorf("step %d: loss %.7g, PEFT %.7g, relative %.3g", step, loss, want.Loss[step], d)
				}
			}
			t.Logf("%d steps, largest relative difference of the loss %.3g", steps, worst)
		})
	}
}
