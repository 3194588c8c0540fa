package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// RolloutsFile is the name of the file that record_rollouts writes into the output folder: a JSON line for each sampled
// answer.
const RolloutsFile = "rollouts.jsonl"

// samplesOf reports whether a run samples the answers that it trains on, and with which settings.
func samplesOf(s Spec) (objective.Rollouts, bool) {
	o, ok := s.Objective().(objective.Sampled)
	if !ok || s.Dataset.Format == dataset.FormatRollouts {
		return objective.Rollouts{}, false
	}
	return o.Settings(), true
}

// iterationsOf is how many steps a window of sampled answers is trained for.
func iterationsOf(s Spec) int {
	if c, ok := samplesOf(s); ok {
		return c.NumIterations
	}
	return 1
}

// The numbers of answers that are sampled at a time: the most on a GPU and on a CPU, and the fewest that memory makes
// a plan choose.
const (
	mostAnswersGPU = 64
	mostAnswersCPU = 8
	leastAnswers   = 4
)

// answersAtOnce returns how many answers the run samples at a time where memory allows it.
func (p *planner) answersAtOnce(c objective.Rollouts) int {
	most := mostAnswersCPU
	if p.On.Capabilities().SeparateHost {
		most = mostAnswersGPU
	}
	return min(most, c.NumGenerations*p.batchSize*p.accumulation*p.groups())
}

// planAnswers plans the sampling of answers beside the other plans, if the run samples. It halves the number of answers
// that are sampled at a time while the plans exceed the memory limit and those without it do not.
func (p *planner) planAnswers(s *steps, nw session.Network, maxLen int) error {
	c, ok := samplesOf(p.spec)
	if !ok {
		return nil
	}
	if nw.Layout.Sharded() {
		return fmt.Errorf("training.base_sharding: training.objective: %s samples answers on one device, which needs "+
			"the whole base model, and here each device would hold a part of it: set never, or lower the memory by "+
			"batch_size or adapter: qlora", p.spec.Training.Objective)
	}
	alone, err := graph.Need(s.plans()...)
	if err != nil {
		return err
	}
	fits := p.limit < 0 || alone.Total() <= p.limit
	for slots := p.answersAtOnce(c); ; slots = max(slots/2, 1) {
		if s.answers, err = infer.PlanAnswers(nw, slots, maxLen, maxLen, p.On); err != nil {
			return err
		}
		need, err := graph.Need(s.plans()...)
		if err != nil || !fits || p.limit < 0 || need.Total() <= p.limit || slots <= leastAnswers {
			return err
		}
	}
}

// samplingNote returns what the plan reports of sampling; "" = the run samples no answers to train on.
func (p *planner) samplingNote() string {
	c, ok := samplesOf(p.spec)
	plan := p.found.Step.answers
	if !ok || plan == nil {
		return ""
	}
	own, err := plan.Need()
	if err != nil {
		return ""
	}
	step, err := graph.Need(p.found.Step.train.Plan)
	if err != nil {
		return ""
	}
	note := fmt.Sprintf("%d of a step's %d answers are sampled at a time, in memory that the training step uses at "+
		"another time: activations %s of sampling, %s of the step; kv cache %s", plan.Slots(),
		c.NumGenerations*p.batchSize*p.accumulation*p.groups(), session.FormatBytes(own.Arena),
		session.FormatBytes(step.Arena), session.FormatBytes(own.State[nn.CacheGroup]))
	if plan.Slots() < p.answersAtOnce(c) {
		note += fmt.Sprintf("; %d at a time would be faster and do not fit", p.answersAtOnce(c))
	}
	return note
}

// sampledWindows deals windows whose answers are sampled when they are dealt, by the weights of that moment. Each set
// of answers is dealt NumIterations times.
type sampledWindows struct {
	*loaderWindows
	objective.Rollouts
	run     *running
	answers *infer.Answerer
	rewards *reward.Rewards
	record  io.WriteCloser // rollouts.jsonl; nil = not recorded

	before Place               // place before the present answers
	dealt  int                 // times that the present answers were dealt; 0 = there are none
	step   dataset.Step        // window of the present answers; empty = they are not laid out yet
	rows   map[int]dataset.Row // answers to each prompt of the window, by its row
	times  []dataset.Value     // how long sampling and judging took; nil = the answers are dealt again
}

