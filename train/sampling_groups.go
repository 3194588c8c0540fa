package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/train/reward"
)

// askedPrompt is a prompt of a window: its row of the data set, the epoch that dealt it, and its tokens with all
// columns.
type askedPrompt struct {
	row, epoch int
	prompt     dataset.Row
}

// askedIn returns the prompts of a window in its order.
func (w *sampledWindows) askedIn(step dataset.Step) (all []askedPrompt) {
	for _, b := range step.All {
		for _, row := range b.Rows {
			all = append(all, askedPrompt{row: row, epoch: b.Epoch, prompt: dataset.Prompt(w.run.data.Train, row)})
		}
	}
	return all
}

// sample samples and judges answers to the prompts of a window, and with dynamic sampling to those of further windows
// until all groups teach something. The window's progress becomes that of the last window.
func (w *sampledWindows) sample(step *dataset.Step) error {
	w.run.at.enter(phaseSample)
	defer w.run.at.enter(phaseSteps)
	w.spent, w.windows = samplingTimes{}, 1
	all := w.askedIn(*step)
	groups, err := w.groups(context.Background(), all)
	if err != nil {
		return err
	}
	w.rows = map[int]dataset.Row{}
	for i, group := range groups {
		w.rows[all[i].row] = group
	}
	still, replaced := 0, 0
	if w.MaxNumGenBatches > 1 {
		if still, replaced, err = w.resample(step); err != nil {
			return err
		}
	}
	w.values = w.spent.values()
	if w.MaxNumGenBatches > 1 {
		w.values = append(w.values, dataset.Value{Name: "sampling/gen_batches", Value: float64(w.windows)},
			dataset.Value{Name: "sampling/groups_replaced", Value: float64(replaced)},
			dataset.Value{Name: "sampling/groups_without_signal", Value: float64(still)})
	}
	return nil
}

// groups returns the judged answers to each prompt. Every rank samples answers to its share of the prompts; rank 0
// judges and records the answers of all ranks.
func (w *sampledWindows) groups(ctx context.Context, all []askedPrompt) ([]dataset.Row, error) {
	answers, err := w.answersTo(ctx, all, w.training())
	if err != nil {
		return nil, err
	}
	numbers, err := w.judge(ctx, all, answers)
	if err != nil {
		return nil, err
	}
	var groups []dataset.Row
	for i, a := range all {
		group := groupOf(a.prompt, answers[i], w.rewards.Names(), numbers[i])
		if w.SamplingLogprobs == "trainer" {
			group.Rollout.Old = nil // the loss takes its own
		}
		groups = append(groups, w.Shape().Share(group))
	}
	if !w.run.env.team.leads() {
		return groups, nil
	}
	return groups, w.recordAnswers(all, answers, groups)
}

// drawing says how answers to a prompt are sampled: how many, and at which temperature; 0 = greedily.
type drawing struct {
	each        int
	temperature float64
}

// training returns how answers to train on are sampled.
func (w *sampledWindows) training() drawing { return drawing{w.NumGenerations, w.Temperature} }

// sampledAnswer is an answer as the ranks send it to one another. With an environment it is a conversation.
type sampledAnswer struct {
	IDs   []int32   `json:"ids"`
	Old   []float32 `json:"old"`             // log-probability of each token when it was drawn, 0 for those of Given
	Text  string    `json:"text"`            // of the model's last turn
	Ended bool      `json:"ended,omitempty"` // the last turn has an end token
	// Given are the half-open ranges of IDs that the environment gave, which are not trained.
	Given [][2]int `json:"given,omitempty"`
	// Messages are what model and environment wrote; nil = there is no environment.
	Messages []json.RawMessage `json:"messages,omitempty"`
	Reward   *float64          `json:"reward,omitempty"` // the environment's; nil = it gave none
}

// own returns the number of tokens that the model wrote.
func (a sampledAnswer) own() int {
	n := len(a.IDs)
	for _, g := range a.Given {
		n -= g[1] - g[0]
	}
	return n
}

