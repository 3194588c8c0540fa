package train

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// headRuns are trained heads of every task, over one base model.
func headRuns(t testing.TB) map[string]Spec {
	t.Helper()
	headsTrained.Do(func() { trainedHeads = trainHeads(untilEnd{t}) })
	if trainedHeads == nil {
		t.Fatal("the runs failed in another test")
	}
	return maps.Clone(trainedHeads)
}

var (
	headsTrained sync.Once
	trainedHeads map[string]Spec
)

func trainHeads(t testing.TB) map[string]Spec {
	t.Helper()
	three := &objective.ClassificationConfig{NumLabels: 3}
	all := map[string]Spec{}
	for name, c := range map[string]struct {
		task, objective string
		row             func(i int) string
		sections        objective.Config
	}{
		"class": {"sequence_classification", "classification", func(i int) string {
			return fmt.Sprintf(`{"input_ids": [%s], "label": %d}`, headTokens(i, 4+i%25), i%3)
		}, objective.Config{Classification: three}},
		"token": {"token_classification", "token_classification", func(i int) string {
			return fmt.Sprintf(`{"input_ids": [%s], "labels": [%d, %d, %d, 2]}`, headTokens(i, 4), i%3, (i+1)%3, i%2)
		}, objective.Config{Classification: three}},
		"reward": {"sequence_classification", "reward", rewardRow, objective.Config{}},
		"mean": {"embedding", "contrastive", pairRow, objective.Config{Embedding: &objective.EmbeddingConfig{
			Pooling: "mean", Normalize: true, Temperature: 0.1}}},
		"last": {"embedding", "contrastive", pairRow, objective.Config{Embedding: &objective.EmbeddingConfig{
			Pooling: "last", Temperature: 0.1}}},
	} {
		s := headSpec(t, 3, c.task, c.objective, c.row)
		s.Adapter, s.Quantization, s.Objectives = "lora", nil, c.sections
		mustStart(t, s, oneWorker)
		all[name] = s
	}
	return all
}