// sampledState is what a checkpoint keeps of windows that are sampled.
type sampledState struct {
	Loader json.RawMessage `json:"loader"`
	Dealt  int             `json:"dealt,omitempty"`
	// Rows are the present answers, where they are dealt again.
	Rows map[int]sampledRow `json:"rows,omitempty"`
}

// sampledRow is a group of answers in JSON.
type sampledRow struct {
	IDs       []int32      `json:"ids"`
	Labels    []int32      `json:"labels"`
	Borders   []int32      `json:"borders"`
	Old       []*float32   `json:"old"`
	Names     []string     `json:"names"`
	Rewards   [][]*float64 `json:"rewards"`
	Truncated []bool       `json:"truncated"`
}

// openAnswers makes the run's windows sample their answers, if it is configured to. The windows must be bound to
// memory.
func (r *running) openAnswers() error {
	c, ok := samplesOf(r.spec)
	if !ok {
		return nil
	}
	w := &sampledWindows{loaderWindows: r.windowsOf(r.loader).(*loaderWindows), Rollouts: c, run: r}
	leads := w.all
	w.all = true
	plan := r.found.Step.answers
	all := r.memory.Runs[len(r.found.Step.budgets()):]
	if r.found.Step.eval != nil {
		all = all[1:]
	}
	var err error
	if w.answers, err = plan.BindAnswers(r.Session, r.memory, all[:len(plan.Programs())]); err != nil {
		return err
	}
	if w.rewards, err = reward.Open(c.Rewards); err != nil {
		return err
	}
	r.windows = &rolloutWindows{Windows: w, objective: r.step.Objective.(objective.Sampled), division: r.division,
		leads: leads, still: stillRewards{say: r.env.Logf}}
	return nil
}

// Next deals the present answers once more, or samples new ones.
func (w *sampledWindows) Next() (dataset.Step, error) {
	if w.dealt == 0 || w.step.All == nil {
		w.before = w.loaderWindows.State()
		step, err := w.loaderWindows.Next()
		if err != nil {
			return step, err
		}
		if w.rows == nil {
			err = w.sample(step)
		}
		if err != nil {
			return step, errors.Join(err, w.loaderWindows.Restore(w.before.State))
		}
		if w.step, err = w.lay(step); err != nil {
			return step, err
		}
	}
	step := w.step
	step.All = slices.Clone(step.All)
	for i := range step.All {
		step.All[i].Labels = slices.Clone(step.All[i].Labels)
	}
	step.Values, w.times = w.times, nil
	if w.dealt++; w.dealt >= w.NumIterations {
		w.dealt, w.rows, w.step = 0, nil, dataset.Step{}
	}
	return step, nil
}

// sample samples answers to the prompts of a step and judges them. Rank 0 does so for all ranks.
func (w *sampledWindows) sample(step dataset.Step) error {
	var prompts []dataset.Row
	var rows []int
	for _, b := range step.All {
		for _, row := range b.Rows {
			rows, prompts = append(rows, row), append(prompts, dataset.Prompt(w.run.data.Train, row))
		}
	}
	made := map[int]sampledRow{}
	if w.run.env.team.leads() {
		groups, err := w.groups(context.Background(), step.All[0].Epoch, rows, prompts)
		if err != nil {
			return err
		}
		for i, row := range rows {
			made[row] = saveRow(groups[i])
		}
	}
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	shared, err := w.run.env.team.leaders("the sampled answers", string(text))
	if err != nil {
		return err
	}
	made = nil
	if err := json.Unmarshal([]byte(shared), &made); err != nil {
		return err
	}
	w.rows = map[int]dataset.Row{}
	for row, of := range made {
		w.rows[row] = of.row()
	}
	return nil
}