// answerShare is what one rank sampled.
type answerShare struct {
	Interrupted bool              `json:"interrupted,omitempty"` // the answers are not complete
	Seconds     float64           `json:"seconds"`
	Answers     [][]sampledAnswer `json:"answers"` // answers to each prompt of the share
}

// answersTo returns the answers to each prompt, in the order of the prompts. Prompt i is answered by rank i modulo the
// number of ranks, so shares differ by one prompt at most. The ranks wait for the slowest share. An interrupt of any
// rank ends the sampling of all ranks with errInterrupted.
func (w *sampledWindows) answersTo(
	ctx context.Context, all []askedPrompt, how drawing,
) ([][]sampledAnswer, error) {
	team, world := w.run.env.team, 1
	if team != nil {
		world = team.World()
	}
	var own []askedPrompt
	for i := team.rank(); i < len(all); i += world {
		own = append(own, all[i])
	}
	share, err := w.answerOwn(ctx, own, how)
	if err != nil {
		return nil, err
	}
	shares := []answerShare{share}
	if team != nil {
		if shares, err = gatherJSON(team, "the sampled answers", share); err != nil {
			return nil, err
		}
	}
	answers := make([][]sampledAnswer, len(all))
	for rank, theirs := range shares {
		if theirs.Interrupted {
			return nil, errInterrupted
		}
		for k, i := 0, rank; i < len(all); k, i = k+1, i+world {
			if k >= len(theirs.Answers) || len(theirs.Answers[k]) != how.each {
				return nil, fmt.Errorf("rank %d sent no answers to prompt %d of the window", rank, i+1)
			}
			answers[i] = theirs.Answers[k]
		}
	}
	w.spent.add(shares)
	return answers, nil
}

// gatherJSON sends a value to all ranks and returns those of all ranks.
func gatherJSON[T any](team *team, what string, mine T) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	sent, err := team.Group.Gather(team.ctx, what, text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(sent))
	for rank, theirs := range sent {
		if err := jsonerr.Unmarshal(theirs, &all[rank]); err != nil {
			return nil, fmt.Errorf("%s of rank %d: %w", what, rank, jsonerr.Unplaced(err))
		}
	}
	return all, nil
}

// answerOwn samples the answers of this rank's share.
func (w *sampledWindows) answerOwn(
	ctx context.Context, own []askedPrompt, how drawing,
) (share answerShare, err error) {
	began := time.Now()
	var all []*talk
	for _, a := range own {
		for k := range how.each {
			all = append(all, &talk{asked: a, answer: k, place: len(all)})
		}
	}
	err = w.converse(ctx, all, how)
	if err == errInterrupted { //nolint:errorlint // converse returns it as it is
		return answerShare{Interrupted: true}, nil
	}
	if err != nil {
		return share, err
	}
	for i := range own {
		var group []sampledAnswer
		for _, t := range all[i*how.each : (i+1)*how.each] {
			group = append(group, t.sampledAnswer)
		}
		share.Answers = append(share.Answers, group)
	}
	share.Seconds = time.Since(began).Seconds()
	return share, nil
}

// samplingTimes are the tokens of a set of answers and the seconds that it took.
type samplingTimes struct {
	tokens                     int
	sampling, waiting, rewards float64
	ranks                      int
}

// add adds the ranks' shares of answers. The ranks sample at the same time, so the slowest share counts.
func (s *samplingTimes) add(shares []answerShare) {
	least, most := math.Inf(1), 1e-6
	for _, share := range shares {
		least, most = min(least, share.Seconds), max(most, share.Seconds)
		for _, group := range share.Answers {
			for _, a := range group {
				s.tokens += a.own()
			}
		}
	}
	s.sampling, s.waiting, s.ranks = s.sampling+most, s.waiting+max(most-least, 0), len(shares)
}

