package runs

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// NamedNumber is a number that the objective reports beside the loss, over the steps of the run.
type NamedNumber struct {
	Name        string
	X, Y        []float64 // step and value of the logged lines
	EvalX, Eval []float64 // step and value of the evaluations
}

// mostNumbers is the largest number of names that a run's metrics may add.
const mostNumbers = 50

// evalPrefix is the prefix of the names of an evaluation's numbers.
const evalPrefix = "eval_"

// fixedKeys are the keys of metrics.jsonl that are no numbers of an objective.
var fixedKeys = map[string]bool{
	"step": true, "epoch": true, "loss": true, "grad_norm": true, "grad_norm_clipped": true, "learning_rate": true,
	"num_input_tokens_seen": true, "tokens/train_per_sec_per_gpu": true, "train_seconds": true, "resumed_from": true,
	"data_ms": true, "tokens/total": true, "tokens/trainable": true, "memory/max_allocated (GiB)": true,
	"loss_scale": true, "skipped_steps": true, "nonfinite_steps": true,
	"eval_loss": true, "eval_runtime": true, "eval_samples_per_second": true, "eval_steps_per_second": true,
}

// takeNumbers takes the numbers of a line about training or about an evaluation. The line is known to be valid JSON.
func (r *Run) takeNumbers(text []byte, step int, evaluation bool) {
	eachNumber(text, func(name string, v float64) {
		if fixedKeys[name] || strings.HasPrefix(name, evalPrefix) != evaluation {
			return
		}
		name = strings.TrimPrefix(name, evalPrefix)
		i := slices.IndexFunc(r.Numbers, func(n NamedNumber) bool { return n.Name == name })
		if i < 0 {
			if len(r.Numbers) == mostNumbers {
				return
			}
			i = len(r.Numbers)
			r.Numbers = append(r.Numbers, NamedNumber{Name: name})
		}
		n := &r.Numbers[i]
		if evaluation {
			n.EvalX, n.Eval = append(n.EvalX, float64(step)), append(n.Eval, v)
		} else {
			n.X, n.Y = append(n.X, float64(step)), append(n.Y, v)
		}
	})
}

// values returns the steps and values of a number, or of the loss, by its key in metrics.jsonl.
func (r *Run) values(key string) (x, y []float64) {
	name, evaluation := strings.CutPrefix(key, evalPrefix)
	if name == objective.Loss && evaluation {
		for _, e := range r.Evals {
			x, y = append(x, float64(e.Step)), append(y, e.Loss)
		}
		return x, y
	}
	if name == objective.Loss {
		for _, s := range r.Steps {
			x, y = append(x, float64(s.Step)), append(y, s.Loss)
		}
		return x, y
	}
	for _, n := range r.Numbers {
		if n.Name == name && evaluation {
			return n.EvalX, n.Eval
		} else if n.Name == name {
			return n.X, n.Y
		}
	}
	return nil, nil
}

// last returns the last value of a number by its key in metrics.jsonl, and its step.
func (r *Run) last(key string) (step int, value float64, ok bool) {
	x, y := r.values(key)
	if len(y) == 0 {
		return 0, 0, false
	}
	return int(x[len(x)-1]), y[len(y)-1], true
}

// Metric is the value of a number that an evaluation reported.
type Metric struct {
	Name  string  `json:"name"` // key in metrics.jsonl
	Value float64 `json:"value"`
	Step  int     `json:"step"`
}

// nats is the unit of a negative log-likelihood.
const nats = "nats a token"

// likelihood reports whether the run's loss is the mean negative log-likelihood of the trained tokens, so that it has a
// perplexity.
func (r *Run) likelihood() bool {
	name := r.Setting("training.objective")
	return (name == "" || name == objective.Default) && r.Setting("dataset.weights") != "true"
}

// lossUnit returns the unit of the run's loss; "" = it has none.
func (r *Run) lossUnit() string {
	if r.likelihood() {
		return nats
	}
	return ""
}

// unitOf returns the unit of the losses of all runs; "" = one of them has none.
func unitOf(groups []group) string {
	for _, g := range groups {
		for _, r := range g.runs {
			if !r.likelihood() {
				return ""
			}
		}
	}
	return nats
}

// bestBy returns the training.metric_for_best_model of the run.
func (r *Run) bestBy() string {
	return cmp.Or(r.Setting("training.metric_for_best_model"), train.EvalLoss)
}

// better reports whether a value of a number is better than another, as the run's objective defines it.
func (r *Run) better(key string, v, than float64) bool {
	if train.HigherIsBetter(r.Setting("training.objective"), key) {
		return v > than
	}
	return v < than
}

