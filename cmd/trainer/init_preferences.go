package main

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// goalPairs is the goal of rows that are preferences: pairs of answers, or answers that are each labelled.
const goalPairs = "preference"

// labelledFormats are the formats of answers that are each labelled desirable or undesirable.
var labelledFormats = []string{"unpaired", "tokenized_unpaired"}

// labels are the numbers of labelled answers of each kind; the zero value stands for rows that are no labelled answers.
type labels struct{ desirable, undesirable int }

func (l labels) any() bool { return l.desirable+l.undesirable > 0 }

// withLabels reads rows that have a label again, as labelled answers. It returns the set and report that it was given
// where the rows are something else.
func (o *initOptions) withLabels(ctx context.Context, s train.Spec, set *dataset.Set, report *dataset.Report,
	tok dataset.Tokenizer, folder fs.FS, env session.Env) (*dataset.Set, *dataset.Report, error) {
	asked := slices.Contains(labelledFormats, report.Format) || o.goal == goalPairs && report.Groups.Rows == 0
	if !asked && (o.goal != "" || o.format != "" || !slices.ContainsFunc(report.Unread, func(u dataset.Unread) bool {
		return u.Key == "label"
	})) {
		return set, report, nil
	}
	s.Training.Objective, s.Training.BatchSize = "kto", rowsOfStep
	s.Objectives.KTO = objective.Defaults().KTO
	labelled, again, err := openData(ctx, s, tok, folder, env)
	switch {
	case err == nil && slices.Contains(labelledFormats, again.Format):
		return labelled, again, nil
	case err != nil && asked:
		return nil, nil, err
	}
	return set, report, nil
}

// prefer sets the objective of preferences: dpo for pairs, kto for labelled answers.
func (f *looked) prefer(s *train.Spec) {
	t := &s.Training
	t.Objective, t.LearningRate, t.Epochs = "dpo", 5e-6, 1
	if !f.labels.any() {
		s.Objectives.DPO = objective.Defaults().DPO
		return
	}
	t.Objective, s.Objectives.KTO = "kto", objective.Defaults().KTO
	s.Objectives.KTO.DesirableWeight, s.Objectives.KTO.UndesirableWeight = f.labels.weights()
}

// weights returns the weights of KTO's labels. They keep the weighted desirable rows at 1 to 4/3 times the weighted
// undesirable ones, as the paper advises, and raise the rarer label's alone.
func (l labels) weights() (desirable, undesirable float64) {
	round := func(x float64) float64 { return math.Round(100*x) / 100 }
	switch d, u := float64(l.desirable), float64(l.undesirable); {
	case d == 0 || u == 0 || d >= u && 3*d <= 4*u:
		return 1, 1
	case d < u:
		return round(u / d), 1
	default:
		return 1, round(3 * d / (4 * u))
	}
}

// exchanging returns the run with at least two rows that exchange their answers, which KTO's estimate needs.
func exchanging(s train.Spec) train.Spec {
	if s.Objectives.KTO != nil && s.Training.BatchSize == 1 {
		kto := *s.Objectives.KTO
		kto.KLRows = 2
		s.Objectives.KTO = &kto
	}
	return s
}

// explainPreferences says why the objective's values were chosen.
func (ch *choice) explainPreferences() {
	why := ch.why
	why["training.objective"] = "direct preference optimisation; cpo, simpo and orpo need no reference " +
		"(docs/OBJECTIVES.md)."
	why["training.learning_rate"] = "DPO wants less than supervised training: 1e-6 to 5e-5 with LoRA."
	const beta = "how strongly the model stays near the base model; a smaller value lets it move further."
	why["dpo.beta"], why["kto.beta"] = beta, beta
	if l := ch.found.labels; l.any() {
		why["training.objective"] = "KTO learns from answers that are each labelled desirable or undesirable " +
			"(docs/OBJECTIVES.md)."
		why["training.learning_rate"] = "KTO wants less than supervised training: 5e-7 to 5e-5 with LoRA."
		weight := fmt.Sprintf("%s desirable and %s undesirable rows; times their weights the desirable ones should be "+
			"1 to 1.33 times the others.", words.Count(l.desirable), words.Count(l.undesirable))
		why["kto.desirable_weight"], why["kto.undesirable_weight"] = weight, weight
		why["kto.kl_rows"] = "rows that exchange their answers for the estimate of the divergence; micro-batches " +
			"have one row here, and 0 would take their size."
		if l.desirable == 0 || l.undesirable == 0 {
			ch.notes = append(ch.notes, "all rows have the same label: KTO learns from what tells both apart")
		}
	}
}

// preferenceValues returns the objective and the values of its section.
func preferenceValues(s train.Spec) []config.Commented {
	all := []config.Commented{{Path: "training.objective", Value: s.Training.Objective}}
	if c := s.Objectives.KTO; c != nil {
		all = append(all, config.Commented{Path: "kto.beta", Value: c.Beta})
		if c.DesirableWeight != 1 {
			all = append(all, config.Commented{Path: "kto.desirable_weight", Value: c.DesirableWeight})
		}
		if c.UndesirableWeight != 1 {
			all = append(all, config.Commented{Path: "kto.undesirable_weight", Value: c.UndesirableWeight})
		}
		if c.KLRows != 0 {
			all = append(all, config.Commented{Path: "kto.kl_rows", Value: c.KLRows})
		}
		return all
	}
	return append(all, config.Commented{Path: "dpo.beta", Value: s.Objectives.DPO.Beta})
}