// groups samples and judges the answers to prompts, which are the given rows of an epoch.
func (w *sampledWindows) groups(
	ctx context.Context, epoch int, rows []int, prompts []dataset.Row,
) ([]dataset.Row, error) {
	w.run.at.enter(phaseSample)
	defer w.run.at.enter(phaseSteps)
	began := time.Now()
	var questions []infer.Question
	for i, prompt := range prompts {
		for k := range w.NumGenerations {
			o := infer.GenerateOptions{MaxTokens: w.MaxCompletionLength, Temperature: w.Temperature,
				Seed: answerSeed(w.run.spec.Seed, epoch, rows[i], k)}
			questions = append(questions, infer.Question{Prompt: infer.Prompt{IDs: prompt.IDs}, Options: o})
		}
	}
	answers, err := w.answers.Answer(ctx, questions, func() error {
		if w.run.interrupted() {
			return errInterrupted
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sampled := time.Since(began)
	tok := w.run.Base.Tokenizer
	var seen []reward.Answer
	tokens := 0
	for i, a := range answers {
		prompt := prompts[i/w.NumGenerations]
		seen = append(seen, reward.Answer{Prompt: tok.Decode(prompt.IDs, true), Completion: a.Text,
			Columns: prompt.Columns})
		tokens += len(a.IDs)
	}
	numbers, err := w.rewards.Judge(ctx, seen)
	if err != nil {
		return nil, err
	}
	var groups []dataset.Row
	for i, prompt := range prompts {
		from, to := i*w.NumGenerations, (i+1)*w.NumGenerations
		groups = append(groups, groupOf(prompt, answers[from:to], w.rewards.Names(), numbers[from:to]))
	}
	w.times = []dataset.Value{
		{Name: "sampling/tokens_per_second", Value: float64(tokens) / max(sampled, time.Microsecond).Seconds()},
		{Name: "sampling/seconds", Value: sampled.Seconds()},
		{Name: "rewards/seconds", Value: (time.Since(began) - sampled).Seconds()},
	}
	return groups, w.recorded(epoch, rows, groups)
}

// answerSeed is the seed of an answer: it depends on the run's seed, the epoch, the prompt's row and the answer's
// number alone.
func answerSeed(seed uint64, epoch, row, answer int) uint64 {
	h := fnv.New64a()
	for _, x := range []uint64{seed, uint64(epoch), uint64(row), uint64(answer)} {
		h.Write(binary.LittleEndian.AppendUint64(nil, x)) //nolint:errcheck // a hash takes everything
	}
	return h.Sum64()
}

// groupOf makes a row of a prompt with its answers.
func groupOf(prompt dataset.Row, answers []infer.Answer, names []string, rewards [][]float64) dataset.Row {
	row := dataset.Row{Index: prompt.Index, Line: prompt.Line, Source: prompt.Source,
		Rollout: &dataset.Rollout{Names: names, Rewards: rewards}}
	for _, a := range answers {
		if len(row.IDs) > 0 {
			row.Borders = append(row.Borders, int32(len(row.IDs)))
		}
		row.IDs = append(append(row.IDs, prompt.IDs...), a.IDs...)
		row.Labels = append(append(row.Labels, prompt.Labels...), a.IDs...)
		unknown := slices.Repeat([]float32{float32(math.NaN())}, len(prompt.IDs))
		row.Rollout.Old = append(append(row.Rollout.Old, unknown...), a.Logprobs...)
		row.Rollout.Truncated = append(row.Rollout.Truncated, !a.Ended)
	}
	return row
}

// lay lays the answers out in the micro-batches to which the loader dealt their prompts.
func (w *sampledWindows) lay(step dataset.Step) (dataset.Step, error) {
	own := dataset.Step{Rounds: step.Rounds, Progress: step.Progress, Groups: step.Groups, Sequences: step.Sequences}
	for _, b := range step.All {
		var rows []dataset.Row
		for _, row := range b.Rows {
			of, ok := w.rows[row]
			if !ok {
				return step, fmt.Errorf("there are no answers to prompt %d of the data", row+1)
			}
			rows = append(rows, of)
		}
		laid, err := w.Shape().Lay([][]dataset.Row{rows}, w.run.data.PadID)
		if err != nil {
			return step, err
		}
		laid.Epoch, laid.Last = b.Epoch, b.Last
		own.All, own.Trained = append(own.All, laid), own.Trained+laid.TrainedTokens
	}
	return own, nil
}

// State returns the place before the next window. Where answers are dealt again it holds them.
func (w *sampledWindows) State() Place {
	s, at := sampledState{Dealt: w.dealt}, w.loaderWindows.State()
	if w.dealt > 0 {
		at = w.before
		s.Rows = map[int]sampledRow{}
		for row, of := range w.rows {
			s.Rows[row] = saveRow(of)
		}
	}
	s.Loader = at.State
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("a place that JSON cannot hold: %v", err))
	}
	at.State = text
	return at
}

// Restore moves to a place.
func (w *sampledWindows) Restore(state json.RawMessage) error {
	var s sampledState
	if err := jsonerr.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("sampled answers: %w", jsonerr.Unplaced(err))
	}
	if err := w.loaderWindows.Restore(s.Loader); err != nil {
		return err
	}
	w.dealt, w.rows, w.step = s.Dealt, nil, dataset.Step{}
	if s.Dealt > 0 {
		w.rows = map[int]dataset.Row{}
		for row, of := range s.Rows {
			w.rows[row] = of.row()
		}
	}
	return nil
}

