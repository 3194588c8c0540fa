package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/tierlora/tierlora/train/checkpoint"
)

// Ends are the keys of the section training that end a run before its last step, or choose the weights of its result.
type Ends struct {
	// EarlyStoppingPatience is the number of evaluations in a row without a better MetricForBestModel after which the
	// run ends. It needs eval_steps or evals_per_epoch. 0 makes all steps.
	EarlyStoppingPatience int `yaml:"early_stopping_patience,omitempty" range:"[0,inf)" resume:"free"`
	// EarlyStoppingThreshold is by how much an evaluation must be better than the best one so far to count as better
	// for early_stopping_patience.
	EarlyStoppingThreshold float64 `yaml:"early_stopping_threshold,omitempty" range:"[0,inf)" resume:"free"`
	// LoadBestModelAtEnd writes the weights of the best checkpoint by MetricForBestModel as the result of the run,
	// instead of the last ones. It needs eval_steps or evals_per_epoch.
	LoadBestModelAtEnd bool `yaml:"load_best_model_at_end,omitempty" resume:"free"`
	// LossWatchdogThreshold is the training loss above which a step counts for LossWatchdogPatience; 0 turns the
	// watchdog
	// off.
	LossWatchdogThreshold float64 `yaml:"loss_watchdog_threshold,omitempty" range:"[0,inf)" resume:"free"`
	// LossWatchdogPatience is the number of steps in a row with a loss above LossWatchdogThreshold after which the run
	// ends.
	LossWatchdogPatience int `yaml:"loss_watchdog_patience,omitempty" default:"3" range:"[1,inf)" resume:"free"`
}

// endProblems returns a problem if keys of Ends need evaluations that the run does not make.
func (c Config) endProblems() []error {
	if !c.judgesEvaluations() || c.EvalSteps > 0 || c.EvalsPerEpoch > 0 {
		return nil
	}
	return []error{errors.New("training.eval_steps: early_stopping_patience and load_best_model_at_end compare " +
		"evaluations, and the run makes one at its end alone: set it, or training.evals_per_epoch")}
}

// judgesEvaluations reports whether the section has a key that needs evaluations during the run.
func (c Config) judgesEvaluations() bool { return c.EarlyStoppingPatience > 0 || c.LoadBestModelAtEnd }

// countEvaluation counts evaluations in a row that are not better than the best one before by more than the threshold.
func (r *recorder) countEvaluation(value float64, higherIsBetter bool) {
	if r.config.EarlyStoppingPatience == 0 {
		return
	}
	best := r.state.BestMetric
	better := best == nil
	if best != nil {
		gain := *best - value
		if higherIsBetter {
			gain = -gain
		}
		better = gain > 0 && gain > r.config.EarlyStoppingThreshold
	}
	r.progress.StaleEvals++
	if better {
		r.progress.StaleEvals = 0
	}
}

// countLoss counts steps in a row whose loss is above the watchdog's threshold.
func (r *recorder) countLoss(loss float64) {
	threshold := r.config.LossWatchdogThreshold
	if threshold == 0 {
		return
	}
	r.progress.HighLosses++
	if loss <= threshold {
		r.progress.HighLosses = 0
	}
}

// endsEarly returns why the run ends after its last finished step although it has more; "" = it goes on.
func (r *recorder) endsEarly() string {
	c, p := r.config, r.progress
	if n := c.EarlyStoppingPatience; n > 0 && p.StaleEvals >= n {
		best := math.NaN()
		if r.state.BestMetric != nil {
			best = *r.state.BestMetric
		}
		return fmt.Sprintf("early stopping: no better %s in %d evaluations; the best, %.4g, is %s's "+
			"(training.early_stopping_patience)", c.MetricForBestModel, p.StaleEvals, best, r.state.BestModelCheckpoint)
	}
	if n := c.LossWatchdogPatience; c.LossWatchdogThreshold > 0 && p.HighLosses >= n {
		return fmt.Sprintf("loss watchdog: the loss was above %v in %d steps in a row, last %.4g "+
			"(training.loss_watchdog_threshold)", c.LossWatchdogThreshold, p.HighLosses, p.Losses[len(p.Losses)-1])
	}
	return ""
}

// endEarly ends a run before its last step: it saves a checkpoint and writes the result. data is the place of the next
// window.
func (r *running) endEarly(ctx context.Context, why string, data Place) error {
	r.result.EndedEarly = why
	r.env.Newsf("ended after step %d of %d: %s", r.recorder.step(), r.total, why)
	if err := r.saver.save(data); err != nil {
		return err
	}
	if err := r.env.team.meet("the last save"); err != nil {
		return err
	}
	return r.finish(ctx)
}

// loadBest writes the weights of the best checkpoint into memory, if the configuration asks for them and they are not
// the last ones.
func (r *loaded) loadBest() error {
	best := r.recorder.state.BestModelCheckpoint
	if !r.spec.Training.LoadBestModelAtEnd || best == "" || best == checkpoint.Name(r.recorder.step()) {
		return nil
	}
	files, state, err := checkpoint.Load(filepath.Join(r.spec.OutputDir, best))
	if err == nil {
		err = r.saver.restoreWeights(files)
	}
	if err != nil {
		return fmt.Errorf("training.load_best_model_at_end: %w", err)
	}
	r.pipeline.Averaged()
	r.result.ResultStep = state.GlobalStep
	r.env.Newsf("the result has the weights of %s, the best by %s (%.4g)", best, r.spec.Training.MetricForBestModel,
		*r.recorder.state.BestMetric)
	return nil
}
