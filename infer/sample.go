package infer

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
)

// sampler chooses the tokens of one sequence.
type sampler struct {
	o       GenerateOptions
	random  *rand.PCG
	seen    map[int32]bool // in the prompt or the answer, for the repetition penalty
	count   map[int32]int  // in the answer
	scores  []float32      // scratch
	options candidates     // scratch
}

func newSampler(o GenerateOptions, prompt []int32) *sampler {
	s := &sampler{o: o, random: rand.NewPCG(o.Seed, 0), seen: map[int32]bool{}, count: map[int32]int{}}
	for _, id := range prompt {
		s.seen[id] = true
	}
	return s
}

// choose picks the next token: the likeliest at temperature 0, else by softmax(logits/temperature) among those that top-k,
// top-p and min-p leave.
func (s *sampler) choose(logits []float32) int32 {
	id := s.pick(s.penalised(logits))
	s.seen[id] = true
	s.count[id]++
	return id
}

// penalised are the logits with penalties and bias, in the order that GenerateOptions names. Each is of one token by itself.
func (s *sampler) penalised(logits []float32) []float32 {
	o := s.o
	repetition := o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1
	if !repetition && o.FrequencyPenalty == 0 && o.PresencePenalty == 0 && len(o.Bias) == 0 {
		return logits
	}
	s.scores = append(s.scores[:0], logits...)
	x := s.scores
	if repetition {
		by := float32(o.RepetitionPenalty)
		for id := range s.seen {
			if x[id] < 0 {
				x[id] *= by
			} else {
				x[id] /= by
			}
		}
	}
	for id, by := range o.Bias {
		x[id] += float32(by)
	}
	if o.FrequencyPenalty != 0 || o.PresencePenalty != 0 {
		for id, n := range s.count {
			x[id] -= float32(o.FrequencyPenalty*float64(n) + o.PresencePenalty)
		}
	}
	return x
}

// likeliest is the first of the largest.
func likeliest(logits []float32) int {
	best, at := logits[0], 0
	for i, l := range logits {
		if l > best {
			best, at = l, i
		}
	}
	return at
}

func (s *sampler) pick(logits []float32) int32 {
	best := likeliest(logits)
	if s.o.Temperature <= 0 {
		return int32(best)
	}
	all := s.options[:0]
	sum, least := 0.0, 0.0
	if s.o.MinP > 0 {
		least = s.o.MinP // of the likeliest token's weight, which is 1
	}
	for i, l := range logits {
		w := math.Exp(float64(l-logits[best]) / s.o.Temperature)
		sum += w
		all = append(all, candidate{int32(i), w})
	}
	s.options = all
	order := descending{heap: all}
	heap.Init(&order.heap)
	if s.o.TopK > 0 && s.o.TopK < len(all) {
		sum = order.sum(func(n int, _ float64) bool { return n < s.o.TopK })
	}
	if s.o.TopP > 0 && s.o.TopP < 1 {
		most, among := s.o.TopP*sum, order.bound()
		sum = order.sum(func(n int, held float64) bool { return n < among && held < most })
	}
	if least > 0 {
		among := order.bound()
		sum = order.sum(func(n int, _ float64) bool { c, ok := order.at(n); return n < among && ok && c.weight >= least })
	}
	point, last := float64(s.random.Uint64()>>11)/(1<<53)*sum, int32(best)
	for n := range order.bound() {
		c, ok := order.at(n)
		if !ok {
			break
		}
		last = c.id
		if point -= c.weight; point < 0 {
			break
		}
	}
	return last
}

type candidate struct {
	id     int32
	weight float64
}

// candidates are a heap: the heaviest first, of equals that with the smaller id.
type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].weight > c[j].weight || c[i].weight == c[j].weight && c[i].id < c[j].id
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	x := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return x
}

// descending gives candidates in the order of their weights, no more of them sorted than were asked for.
type descending struct {
	heap   candidates
	sorted []candidate
	most   int // of them are left; 0 = all
}

func (d *descending) bound() int {
	if d.most > 0 {
		return d.most
	}
	return len(d.sorted) + len(d.heap)
}

// at is the n-th.
func (d *descending) at(n int) (candidate, bool) {
	for len(d.sorted) <= n && len(d.heap) > 0 {
		d.sorted = append(d.sorted, heap.Pop(&d.heap).(candidate))
	}
	if n >= len(d.sorted) {
		return candidate{}, false
	}
	return d.sorted[n], true
}

// sum keeps the first candidates while more says so of their number and the sum of their weights, at least one, and returns that.
func (d *descending) sum(more func(n int, held float64) bool) (held float64) {
	n := 0
	for n == 0 || more(n, held) {
		c, ok := d.at(n)
		if !ok {
			break
		}
		held += c.weight
		n++
	}
	d.most = n
	return held
}

// notFinite is the first number that is none, -1 where all are.
func notFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// logSum is log(sum(exp(logits))).
func logSum(logits []float32) float64 {
	top, sum := logits[likeliest(logits)], 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l - top))
	}
	return float64(top) + math.Log(sum)
}

func logprob(logits []float32, id int32) float64 { return float64(logits[id]) - logSum(logits) }

// topLogprobs are the n likeliest tokens, the likeliest first, of equals the smaller id.
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