// predictorOf opens a predictor with adapters by name.
func predictorOf(t testing.TB, runs map[string]Spec, names ...string) *infer.Predictor {
	t.Helper()
	var o infer.PredictorOptions
	for _, name := range names {
		o.Adapters = append(o.Adapters, infer.NamedAdapter{Name: name, Dir: runs[name].OutputDir})
	}
	p, err := infer.NewPredictor(t.Context(), session.Options{Model: runs[names[0]].BaseModel, Device: "cpu"}, o,
		oneWorker.Env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// passages are texts of 1 to 60 tokens for a model.
func passages(model int) (all []infer.Passage) {
	for i, n := range []int{5, 16, 17, 1, 40, 3, 9, 60, 2, 12, 7, 4, 31, 33, 2, 2, 3, 1, 6, 8} {
		p := infer.Passage{Model: model}
		for t := range n {
			p.IDs = append(p.IDs, int32(3+(i*131+t*(7+i%5)*29)%500))
		}
		all = append(all, p)
	}
	return all
}

func predict(t testing.TB, p *infer.Predictor, all []infer.Passage) (numbers [][]float32) {
	t.Helper()
	out, err := p.Predict(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range out {
		numbers = append(numbers, one.Numbers)
	}
	return numbers
}

// TestPredictionsStandAlone checks that what a model gives for a text has the same bits whatever texts and models are
// computed with it, and the numbers of the adapter alone.
func TestPredictionsStandAlone(t *testing.T) {
	runs := headRuns(t)
	names := []string{"class", "token", "reward", "mean", "last"}
	together := predictorOf(t, runs, names...)
	var all []infer.Passage
	for model := range names {
		all = append(all, passages(model)...)
	}
	want := predict(t, together, all)
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	got := predict(t, together, reversed)
	slices.Reverse(got)
	for i := range all {
		one := predict(t, together, all[i:i+1])[0]
		if !slices.Equal(one, want[i]) || !slices.Equal(got[i], want[i]) {
			t.Fatalf("text %d of model %s: %v alone, %v in reverse order, %v among others", i, names[all[i].Model], one,
				got[i], want[i])
		}
	}
	for model, name := range names {
		alone := predict(t, predictorOf(t, runs, name), passages(0))
		for i, numbers := range alone {
			among := want[model*len(alone)+i]
			for k := range numbers {
				if d := math.Abs(float64(numbers[k] - among[k])); len(numbers) != len(among) || !(d <= 1e-5) {
					t.Fatalf("model %s, text %d: %v alone, %v beside others", name, i, numbers, among)
				}
			}
		}
	}
	if slices.Equal(want[0], want[2*20]) {
		t.Error("two models give the same numbers")
	}
}

// TestPredictionsEqualEvaluation checks that the loss of predictions is the loss of eval.
func TestPredictionsEqualEvaluation(t *testing.T) {
	runs := headRuns(t)
	softmaxLoss := func(scores []float32, label int) float64 {
		sum := 0.
		for _, x := range scores {
			sum += math.Exp(float64(x - scores[label]))
		}
		return math.Log(sum)
	}
	for _, name := range []string{"class", "token"} {
		s := runs[name]
		s.Dataset.ValSplit, s.Dataset.CacheDir = 0, ""
		report, err := infer.Evaluate(t.Context(), s.Evaluation(s.OutputDir), oneWorker.Env)
		if err != nil {
			t.Fatal(err)
		}
		p := predictorOf(t, runs, name)
		set, _, err := p.LoadData(t.Context(), s.Data(), s.Seed)
		if err != nil {
			t.Fatal(err)
		}
		loss, count := 0., 0
		for i := range set.Train.Len() {
			row := set.Train.Row(i)
			numbers := predict(t, p, []infer.Passage{{IDs: row.IDs}})[0]
			for k, target := range row.Targets {
				loss, count = loss+softmaxLoss(numbers[3*k:][:3], int(target)), count+1
			}
		}
		if loss /= float64(count); !(math.Abs(loss-report.Loss) <= 1e-6) {
			t.Errorf("%s: predictions have a loss of %v, eval %v", name, loss, report.Loss)
		}
	}
}

// TestPredictorRefuses checks the messages of passages and adapters that a predictor cannot take.
func TestPredictorRefuses(t *testing.T) {
	s := headSpec(t, 1, "sequence_classification", "reward", rewardRow)
	mustStart(t, s, oneWorker)
	runs := map[string]Spec{"reward": s}
	p := predictorOf(t, runs, "reward")
	for want, passage := range map[string]infer.Passage{
		"predict text 1 of 1: the text has no token":                                      {},
		"predict text 1 of 1: generate: model 1 of 1":                                     {Model: 1, IDs: []int32{1}},
		"predict text 1 of 1: token 0 is 512, outside the model's vocabulary of 0 to 511": {IDs: []int32{512}},
		"predict text 1 of 1: generate: the text has 513 tokens, and a text may have 512": {IDs: make([]int32, 513)},
	} {
		if _, err := p.Predict(t.Context(), []infer.Passage{passage}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	causal := testSpec(t, 1)
	mustStart(t, causal, oneWorker)
	for _, dirs := range [][]string{{causal.OutputDir}, {s.OutputDir, causal.OutputDir}} {
		var o infer.PredictorOptions
		for i, dir := range dirs {
			o.Adapters = append(o.Adapters, infer.NamedAdapter{Name: fmt.Sprint(i), Dir: dir})
		}
		_, err := infer.NewPredictor(t.Context(), session.Options{Model: s.BaseModel, Device: "cpu"}, o, oneWorker.Env)
		if want := causal.OutputDir + ": the adapter has task_type CAUSAL_LM: it writes text, and gives no scores or " +
			"vectors of texts"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