// saveRow returns a group of answers in JSON's types, where a number that is none is null.
func saveRow(row dataset.Row) sampledRow {
	r := row.Rollout
	s := sampledRow{IDs: row.IDs, Labels: row.Labels, Borders: row.Borders, Names: r.Names, Truncated: r.Truncated}
	for _, x := range r.Old {
		s.Old = append(s.Old, orNull(x))
	}
	for _, rewards := range r.Rewards {
		var own []*float64
		for _, x := range rewards {
			own = append(own, orNull(x))
		}
		s.Rewards = append(s.Rewards, own)
	}
	return s
}

// row returns the group of answers.
func (s sampledRow) row() dataset.Row {
	r := &dataset.Rollout{Names: s.Names, Truncated: s.Truncated}
	for _, x := range s.Old {
		r.Old = append(r.Old, orNaN(x))
	}
	for _, rewards := range s.Rewards {
		var own []float64
		for _, x := range rewards {
			own = append(own, orNaN(x))
		}
		r.Rewards = append(r.Rewards, own)
	}
	return dataset.Row{IDs: s.IDs, Labels: s.Labels, Borders: s.Borders, Rollout: r}
}

func orNull[F float32 | float64](x F) *F {
	if x != x {
		return nil
	}
	return &x
}

func orNaN[F float32 | float64](x *F) F {
	if x == nil {
		return F(math.NaN())
	}
	return *x
}

// recordedRollout is a line of RolloutsFile.
type recordedRollout struct {
	Prompt    []int32             `json:"prompt_ids"`
	Answer    []int32             `json:"completion_ids"`
	Old       []float32           `json:"old_logprobs"`
	Rewards   map[string]*float64 `json:"rewards"`
	Group     string              `json:"group"`
	Truncated bool                `json:"truncated"`
	Step      int                 `json:"step"`
}

// recorded writes the groups to RolloutsFile, if the run records them.
func (w *sampledWindows) recorded(epoch int, rows []int, groups []dataset.Row) error {
	if !w.RecordRollouts {
		return nil
	}
	if w.record == nil {
		f, err := atomicfile.Append(filepath.Join(w.run.spec.OutputDir, RolloutsFile), 0o644)
		if err != nil {
			return fmt.Errorf("record rollouts: %w", err)
		}
		w.record = f
	}
	for i, g := range groups {
		for k := range g.Sequences() {
			ids, labels := g.Sequence(k)
			at := slices.IndexFunc(labels, func(l int32) bool { return l != dataset.Ignore })
			from := 0
			if k > 0 {
				from = int(g.Borders[k-1])
			}
			line := recordedRollout{Prompt: ids[:at], Answer: ids[at:], Old: g.Rollout.Old[from+at : from+len(ids)],
				Rewards: map[string]*float64{}, Group: fmt.Sprintf("%d.%d", epoch, rows[i]),
				Truncated: g.Rollout.Truncated[k], Step: w.run.recorder.step() + 1}
			for j, name := range g.Rollout.Names {
				line.Rewards[name] = orNull(g.Rollout.Rewards[k][j])
			}
			text, err := json.Marshal(line)
			if err == nil {
				_, err = w.record.Write(append(text, '\n'))
			}
			if err != nil {
				return fmt.Errorf("record rollouts: %w", err)
			}
		}
	}
	return nil
}

// Close ends the programs of rewards and closes the record.
func (w *sampledWindows) Close() error {
	err := w.rewards.Close()
	if w.record != nil {
		err = errors.Join(err, w.record.Close())
	}
	return err
}
