package infer

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tierlora/tierlora/infer/jsonform"
)

// sampler chooses the tokens of one sequence.
type sampler struct {
	o      GenerateOptions
	random *rand.PCG
	seen   map[int32]bool    // tokens of the prompt and the answer, for the repetition penalty
	count  map[int32]int     // number of times that the answer has each token
	scores []float32         // scratch
	heap   []candidate       // scratch
	ends   map[int32]bool    // tokens that end a text
	never  map[int32]bool    // tokens that are never chosen
	form   jsonform.Acceptor // the answer's position in GenerateOptions.Form
	masked []float32         // scratch
}

func newSampler(o GenerateOptions, prompt []int32) *sampler {
	s := &sampler{o: o, random: rand.NewPCG(o.Seed, 0), seen: map[int32]bool{}, count: map[int32]int{}}
	for _, id := range prompt {
		s.seen[id] = true
	}
	if o.Form != nil {
		s.form = o.Form.Start()
	}
	return s
}

// formed returns the logits with minus infinity for tokens that the form does not allow, and for end tokens: the form
// defines the end of the answer.
func (s *sampler) formed(x []float32) []float32 {
	s.masked = s.o.Form.Mask(s.form, x, s.masked)
	for id := range s.ends {
		if int(id) < len(s.masked) {
			s.masked[id] = float32(math.Inf(-1))
		}
	}
	return s.masked
}

// choose returns the next token, or -1 if the form allows none. At temperature 0 it is the likeliest token, else it is
// drawn from softmax(logits/temperature) over the tokens that top-k, top-p and min-p keep.
func (s *sampler) choose(logits []float32) int32 {
	x := s.allowed(s.penalised(logits))
	if s.o.Form != nil {
		if x = s.formed(x); math.IsInf(float64(x[likeliest(x)]), -1) {
			return -1
		}
	}
	id := s.pick(x)
	if s.o.Form != nil {
		s.o.Form.Take(&s.form, id)
	}
	s.note(id)
	return id
}

// allowed returns the logits with minus infinity for tokens that are never chosen.
func (s *sampler) allowed(x []float32) []float32 {
	if len(s.never) == 0 {
		return x
	}
	if !s.changes() { // x is the caller's and must not be changed
		s.scores = append(s.scores[:0], x...)
		x = s.scores
	}
	for id := range s.never {
		x[id] = float32(math.Inf(-1))
	}
	return x
}

// note records a token of the answer.
func (s *sampler) note(id int32) {
	s.seen[id] = true
	s.count[id]++
}

// changes reports whether penalties or a bias change the logits.
func (s *sampler) changes() bool {
	o := s.o
	return o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0 ||
		len(o.Bias) > 0
}

// penalised returns the logits after bias and penalties, in the order that GenerateOptions documents. Each logit
// changes independently of the others.
func (s *sampler) penalised(logits []float32) []float32 {
	if !s.changes() {
		return logits
	}
	o := s.o
	s.scores = append(s.scores[:0], logits...)
	x := s.scores
	for id, by := range o.Bias {
		x[id] += float32(by)
	}
	if o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1 {
		by := float32(o.RepetitionPenalty)
		for id := range s.seen {
			if x[id] < 0 {
				x[id] *= by
			} else {
				x[id] /= by
			}
		}
	}
	if o.FrequencyPenalty != 0 || o.PresencePenalty != 0 {
		for id, n := range s.count {
			x[id] -= float32(o.FrequencyPenalty*float64(n) + o.PresencePenalty)
		}
	}
	return x
}

// likeliest returns the index of the largest logit, the first if several are equal.
func likeliest(logits []float32) int {
	best, at := logits[0], 0
	for i, l := range logits {
		if l > best {
			best, at = l, i
		}
	}
	return at
}

// pick draws a token with one number from the sequence's own random stream.
func (s *sampler) pick(logits []float32) int32 {
	best := likeliest(logits)
	if s.o.Temperature <= 0 {
		return int32(best)
	}
	left, sum := s.filtered(logits, logits[best])
	point, last := float64(s.random.Uint64()>>11)/(1<<53)*sum, int32(best)
	for n := range left.bound() {
		c, ok := left.at(n)
		if !ok || math.IsInf(float64(c.logit), -1) {
			break
		}
		last = c.id
		if point -= left.weight(c.logit); point < 0 {
			break
		}
	}
	return last
}

