//go:build gpu

package train

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

type curveDistance struct {
	Mean   float64   `json:"mean"`   // |loss - float32's|, over 100 steps
	End    float64   `json:"end"`    // over the last ten
	Signed float64   `json:"signed"` // without the absolute value
	Losses []float64 `json:"losses"`
}

// TestGPUSmolLM2CurveAgainstPEFT: over 100 steps our bf16 losses lie at most 1.5 times as far from PEFT's float32
// curve as PEFT's bf16 ones (scripts/proof_curve.py). Draws start from adapters that differ by bf16's rounding:
// training makes of that a difference that is chance, so one curve says little.
func TestGPUSmolLM2CurveAgainstPEFT(t *testing.T) {
	gputest.Need(t)
	dir := golden.SmolLM2(t)
	proof := os.Getenv(envProof)
	if proof == "" {
		t.Skipf("%s is not set: scripts/proof_curve.py makes the reference", envProof)
	}
	var peers map[string]map[string][]curveDistance
	golden.JSON(t, filepath.Join(proof, "curve.json"), &peers)
	on := gputest.Open(t)
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // read only
	for _, name := range []string{"lora", "qlora_nf4_double"} {
		ours := smolLM2Curves(t, b, on, name, 8)
		for i, c := range ours {
			t.Logf("%s, draw %d: %.4g in the mean (signed %+.4g), %.4g in the last ten", name, i,
				c.Mean, c.Signed, c.End)
		}
		for _, what := range []string{"float32", "bf16 base", "fp32 base"} {
			draws := peers[name][what]
			mean, end := average(draws)
			t.Logf("%s, PEFT %s, %d draws: %.4g in the mean, %.4g in the last ten", name, what, len(draws), mean, end)
		}
		mean, end := average(ours)
		// the last ten steps share one deviation: they are shown, and not bounded.
		want, _ := average(peers[name]["bf16 base"])
		t.Logf("%s, ours, %d draws: %.4g in the mean, %.4g in the last ten", name, len(ours), mean, end)
		if !(mean <= worse*want) {
			t.Errorf("%s: ours %.4g; PEFT in bf16 %.4g: at most %.1f times", name, mean, want, worse)
		}
	}
}

func average(c []curveDistance) (mean, end float64) {
	for _, d := range c {
		mean, end = mean+d.Mean/float64(len(c)), end+d.End/float64(len(c))
	}
	return mean, end
}

// smolLM2Curves trains 100 steps as PEFT did, once from its start and then from ones changed by up to 2^-9.
func smolLM2Curves(t *testing.T, b *session.Base, on graph.Machine, name string, draws int) []curveDistance {
	t.Helper()
	batches := golden.Open(t, golden.Outside(t, "goldens/smollm2/batches.safetensors"))
	ids, labels, T := batches.Ints("input_ids"), batches.Ints("labels"), batches.Shape("input_ids")[1]
	var want struct {
		Loss []float64 `json:"loss"`
		LR   []float64 `json:"lr"`
	}
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/"+name+".json"), &want)
	init := golden.Outside(t, "goldens/smollm2/init")
	cfg := peftConfigOf(t, init)
	out := make([]curveDistance, draws)
	for draw := range out {
		ts := newTestStepOn(t, on, b, network(t, b, kernel.F32, schemeOf(name), &cfg),
			session.Shape{Tokens: T, Sequences: 1, MaxLen: T}, Default(), init)
		if draw > 0 {
			r := rand.New(rand.NewPCG(uint64(draw), 0))
			params := ts.snapshot(t)
			for _, p := range params {
				for i := range p.Data {
					p.Data[i] *= float32(1 + (2*r.Float64()-1)/512)
				}
			}
			if err := ts.Trained.Restore(ts.memory, params); err != nil {
				t.Fatal(err)
			}
		}
		c := &out[draw]
		for step, loss := range want.Loss {
			trained := ts.fill(t, ids[step*T:(step+1)*T], labels[step*T:(step+1)*T], T)
			ts.set(t, "loss scale", 1/float64(trained))
			h := adamNumbers(Default(), want.LR[step], step+1)
			ts.set(t, "optimizer", h[:]...)
			ts.step(t)
			c.Losses = append(c.Losses, ts.read(t, ts.Loss)[0])
			d := c.Losses[step] - loss
			c.Mean, c.Signed = c.Mean+math.Abs(d)/float64(len(want.Loss)), c.Signed+d/float64(len(want.Loss))
			if step >= len(want.Loss)-10 {
				c.End += math.Abs(d) / 10
			}
		}
		if draw == 0 {
			for step := range want.Loss {
				c.Losses[step] -= want.Loss[step]
			}
			t.Logf("%s, draw 0, our losses less PEFT's: %.4f", name, c.Losses)
		}
		if err := ts.memory.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
