package train

import (
	"fmt"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/step"
)

// PlanEstimate is how long a run takes on its GPU, estimated from the cost of every call of the step's plan and the
// GPU's rates. Loading, evaluation, samples, checkpoints and the exchange between devices are not part of it.
type PlanEstimate struct {
	StepSeconds     float64 `json:"step_s"`
	TokensPerSecond float64 `json:"tokens_per_second"` // of all devices, without padding
	RunSeconds      float64 `json:"run_s"`
	// Compared says that estimates for this kind of GPU were compared with runs. Otherwise they follow from the GPU's
	// data sheet and the shares of such rates that an H100 reaches.
	Compared bool `json:"compared_with_runs"`
	// CardHours is the time of the run times its devices.
	CardHours float64 `json:"card_hours"`
}

// String returns the estimate as a line of a plan.
func (e PlanEstimate) String() string {
	source := "from the GPU's data sheet; no run on it was compared"
	if e.Compared {
		source = "without loading, evaluation and saving"
	}
	return fmt.Sprintf("estimated time: %s a step, %.0f tokens/s, %s for the run (%s)", durationText(e.StepSeconds),
		e.TokensPerSecond, durationText(e.RunSeconds), source)
}

// Price returns the cost of the run as a line of a plan, for a price of one device for an hour.
func (e PlanEstimate) Price(perHour float64) string {
	return fmt.Sprintf("estimated cost: %.2f, for %.2f card-hours at %g each", perHour*e.CardHours, e.CardHours,
		perHour)
}

// durationText returns seconds with three digits, in a unit that suits them.
func durationText(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	case s < 120:
		return fmt.Sprintf("%.3g s", s)
	case s < 2*3600:
		return fmt.Sprintf("%.3g min", s/60)
	}
	return fmt.Sprintf("%.1f h", time.Duration(s*float64(time.Second)).Hours())
}

// estimatedBatches is the number of micro-batches of the first epoch whose mean an estimate takes.
const estimatedBatches = 64

// estimate returns how long the run takes. It is nil if the GPU is not known by name, if answers are sampled, or if
// devices exchange more than gradients: those times are not estimated.
func (p *prepared) estimate() *PlanEstimate {
	rates, ok := graph.RatesOf(p.On)
	if !ok || p.found.Step.answers != nil || p.found.Layout.Shards > 1 || p.spec.Training.sharing() > 1 {
		return nil
	}
	var batches []dataset.Batch
	tokens := 0
	for b, err := range p.loader.Epoch(0) {
		if err != nil {
			return nil
		}
		if batches = append(batches, b); len(batches) == estimatedBatches {
			break
		}
	}
	for _, b := range batches {
		tokens += b.Tokens
	}
	seconds := step.Seconds(p.found.Step.budgets(), rates, p.accumulate(), batches)
	if seconds <= 0 {
		return nil
	}
	ranks := max(1, p.world)
	micro := float64(p.accumulate()*ranks) / float64(len(batches))
	run := seconds * float64(p.total)
	return &PlanEstimate{StepSeconds: seconds, TokensPerSecond: micro * float64(tokens) / seconds, RunSeconds: run,
		Compared: rates.Measured, CardHours: run * float64(ranks) / 3600}
}
