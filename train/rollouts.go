package train

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/objective"
)

// errNotRollouts ends a run whose objective learns from sampled answers and whose rows are none.
var errNotRollouts = errors.New("a row is no sampled answer: write dataset.format: rollouts")

// rolloutWindows deals windows of sampled answers whose advantages are known. The windows within must return the
// micro-batches of all ranks (dataset.Step.All), since an advantage may depend on all answers of the step.
type rolloutWindows struct {
	Windows
	objective objective.Sampled
	division
	leads bool // the loop wants the micro-batches of all ranks
	still stillRewards
}

// stillGroups is after how many groups whose answers all have one reward a run says so.
const stillGroups = 64

// stillRewards counts groups without a difference of rewards, from which nothing is learned.
type stillRewards struct {
	say    func(format string, args ...any) // nil = no warning is wanted
	groups int                              // in a row
	warned bool
}

// withoutSignal reports whether the numbers of a window of sampled answers say that no group teaches anything. Such a
// step has no gradient, whatever is trained.
func withoutSignal(values []dataset.Value) bool {
	i := slices.IndexFunc(values, func(v dataset.Value) bool { return v.Name == "frac_reward_zero_std" })
	return i >= 0 && values[i].Value >= 1
}

// add counts the groups of a step, of which a share has no difference.
func (s *stillRewards) add(groups int, values []dataset.Value) {
	if !withoutSignal(values) {
		s.groups = 0
		return
	}
	if s.groups += groups; s.groups >= stillGroups && !s.warned && s.say != nil {
		s.warned = true
		s.say("warning: the answers of the last %d prompts got one reward each group, so no answer is preferred and "+
			"nothing is learned: look at the rewards of some answers (record_rollouts), or at the prompts' difficulty",
			s.groups)
	}
}

// scored returns windows of the loader's sampled answers with advantages.
func (p *inputs) scored(o objective.Sampled) Windows {
	within := p.windowsOf(p.loader).(*loaderWindows)
	leads := within.all
	within.all = true
	return &rolloutWindows{Windows: within, objective: o, division: p.division, leads: leads}
}

// Close ends what samples the answers.
func (w *rolloutWindows) Close() error {
	if within, ok := w.Windows.(io.Closer); ok {
		return within.Close()
	}
	return nil
}

// Next deals a window and sets the advantages of its answers.
func (w *rolloutWindows) Next() (dataset.Step, error) {
	s, err := w.Windows.Next()
	if err != nil {
		return s, err
	}
	values, err := scoreWindow(&s, w.objective)
	if err != nil {
		return s, err
	}
	rows := 0
	for _, b := range s.All {
		rows += len(b.Rollouts)
	}
	w.still.add(rows, values)
	s.Values = append(values, s.Values...)
	s.Batches = nil
	for i, b := range s.All {
		if i%w.groups() == w.rank/w.sharing {
			s.Batches = append(s.Batches, b)
		}
	}
	if !w.leads {
		s.All = nil
	}
	return s, nil
}

// scoreWindow sets the advantages of all answers of a window, s.All, takes those without an end token out of the loss
// where the objective says so, and returns the window's numbers by TRL's names.
func scoreWindow(s *dataset.Step, o objective.Sampled) ([]dataset.Value, error) {
	var groups []*dataset.Rollout
	var lengths answerLengths
	for i := range s.All {
		b := &s.All[i]
		if !b.TakeRollouts() {
			return nil, errNotRollouts
		}
		groups = append(groups, b.Rollouts...)
		lengths.add(*b)
	}
	values, err := o.Advantages(groups, s.Trained)
	if err != nil {
		return nil, err
	}
	if o.Settings().MaskTruncatedCompletions {
		for i := range s.All {
			s.Trained -= s.All[i].MaskTruncated()
		}
	}
	all := lengths.values()
	for _, v := range values {
		all = append(all, dataset.Value{Name: v.Name, Value: v.Value})
	}
	return slices.DeleteFunc(all, func(v dataset.Value) bool { return v.Value-v.Value != 0 }), nil
}

