package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// TestNamedNumbers: numbers of any name are drawn, of training and of evaluations; after a resume the later lines
// count, null is a gap, and keys that every run writes are no numbers of an objective.
func TestNamedNumbers(t *testing.T) {
	step := func(n int, more string) string {
		return fmt.Sprintf(`{"step":%d,"epoch":0.5,"loss":2,"data_ms":1,%s}`+"\n", n, more)
	}
	text := step(1, `"reward":0.5,"kl (nats)":0.1`) + `{"step":1,"epoch":0.5,"eval_loss":3,"eval_reward":0.25,"eval_runtime":1}` + "\n" +
		step(2, `"reward":0.7`) + `{"step":2,"eval_loss":3,"eval_reward":9}` + "\n" + step(2, `"reward":0.8`) + step(3, `"reward":null`)
	r := read(t, map[string]string{train.MetricsFile: text})
	var got []string
	for _, n := range r.Numbers {
		got = append(got, fmt.Sprint(n.Name, n.X, n.Y, n.EvalX, n.Eval))
	}
	if want := "reward[1 2 3] [0.5 0.8 NaN] [1] [0.25]|kl (nats)[1] [0.1] [] []"; strings.Join(got, "|") != want {
		t.Errorf("%s, want %s", strings.Join(got, "|"), want)
	}
	_, markdown := pages(t, r)
	for _, want := range []string{"## Numbers of the objective", "**reward**", "**kl \\(nats\\)**"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("no %q in\n%s", want, markdown)
		}
	}
	other := read(t, map[string]string{train.MetricsFile: step(1, `"reward":0.1`)})
	if _, markdown := pages(t, r, other); !strings.Contains(markdown, "**reward, evaluation**") {
		t.Error(markdown)
	}
}

// preferring is an objective that reports an accuracy.
type preferring struct{ objective.Objective }

func (preferring) Numbers() []objective.Number {
	return []objective.Number{{Name: "rewards/accuracies", HigherIsBetter: true}}
}

// TestBestOfANumber: bounds of named numbers are judged, the best evaluation is that of the run's metric, the highest
// where the objective says so, and runs of one metric are compared by it.
func TestBestOfANumber(t *testing.T) {
	objective.Objectives["preferring"] = func(objective.Config) objective.Objective { return preferring{} }
	t.Cleanup(func() { delete(objective.Objectives, "preferring") })
	run := func(first, last float64) *Run {
		text := `{"step":1,"loss":2,"rewards/accuracies":0.5}` + "\n"
		for i, v := range []float64{first, last} {
			text += fmt.Sprintf(`{"step":%d,"eval_loss":%v,"eval_rewards/accuracies":%v,"eval_runtime":1}`+"\n", i+1, 3-v, v)
		}
		r := read(t, map[string]string{train.MetricsFile: text + `{"step":2,"train_loss":2,"train_runtime":1}` + "\n"})
		r.Total = 2
		r.Settings = []Setting{
			{Key: "training.objective", Value: "preferring"},
			{Key: "training.metric_for_best_model", Value: "eval_rewards/accuracies"},
			{Key: "expect.at_least.eval_rewards/accuracies", Value: "0.7"},
			{Key: "expect.at_most.rewards/accuracies", Value: "0.4"},
			{Key: "expect.at_most.rewards/margins", Value: "1"},
		}
		return r
	}
	low, high := run(0.6, 0.75), run(0.8, 0.65)
	if m := high.Summary().BestMetric; m == nil || *m != (Metric{"eval_rewards/accuracies", 0.8, 1}) {
		t.Errorf("the best evaluation is %+v", m)
	}
	want := "pass 0.75, wanted at least 0.7|fail 0.5, wanted at most 0.4|skip the end of the run reports no rewards/margins"
	var got []string
	for _, c := range low.Checks() {
		got = append(got, fmt.Sprint(c.State, " ", c.Detail))
	}
	if strings.Join(got, "|") != want {
		t.Errorf("judged %q, want %q", got, want)
	}
	SetNames([]*Run{low, high})
	low.Name, high.Name = "low", "high"
	if text := bestOf([]*Run{low, high}).Text; !strings.HasPrefix(text, "Best by eval_rewards/accuracies: high, 0.8 at step 1.") {
		t.Error(text)
	}
	low.Settings = low.Settings[:1] // it goes by its loss
	if text := bestOf([]*Run{low, high}).Text; !strings.HasPrefix(text, "Best by evaluation loss: high, 2.2 at step 1.") {
		t.Error(text)
	}
}

// TestLossesWithoutPerplexity checks that only the loss of plain cross-entropy has a unit and a perplexity.
func TestLossesWithoutPerplexity(t *testing.T) {
	text := `{"step":1,"loss":0.6}` + "\n" + `{"step":1,"eval_loss":0.5,"eval_runtime":1}` + "\n"
	for _, c := range []struct {
		settings []Setting
		has      bool
	}{
		{nil, true},
		{[]Setting{{Key: "training.objective", Value: "cross_entropy"}}, true},
		{[]Setting{{Key: "training.objective", Value: "dpo"}}, false},
		{[]Setting{{Key: "dataset.weights", Value: "true"}}, false},
	} {
		r := read(t, map[string]string{train.MetricsFile: text})
		r.Settings = c.settings
		page, _ := pages(t, r)
		card := fmt.Sprint(Card{}.results(r))
		for _, word := range []string{"perplexity", "nats a token"} {
			if strings.Contains(page, word) != c.has || word == "perplexity" && strings.Contains(card, word) != c.has {
				t.Errorf("%v: %s on the page or the card: %v", c.settings, word, !c.has)
			}
		}
	}
}

// TestFixedKeysAreTrains: every key of a line that train writes is known, so that none is taken for an objective's.
func TestFixedKeysAreTrains(t *testing.T) {
	var look func(reflect.Type)
	look = func(s reflect.Type) {
		for i := range s.NumField() {
			f := s.Field(i)
			if f.Anonymous {
				look(f.Type.Elem())
			} else if name := f.Tag.Get("json"); name != "-" && !fixedKeys[name] {
				t.Errorf("%s is not among the keys that every run writes", name)
			}
		}
	}
	look(reflect.TypeFor[train.StepMetrics]())
	look(reflect.TypeFor[train.EvalMetrics]())
}

// FuzzEachNumber: of a flat object the numbers are those that encoding/json reads; no text is a fault.
func FuzzEachNumber(f *testing.F) {
	for _, text := range []string{`{"a":1,"b":null,"c":"x,\"}","d":-2.5e3}`, `{"a":[1]}`, `{`, `{"a"`, `{"a":}`, `{"\u0061":1}`, ` { "a" : 1 } `} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := map[string]float64{}
		eachNumber([]byte(text), func(name string, v float64) { got[name] = v })
		var want map[string]any
		if json.Unmarshal([]byte(text), &want) != nil || strings.Contains(text, "\\") {
			return
		}
		for name, v := range got {
			if w, ok := want[name].(float64); !math.IsNaN(v) && (!ok || w != v) && strings.Count(text, name) < 2 {
				t.Errorf("%s is %v, want %v", name, v, want[name])
			}
		}
	})
}
