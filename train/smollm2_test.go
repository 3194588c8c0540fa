package train

import (
	"context"
	"math"
	"os"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// envSmolLM2Steps is how many steps of the 100-step curves are run; 6 unless it says otherwise.
// scripts/smollm2-curves.sh runs all 100.
const envSmolLM2Steps = "TRAINER_SMOLLM2_STEPS"

// TestSmolLM2CurvesEqualPEFT follows PEFT's learning curves on wikisql rows.
func TestSmolLM2CurvesEqualPEFT(t *testing.T) {
	dir := golden.SmolLM2(t)
	steps := 6
	if v := os.Getenv(envSmolLM2Steps); v != "" {
		var err error
		if steps, err = parseSteps(v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
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
			ts := newTestStep(t, b, network(t, b, kernel.F32, schemeOf(name), &cfg),
				session.Shape{Tokens: T, Sequences: 1, MaxLen: T}, c, 0, init)
			worst := 0.0
			for at := range steps {
				golden.Near(t, "learning rate", schedule(at), want.LR[at], 1e-15)
				trained := ts.fill(t, ids[at*T:(at+1)*T], labels[at*T:(at+1)*T], T)
				ts.set(t, "loss scale", 1/float64(trained))
				h := adamNumbers(c, want.LR[at], at+1)
				ts.set(t, "optimizer", h[:]...)
				ts.step(t)
				loss := ts.read(t, ts.Loss)[0]
				d := math.Abs(loss-want.Loss[at]) / want.Loss[at]
				worst = math.Max(worst, d)
				if !(d <= 1e-3) {
					t.Errorf("step %d: loss %.7g, PEFT %.7g, relative %.3g", at, loss, want.Loss[at], d)
				}
			}
			t.Logf("%d steps, largest relative difference of the loss %.3g", steps, worst)
		})
	}
}