// bestOf returns the best finite value that evaluations have of a number, by its key in metrics.jsonl, the first of
// equal ones; nil if there is none.
func (r *Run) bestOf(key string) *Metric {
	var best *Metric
	x, y := r.values(key)
	for i, v := range y {
		if finite(v) && (best == nil || r.better(key, v, best.Value)) {
			best = &Metric{key, v, int(x[i])}
		}
	}
	return best
}

// cutNumbers removes the values of a step and of later ones, because a resumed run writes them again.
func (r *Run) cutNumbers(step int, evaluationsToo bool) {
	cut := func(x, y []float64) ([]float64, []float64) {
		n, _ := slices.BinarySearch(x, float64(step))
		return x[:n], y[:n]
	}
	for i := range r.Numbers {
		n := &r.Numbers[i]
		if evaluationsToo {
			n.EvalX, n.Eval = cut(n.EvalX, n.Eval)
		} else {
			n.X, n.Y = cut(n.X, n.Y)
			n.EvalX, n.Eval = cut(n.EvalX, n.Eval)
		}
	}
}

// cloneNumbers copies numbers, so that appending to the copies does not change the originals.
func cloneNumbers(all []NamedNumber) []NamedNumber {
	out := slices.Clone(all)
	for i, n := range out {
		out[i] = NamedNumber{n.Name, slices.Clone(n.X), slices.Clone(n.Y), slices.Clone(n.EvalX), slices.Clone(n.Eval)}
	}
	return out
}

// eachNumber passes the numbers of a flat JSON object to see, null as NaN. It skips values of other kinds, and stops at
// an object that is not flat.
func eachNumber(text []byte, see func(name string, v float64)) {
	rest := bytes.TrimSpace(text)
	if len(rest) == 0 || rest[0] != '{' {
		return
	}
	rest = rest[1:]
	for {
		var name, value []byte
		var ok bool
		if name, rest, ok = quotedText(bytes.TrimLeft(rest, " \t,")); !ok {
			return
		}
		rest = bytes.TrimLeft(rest, " \t")
		if len(rest) == 0 || rest[0] != ':' {
			return
		}
		rest = bytes.TrimLeft(rest[1:], " \t")
		if len(rest) > 0 && rest[0] == '"' {
			if _, rest, ok = quotedText(rest); !ok {
				return
			}
			continue
		}
		end := bytes.IndexAny(rest, ",}{[")
		if end < 0 || rest[end] == '{' || rest[end] == '[' {
			return
		}
		value, rest = bytes.TrimSpace(rest[:end]), rest[end:]
		if v, err := strconv.ParseFloat(string(value), 64); err == nil {
			see(string(name), v)
		} else if string(value) == "null" {
			see(string(name), math.NaN())
		}
		if rest[0] == '}' {
			return
		}
	}
}

// quotedText splits a string, without its quotes, off the front of a text. It refuses a name with an escape, because
// this program writes none.
func quotedText(text []byte) (inside, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, text, false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[1:i], text[i+1:], true
		}
	}
	return nil, text, false
}

// numberPlots draws each number of the objective, of training and of evaluations.
func (r *Run) numberPlots() []report.Block {
	var blocks []report.Block
	for _, n := range r.Numbers {
		p := report.Plot{Title: n.Name, XLabel: "step"}
		if len(n.X) > 0 {
			p.Series = append(p.Series, report.Series{Name: "training", X: n.X, Y: n.Y, Colour: 1})
		}
		if len(n.EvalX) > 0 {
			p.Series = append(p.Series, report.Series{Name: "evaluation", X: n.EvalX, Y: n.Eval, Style: report.Points, Colour: 2})
		}
		if p.Series != nil {
			blocks = append(blocks, p)
		}
	}
	return blocks
}

// comparedNumbers draws each number of the objectives of several runs in one plot, from the evaluations if there are
// some.
func comparedNumbers(all []*Run) []report.Block {
	var names []string
	for _, r := range all {
		for _, n := range r.Numbers {
			if !slices.Contains(names, n.Name) {
				names = append(names, n.Name)
			}
		}
	}
	var blocks []report.Block
	short := namesOf(all)
	for _, name := range names {
		training, evaluation := report.Plot{Title: name, XLabel: "step"}, report.Plot{Title: name + ", evaluation", XLabel: "step"}
		for i, r := range all {
			for _, n := range r.Numbers {
				if n.Name != name {
					continue
				}
				if len(n.X) > 0 {
					training.Series = append(training.Series, report.Series{Name: short[i], X: n.X, Y: n.Y, Colour: i + 1})
				}
				if len(n.EvalX) > 0 {
					evaluation.Series = append(evaluation.Series, report.Series{Name: short[i], X: n.EvalX, Y: n.Eval, Style: report.Points, Colour: i + 1})
				}
			}
		}
		for _, p := range []report.Plot{training, evaluation} {
			if p.Series != nil {
				blocks = append(blocks, p)
			}
		}
	}
	return blocks
}