// filtered returns the tokens that top-k, top-p and min-p keep, and the sum of their weights. The likeliest token has
// weight 1.
func (s *sampler) filtered(logits []float32, best float32) (*descending, float64) {
	o := s.o
	d := &descending{best: best, temperature: o.Temperature, heap: s.heap[:0]}
	for i, l := range logits {
		d.heap = append(d.heap, candidate{int32(i), l})
	}
	s.heap = d.heap
	for i := len(d.heap)/2 - 1; i >= 0; i-- {
		d.sink(i)
	}
	var sum float64
	if o.TopK > 0 && o.TopK < len(logits) {
		sum = d.keep(func(n int, _, _ float64) bool { return n < o.TopK })
	} else {
		for _, l := range logits {
			sum += d.weight(l)
		}
	}
	if o.TopP > 0 && o.TopP < 1 {
		most, among := o.TopP*sum, d.bound()
		sum = d.keep(func(n int, held, _ float64) bool { return n < among && held < most })
	}
	if o.MinP > 0 {
		among := d.bound()
		sum = d.keep(func(n int, _, w float64) bool { return n < among && w >= o.MinP })
	}
	return d, sum
}

type candidate struct {
	id    int32
	logit float32
}

// before reports whether a is likelier than b; with equal logits the smaller id comes first.
func (a candidate) before(b candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// descending yields candidates by falling logit. It sorts only as many as are requested.
type descending struct {
	best        float32
	temperature float64
	heap        []candidate // binary heap, the likeliest first
	sorted      []candidate
	most        int // most candidates left to yield; 0 = all
}

func (d *descending) weight(logit float32) float64 {
	return math.Exp(float64(logit-d.best) / d.temperature)
}

func (d *descending) bound() int {
	if d.most > 0 {
		return d.most
	}
	return len(d.sorted) + len(d.heap)
}

// sink moves an element of the heap down below the elements that come before it.
func (d *descending) sink(i int) {
	h := d.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// at returns the n-th likeliest candidate, counted from 0.
func (d *descending) at(n int) (candidate, bool) {
	for len(d.sorted) <= n && len(d.heap) > 0 {
		last := len(d.heap) - 1
		d.sorted = append(d.sorted, d.heap[0])
		d.heap[0] = d.heap[last]
		d.heap = d.heap[:last]
		d.sink(0)
	}
	if n >= len(d.sorted) {
		return candidate{}, false
	}
	return d.sorted[n], true
}

// keep keeps the first candidates, at least one, as long as more returns true for their number, the sum of their
// weights and the next one's weight. It returns the sum.
func (d *descending) keep(more func(n int, held, next float64) bool) (held float64) {
	n := 0
	for {
		c, ok := d.at(n)
		if !ok {
			break
		}
		w := d.weight(c.logit)
		if n > 0 && !more(n, held, w) {
			break
		}
		held += w
		n++
	}
	d.most = n
	return held
}

// notFinite returns the index of the first infinity or NaN, or -1.
func notFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// logSum returns log(sum(exp(logits))).
func logSum(logits []float32) float64 {
	top, sum := logits[likeliest(logits)], 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l - top))
	}
	return float64(top) + math.Log(sum)
}

func logprob(logits []float32, id int32) float64 { return float64(logits[id]) - logSum(logits) }

// logprobAt returns the log-probability of a token where a temperature divides the logits; 0 counts as 1.
func logprobAt(logits []float32, id int32, temperature float64) float64 {
	if temperature == 0 {
		temperature = 1
	}
	top, sum := float64(logits[likeliest(logits)]), 0.0
	for _, l := range logits {
		sum += math.Exp((float64(l) - top) / temperature)
	}
	return (float64(logits[id])-top)/temperature - math.Log(sum)
}

// topLogprobs returns the n likeliest tokens, the likeliest first; with equal logits the smaller id comes first.
func topLogprobs(logits []float32, n int) []TopToken {
	if n == 0 {
		return nil
	}
	sum := logSum(logits)
	var top []TopToken
	for i, l := range logits {
		v := float64(l) - sum
		if len(top) == n && v <= top[n-1].Logprob {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, v, func(t TopToken, v float64) int {
			if t.Logprob >= v {
				return -1
			}
			return 1
		})
		top = slices.Insert(top, at, TopToken{int32(i), v})
		top = top[:min(n, len(top))]
	}
	return top
}
