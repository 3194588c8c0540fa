//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// policyCase is a batch of sampled answers, for which old log-probabilities are known for all but every fifth token.
type policyCase struct {
	labels, starts                    []int32
	logp, old, reference, entropies   []float32
	answers                           []float32 // [S,6]
	low, high, beta, bonus, quantile  float64
	wantLoss, wantEntropy, wantClips  float64
	wantGradient, wantEntropyGradient []float64
}

// newPolicyCase makes answers of some lengths behind prompts of two tokens, between tokens of no sequence.
func newPolicyCase(r *harness, lengths []int) *policyCase {
	c := &policyCase{labels: []int32{3, -100}, starts: []int32{2}, low: 0.2, high: 0.3, beta: 0.1, bonus: 0.05}
	for _, n := range lengths {
		c.labels = append(c.labels, -100, -100)
		c.labels = append(c.labels, make([]int32, n)...)
		c.starts = append(c.starts, int32(len(c.labels)))
		c.answers = append(c.answers, float32(4*(r.rnd.Float64()-0.5)), 1e-9, 1/float32(max(n, 1)), 0, 0.5, 0)
	}
	c.labels = append(c.labels, 1, 2, 3)
	for i := range c.labels {
		c.logp = append(c.logp, -float32(1+r.rnd.Float64()))
		c.reference = append(c.reference, -float32(1+r.rnd.Float64()))
		c.entropies = append(c.entropies, float32(int(20*r.rnd.Float64()))/8) // many are equal
		c.old = append(c.old, c.logp[i]+float32(r.rnd.Float64()-0.5))
		if i%5 == 4 {
			c.old[i] = float32(math.NaN())
		}
	}
	return c
}

// compute works out what the clipped loss of tokens' own ratios is.
func (c *policyCase) compute(topEntropy, scale float64) {
	var all []float64
	for t := c.starts[0]; t < c.starts[len(c.starts)-1]; t++ {
		if c.labels[t] != -100 {
			all = append(all, float64(c.entropies[t]))
		}
	}
	slices.Sort(all)
	at := (1 - topEntropy) * float64(len(all)-1)
	low := int(at)
	high := min(low+1, len(all)-1)
	c.quantile = all[low] + (at-float64(low))*(all[high]-all[low])
	c.wantGradient, c.wantEntropyGradient = make([]float64, len(c.labels)), make([]float64, len(c.labels))
	for s := range len(c.starts) - 1 {
		own := c.answers[6*s:][:6]
		advantage, factor, entropyFactor := float64(own[0])+float64(own[1]), float64(own[2]), float64(own[4])
		for t := c.starts[s]; t < c.starts[s+1]; t++ {
			if c.labels[t] == -100 {
				continue
			}
			d := 0.0
			if c.old[t] == c.old[t] {
				d = float64(c.logp[t]) - float64(c.old[t])
			}
			w, loss, slope := math.Exp(d), 0.0, 0.0
			below, above := w < 1-c.low && advantage < 0, w > 1+c.high && advantage > 0
			if below || above {
				c.wantClips++
			}
			if float64(c.entropies[t]) >= c.quantile {
				loss, slope = -advantage*w, -advantage*w
				if below {
					loss, slope = -advantage*(1-c.low), 0
				}
				if above {
					loss, slope = -advantage*(1+c.high), 0
				}
			}
			q := float64(c.reference[t]) - float64(c.logp[t])
			loss += c.beta * (math.Exp(q) - q - 1)
			slope += c.beta * (1 - math.Exp(q))
			c.wantLoss += scale * (factor*loss - c.bonus*entropyFactor*float64(c.entropies[t]))
			c.wantEntropy += float64(c.entropies[t])
			c.wantGradient[t] = scale * factor * slope
			c.wantEntropyGradient[t] = -scale * c.bonus * entropyFactor
		}
	}
}

// TestPolicy checks the clipped loss with a divergence, an entropy bonus and a limit of entropies, the order statistics
// among them with many equal entropies; for answers without a token, of one, and of more than the block has threads.
// Tokens of no sequence get no gradient.
func TestPolicy(t *testing.T) {
	r := newHarness(t, 8<<20)
	const scale = float32(0.25)
	for _, lengths := range [][]int{{1}, {0, 7, 65}, {300, 1, 0, 513, 40}, {2500}} {
		for _, topEntropy := range []float64{1, 0.2, 0.37} {
			var c *policyCase
			out := r.repeat(func() [][]byte {
				c = newPolicyCase(r, lengths)
				c.compute(topEntropy, float64(scale))
				M, S := len(c.labels), len(lengths)
				scratch := r.out("scratch", int64(8+56*S))
				dlogp, dentropies := r.out("dlogp", int64(4*M)), r.out("dentropies", int64(4*M))
				labels, starts, by := in(r, "labels", c.labels), in(r, "starts", c.starts),
					in(r, "scale", []float32{scale})
				entropies := in(r, "entropies", c.entropies)
				r.run(PolicyLimit(), scratch, entropies, labels, starts, i32(M), i32(S), launchDouble(1-topEntropy))
				args := []any{dlogp, dentropies, scratch, in(r, "logp", c.logp), entropies, in(r, "old", c.old),
					in(r, "reference", c.reference), labels, starts, in(r, "answers", c.answers), by,
					in(r, "scaling", []float32{1}), scratch, i32(M), i32(S), i32(0), i32(0), i32(0)}
				for _, x := range []float64{c.low, c.high, 0, c.beta, 1, 1, 0, 0, 0, 0, 0, c.bonus} {
					args = append(args, launchDouble(x))
				}
				r.run(PolicyAnswers(S), args...)
				outputs := []any{r.out("loss", 4)}
				for i := range 6 {
					outputs = append(outputs, r.out(fmt.Sprintf("sum %d", i), 4))
				}
				r.run(PolicySums(), append(slices.Clone(outputs), scratch, by, i32(S))...)
				limit := get[float64](r, scratch, 1)[0]
				if limit != c.quantile {
					t.Errorf("lengths %v: the limit is %v, want %v", lengths, limit, c.quantile)
				}
				return read(r, append([]any{dlogp, dentropies}, outputs...), M, M, 1, 1, 1, 1, 1, 1, 1)
			})
			what := fmt.Sprintf("lengths %v, top %v, ", lengths, topEntropy)
			nearF32(t, what+"gradient", f32Floats(out[0]), c.wantGradient)
			nearF32(t, what+"gradient of the entropies", f32Floats(out[1]), c.wantEntropyGradient)
			nearF32(t, what+"loss", f32Floats(out[2]), []float64{c.wantLoss})
			nearF32(t, what+"entropy", f32Floats(out[3]), []float64{c.wantEntropy})
			if got := f32Floats(out[5])[0] + f32Floats(out[6])[0]; got != c.wantClips {
				t.Errorf("%s%v clipped tokens, want %v", what, got, c.wantClips)
			}
		}
	}
}
