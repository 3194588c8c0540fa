package infer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// samplingCase is what transformers' logits processors leave of some logits.
type samplingCase struct {
	Options struct {
		Temperature       *float64          `json:"temperature"`
		TopK              int               `json:"top_k"`
		TopP              float64           `json:"top_p"`
		MinP              float64           `json:"min_p"`
		RepetitionPenalty float64           `json:"repetition_penalty"`
		FrequencyPenalty  float64           `json:"frequency_penalty"`
		PresencePenalty   float64           `json:"presence_penalty"`
		Bias              map[int32]float64 `json:"bias"`
	} `json:"options"`
	Logits         []float32 `json:"logits"`
	Prompt, Answer []int32
	Probabilities  []float64 `json:"probabilities"`
}

func (c samplingCase) sampler() *sampler {
	o := GenerateOptions{Temperature: 1, TopK: c.Options.TopK, TopP: c.Options.TopP, MinP: c.Options.MinP,
		RepetitionPenalty: c.Options.RepetitionPenalty,
		FrequencyPenalty:  c.Options.FrequencyPenalty, PresencePenalty: c.Options.PresencePenalty, Bias: c.Options.Bias}
	if c.Options.Temperature != nil {
		o.Temperature = *c.Options.Temperature
	}
	s := newSampler(o, c.Prompt)
	for _, id := range c.Answer {
		s.seen[id] = true
		s.count[id]++
	}
	return s
}

// TestSamplersEqualTransformers: the probabilities of every token after penalties, temperature and filters.
func TestSamplersEqualTransformers(t *testing.T) {
	var cases []samplingCase
	golden.JSON(t, golden.Path(t, "sampling/sampling.json"), &cases)
	if len(cases) < 20 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		s := c.sampler()
		x := s.penalised(c.Logits)
		left, sum := s.filtered(x, x[likeliest(x)])
		got := make([]float64, len(x))
		for n := range left.bound() {
			if k, ok := left.at(n); ok {
				got[k.id] = left.weight(k.logit) / sum
			}
		}
		for id, want := range c.Probabilities {
			if math.Abs(got[id]-want) > 2e-6 || (want == 0) != (got[id] == 0) {
				t.Errorf("%+v: token %d has the probability %v, transformers %v", c.Options, id, got[id], want)
			}
		}
	}
}

// TestSamplingFollowsProbabilities: of many tokens drawn each comes about as often as it should, and a seed gives the
// same ones.
func TestSamplingFollowsProbabilities(t *testing.T) {
	var cases []samplingCase
	golden.JSON(t, golden.Path(t, "sampling/sampling.json"), &cases)
	c := cases[len(cases)-2]
	const draws = 20000
	count := make([]float64, len(c.Logits))
	s, again := c.sampler(), c.sampler()
	for range draws {
		id := s.pick(c.Logits)
		if other := again.pick(c.Logits); other != id {
			t.Fatalf("one seed gave %d and %d", id, other)
		}
		count[id]++
	}
	for id, p := range c.Probabilities {
		if d := math.Abs(count[id] - p*draws); d > 5*math.Sqrt(draws*p*(1-p))+1 {
			t.Errorf("token %d came %v times of %d, its probability is %v", id, count[id], draws, p)
		}
	}
}

// TestDescending: candidates come as a sort would give them.
func TestDescending(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		d := &descending{temperature: 1}
		for i := range 1 + random.IntN(50) {
			d.heap = append(d.heap, candidate{int32(i), float32(random.IntN(12))})
		}
		want := slices.Clone(d.heap)
		slices.SortStableFunc(want, func(a, b candidate) int { return int(b.logit - a.logit) })
		for i := len(d.heap)/2 - 1; i >= 0; i-- {
			d.sink(i)
		}
		for n, w := range want {
			if got, ok := d.at(n); !ok || got != w {
				t.Fatalf("%d: %v, want %v", n, got, w)
			}
		}
		if _, ok := d.at(len(want)); ok {
			t.Fatal("one too many")
		}
	}
}

func TestLogprobs(t *testing.T) {
	logits := []float32{1, 3, 2, 3, -1}
	sum := 0.
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	golden.Near(t, "log-probability", logprob(logits, 2), 2-math.Log(sum), 1e-12)
	top := topLogprobs(logits, 3)
	if got := fmt.Sprint(top[0].ID, top[1].ID, top[2].ID, len(top)); got != "1 3 2 3" {
		t.Errorf("the likeliest are %s", got)
	}
	if len(topLogprobs(logits, 9)) != 5 || topLogprobs(logits, 0) != nil {
		t.Error("another number of them")
	}
}
