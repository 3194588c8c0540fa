package runs

import (
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

// Summary is a run in a few numbers, for programs. Unknown values are left out.
type Summary struct {
	Name         string   `json:"name"`
	Dir          string   `json:"dir"`
	Status       Status   `json:"status"`
	Verdict      string   `json:"verdict"`
	Error        string   `json:"error,omitempty"`
	ExitCode     *int     `json:"exit_code,omitempty"` // exit code of the newest start, if it has ended
	Step         int      `json:"step"`
	Total        int      `json:"max_steps,omitempty"`
	Loss         *float64 `json:"train_loss_smoothed,omitempty"`
	LastEval     *float64 `json:"eval_loss,omitempty"`
	BestEval     *float64 `json:"best_eval_loss,omitempty"`
	BestEvalStep *int     `json:"best_eval_step,omitempty"`
	// Best value by training.metric_for_best_model, if that is not eval_loss.
	BestMetric *Metric `json:"best_metric,omitempty"`
	// LastMetric is the last value of that number.
	LastMetric      *Metric  `json:"last_metric,omitempty"`
	Tokens          *float64 `json:"num_input_tokens_seen,omitempty"`
	TokensPerSecond *float64 `json:"tokens_per_second,omitempty"`
	Seconds         *float64 `json:"seconds,omitempty"`
	HeldBytes       int64    `json:"held_bytes,omitempty"`
	Checks          []Check  `json:"checks,omitempty"`
	Changed         []Key    `json:"changed_settings,omitempty"` // keys whose values differ from the defaults
	Problems        []string `json:"problems,omitempty"`
}

// Check is a criterion of the configuration's section expect.
type Check struct {
	What   string       `json:"what"`
	State  report.State `json:"state"`
	Detail string       `json:"detail"`
}

// Key is a key of the configuration with its value.
type Key struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// mostSaid is the largest number of characters of an error in a summary.
const mostSaid = 4000

// Summary returns the summary of the run.
func (r *Run) Summary() Summary {
	checks := r.Checks()
	s := Summary{Name: r.Name, Dir: r.Dir, Status: r.Status(), Verdict: r.Verdict(checks).Text, Step: r.LastStep(), Total: r.Total,
		HeldBytes: r.HeldBytes(), Problems: r.Problems, Error: r.Error(mostSaid)}
	if r.Journal != nil && !r.Held {
		s.ExitCode = r.Journal.ExitCode
	}
	if y := r.Smoothed(); len(y) > 0 {
		s.Loss = known(y[len(y)-1])
		last := r.Steps[len(r.Steps)-1]
		s.Tokens, s.TokensPerSecond = known(last.Tokens), known(last.Rate)
	}
	if t := r.seconds(); t > 0 {
		s.Seconds = &t
	}
	if n := len(r.Evals); n > 0 {
		s.LastEval = known(r.Evals[n-1].Loss)
	}
	if e := r.BestEval(); e != nil {
		s.BestEval, s.BestEvalStep = &e.Loss, &e.Step
	}
	if by := r.bestBy(); by != train.EvalLoss {
		s.BestMetric = r.bestOf(by)
		if step, v, ok := r.last(by); ok && finite(v) {
			s.LastMetric = &Metric{by, v, step}
		}
	}
	for _, c := range checks {
		s.Checks = append(s.Checks, Check(c))
	}
	for _, k := range r.Settings {
		if k.Changed {
			s.Changed = append(s.Changed, Key{k.Key, k.Value})
		}
	}
	return s
}

// known returns nil for a value that JSON cannot represent.
func known(v float64) *float64 {
	if !finite(v) {
		return nil
	}
	return &v
}