// values returns the numbers of a step.
func (s samplingTimes) values() []dataset.Value {
	all := []dataset.Value{
		{Name: "sampling/tokens_per_second", Value: float64(s.tokens) / s.sampling},
		{Name: "sampling/seconds", Value: s.sampling},
		{Name: "rewards/seconds", Value: s.rewards},
	}
	if s.ranks > 1 {
		all = append(all, dataset.Value{Name: "sampling/wait_seconds", Value: s.waiting})
	}
	return all
}

// judge returns the rewards of each answer to each prompt. Rank 0 judges for all ranks, so that a program or a server
// sees every answer once, whatever the number of ranks.
func (w *sampledWindows) judge(
	ctx context.Context, all []askedPrompt, answers [][]sampledAnswer,
) ([][][]float64, error) {
	team := w.run.env.team
	began := time.Now()
	var mine [][]*float64
	if team.leads() {
		tok := w.run.Base.Tokenizer
		var seen []reward.Answer
		for i, a := range all {
			prompt := tok.Decode(a.prompt.IDs, true)
			for _, own := range answers[i] {
				seen = append(seen, reward.Answer{Prompt: prompt, Completion: own.Text, Columns: a.prompt.Columns,
					Messages: own.Messages, Environment: orNaN(own.Reward), Tokens: len(own.IDs),
					PromptIDs: a.prompt.IDs, IDs: own.IDs, Ended: own.Ended})
			}
		}
		numbers, err := w.rewards.Judge(ctx, seen)
		if err != nil {
			return nil, err
		}
		mine = nullable(numbers)
	}
	if team != nil {
		theirs, err := gatherJSON(team, "the rewards of the sampled answers", mine)
		if err != nil {
			return nil, err
		}
		mine = theirs[0]
	}
	w.spent.rewards += time.Since(began).Seconds()
	var numbers [][][]float64
	for i := range all {
		n := len(answers[i])
		if len(mine) < n {
			return nil, fmt.Errorf("rank 0 sent too few rewards: %d of %d answers to prompt %d have none",
				n-len(mine), n, i+1)
		}
		numbers, mine = append(numbers, numbered(mine[:n])), mine[n:]
	}
	return numbers, nil
}

// answerSeed is the seed of an answer: it depends on the run's seed, the epoch, the prompt's row and the answer's
// number alone, and for a further turn of a conversation on the number of turns before it.
func answerSeed(seed uint64, epoch, row, answer, turns int) uint64 {
	all := []uint64{seed, uint64(epoch), uint64(row), uint64(answer)}
	if turns > 0 {
		all = append(all, uint64(turns))
	}
	h := fnv.New64a()
	for _, x := range all {
		h.Write(binary.LittleEndian.AppendUint64(nil, x)) //nolint:errcheck // a hash takes everything
	}
	return h.Sum64()
}

// groupOf makes a row of a prompt with its answers.
func groupOf(prompt dataset.Row, answers []sampledAnswer, names []string, rewards [][]float64) dataset.Row {
	row := dataset.Row{Index: prompt.Index, Line: prompt.Line, Source: prompt.Source,
		Rollout: &dataset.Rollout{Names: names, Rewards: rewards}}
	for _, a := range answers {
		if len(row.IDs) > 0 {
			row.Borders = append(row.Borders, int32(len(row.IDs)))
		}
		row.IDs = append(append(row.IDs, prompt.IDs...), a.IDs...)
		row.Labels = append(append(row.Labels, prompt.Labels...), a.IDs...)
		unknown := slices.Repeat([]float32{float32(math.NaN())}, len(prompt.IDs))
		row.Rollout.Old = append(append(row.Rollout.Old, unknown...), a.Old...)
		first := len(row.IDs) - len(a.IDs)
		for _, g := range a.Given {
			for t := first + g[0]; t < first+g[1]; t++ {
				row.Labels[t], row.Rollout.Old[t] = dataset.Ignore, float32(math.NaN())
			}
		}
		row.Rollout.Truncated = append(row.Rollout.Truncated, !a.Ended)
	}
	return row
}
