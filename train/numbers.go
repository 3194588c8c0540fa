package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/train/objective"
)

// EvalLoss is the name of an evaluation's loss in metrics.jsonl.
const EvalLoss = evalPrefix + objective.Loss

// numberOf returns the objective's number, or its loss, whose value in metrics.jsonl has the given key. evaluation
// reports whether the key belongs to lines about evaluations.
func numberOf(o objective.Objective, key string) (n objective.Number, evaluation, ok bool) {
	name, evaluation := strings.CutPrefix(key, evalPrefix)
	if name == objective.Loss {
		return objective.Number{Name: name}, evaluation, true
	}
	all := o.Numbers()
	i := slices.IndexFunc(all, func(n objective.Number) bool { return n.Name == name && !n.Hidden })
	if i < 0 {
		return objective.Number{}, evaluation, false
	}
	return all[i], evaluation, true
}

// HigherIsBetter reports whether higher values of a key of metrics.jsonl are better in a run that trains with the named
// objective. It is false for unknown objectives and keys.
func HigherIsBetter(objectiveName, key string) bool {
	if objective.Objectives[objectiveName] == nil {
		return false
	}
	n, _, _ := numberOf(objective.Of(objectiveName, objective.Config{}), key)
	return n.HigherIsBetter
}

// ValidateNumbers returns a problem for each key that names a number which the run does not report. evaluates says
// whether the run has validation rows.
func (s Spec) ValidateNumbers(evaluates bool) (problems []error) {
	if objective.Objectives[s.Training.Objective] == nil {
		return nil // the check of the key itself reports it
	}
	o := s.Objective()
	var names []string
	for _, n := range append([]objective.Number{{Name: objective.Loss}}, o.Numbers()...) {
		if !n.Hidden {
			names = append(names, n.Name)
		}
	}
	check := func(path, key string) {
		switch _, evaluation, ok := numberOf(o, key); {
		case !ok:
			problems = append(problems, fmt.Errorf("%s: objective %s reports no %s; it reports %s, "+
				"and each with %s before its name in evaluations", path, s.Training.Objective, key,
				strings.Join(names, ", "), evalPrefix))
		case evaluation && !evaluates:
			problems = append(problems, fmt.Errorf("%s: there is nothing to evaluate; "+
				"set dataset.val_split or dataset.val_path", path))
		}
	}
	problems = append(problems, s.Training.endProblems()...)
	if s.Training.judgesEvaluations() && !evaluates {
		problems = append(problems, errors.New("training.early_stopping_patience, training.load_best_model_at_end: "+
			"there is nothing to evaluate; set dataset.val_split or dataset.val_path"))
	}
	for _, bound := range []struct {
		key string
		of  map[string]float64
	}{{"at_least", s.Expect.AtLeast}, {"at_most", s.Expect.AtMost}} {
		for _, key := range slices.Sorted(maps.Keys(bound.of)) {
			check("expect."+bound.key+"."+key, key)
		}
	}
	if key := s.Training.MetricForBestModel; key != EvalLoss {
		if _, evaluation, _ := numberOf(o, key); !evaluation {
			return append(problems, fmt.Errorf("training.metric_for_best_model: %q is no number of an evaluation; "+
				"those of objective %s are %s", key, s.Training.Objective, evalPrefix+strings.Join(names,
				", "+evalPrefix)))
		}
		check("training.metric_for_best_model", key)
	}
	return problems
}

// lastNumbers returns the newest value of each given key in lines of metrics.jsonl.
func lastNumbers(lines []json.RawMessage, keys []string) map[string]float64 {
	found := map[string]float64{}
	for i := len(lines) - 1; i >= 0 && len(found) < len(keys); i-- {
		var line map[string]any
		if json.Unmarshal(lines[i], &line) != nil {
			continue // a checkpoint's history is validated when it is read
		}
		for _, key := range keys {
			if _, known := found[key]; known {
				continue
			}
			if v, ok := line[key].(float64); ok {
				found[key] = v
			}
		}
	}
	return found
}

// value returns the value of an evaluation under a key of metrics.jsonl.
func (e EvalMetrics) value(key string) (float64, bool) {
	if key == EvalLoss {
		return e.Loss, true
	}
	for _, v := range e.Numbers {
		if v.Name == key {
			return v.Value, true
		}
	}
	return 0, false
}