// answerLengths are the numbers of tokens of answers.
type answerLengths struct{ all, ended []float64 }

// add adds the answers of a batch.
func (l *answerLengths) add(b dataset.Batch) {
	groups, segments := b.Sequences()
	for k := range b.Rows {
		for j, segment := range segments[groups[k]:groups[k+1]] {
			n := 0.0
			for _, label := range b.Labels[b.CuSeqlens[segment]:b.CuSeqlens[segment+1]] {
				if label != dataset.Ignore {
					n++
				}
			}
			l.all = append(l.all, n)
			if !b.Rollouts[k].Truncated[j] {
				l.ended = append(l.ended, n)
			}
		}
	}
}

// values are TRL's numbers of the lengths.
func (l answerLengths) values() (all []dataset.Value) {
	for _, of := range []struct {
		name string
		list []float64
	}{{"length", l.all}, {"terminated_length", l.ended}} {
		list := of.list
		if len(list) == 0 {
			list = []float64{0}
		}
		sum := 0.0
		for _, n := range list {
			sum += n
		}
		for name, v := range map[string]float64{
			"mean_": sum / float64(len(list)), "min_": slices.Min(list), "max_": slices.Max(list),
		} {
			all = append(all, dataset.Value{Name: "completions/" + name + of.name, Value: v})
		}
	}
	clipped := math.NaN()
	if n := float64(len(l.all)); n > 0 {
		clipped = 1 - float64(len(l.ended))/n
	}
	all = append(all, dataset.Value{Name: "completions/clipped_ratio", Value: clipped})
	slices.SortFunc(all, func(a, b dataset.Value) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// CheckRollouts returns what in a configuration does not go with an objective that learns from sampled answers.
func CheckRollouts(s Spec) (problems []error) {
	if objective.Objectives[s.Training.Objective] == nil {
		return nil
	}
	if _, ok := s.Objective().(objective.Sampled); !ok {
		return nil
	}
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, append(args, s.Training.Objective)...))
	}
	c, samples := samplesOf(s)
	if d := s.Dataset; !samples && (d.ValSplit > 0 || d.ValPath != "" || len(d.ValSources) > 0) {
		bad("dataset.val_split, val_path, val_sources: training.objective: %s has no loss of validation rows: " +
			"remove them")
	}
	if s.Training.RecordWindows {
		bad("training.record_windows: windows of training.objective: %s have rewards, which windows.jsonl has no " +
			"place for: remove it")
	}
	if samples {
		if len(c.Rewards) == 0 {
			bad("%[1]s.rewards: are missing: name what judges an answer, such as [{type: regex, pattern: yes}], or " +
				"write dataset.format: rollouts for answers that have rewards")
		}
		if d := s.Dataset; d.Packing || d.PadTo == dataset.PadMaxLength || d.Streaming {
			bad("dataset.packing, pad_to, streaming: training.objective: %s lays out the answers that it samples by " +
				"itself: remove them")
		}
	}
	if s.Training.sharing() > 1 {
		bad("training.context_parallel_size: must be 1 with training.objective: %s, whose loss needs all tokens of " +
			"an answer")
	}
	return problems
}

// checkPrompts refuses prompts that leave too few tokens for an answer, and makes the rows of a set stand for groups of
// answers.
func checkPrompts(set *dataset.Set, c objective.Rollouts) error {
	for _, rows := range []dataset.Rows{set.Train, set.Val} {
		for i := range rows.Len() {
			if n := rows.Length(i); n+c.MaxCompletionLength > set.Config.MaxLength {
				return fmt.Errorf("%s: the prompt has %d tokens, and with an answer of up to %d they are more than "+
					"dataset.max_length %d: raise it, or lower max_completion_length", rows.Row(i).Where(), n,
					c.MaxCompletionLength, set.Config.MaxLength)
			}
		}
	}
	set.Train = dataset.Answered(set.Train, c.NumGenerations, c.MaxCompletionLength)
	return nil
}
