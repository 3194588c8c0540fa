package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tierlora/tierlora/internal/words"
)

// FormatRollouts is the format of sampled answers, which objectives with advantages train on.
const FormatRollouts = "rollouts"

// rollouts reads {prompt_ids, completion_ids, old_logprobs, rewards, group}: a sampled answer with its rewards. Answers
// of one group follow one another and become a row of several sequences.
var rollouts = Format{
	Roles: []Role{
		{Name: "prompt_ids", Keys: []string{"prompt_ids"}},
		{Name: "completion_ids", Keys: []string{"completion_ids"}},
		{Name: "rewards", Keys: []string{"rewards"}},
		{Name: "group", Keys: []string{"group"}},
		{Name: "old_logprobs", Keys: []string{"old_logprobs", "old_per_token_logps"}, Optional: true},
		{Name: "ref_logprobs", Keys: []string{"ref_logprobs", "ref_per_token_logps"}, Optional: true},
		{Name: "truncated", Keys: []string{"truncated"}, Optional: true},
		{Name: "tool_mask", Keys: []string{"tool_mask"}, Optional: true},
	},
	Asked:      true,
	Trains:     "the sampled answers; their prompts are context",
	NoPrompt:   "the prompt is context of all answers",
	Render:     renderRollout,
	Supervised: "set training.objective: grpo or rloo",
}

// renderRollout reads one sampled answer.
func renderRollout(f Fields, cfg Config) (Example, error) {
	prompt, err := f.Ints("prompt_ids")
	if err != nil {
		return Example{}, err
	}
	answer, err := f.Ints("completion_ids")
	if err != nil {
		return Example{}, err
	}
	n := len(prompt) + len(answer)
	switch {
	case len(prompt) == 0 || len(answer) == 0:
		return Example{}, fmt.Errorf("field %q has %d elements and field %q has %d: both must have some",
			f.Key("prompt_ids"), len(prompt), f.Key("completion_ids"), len(answer))
	case n > cfg.MaxLength:
		return Example{}, fmt.Errorf("prompt and answer have %d tokens, more than dataset.max_length %d: an answer is "+
			"not cut, since its reward belongs to the whole; raise dataset.max_length", n, cfg.MaxLength)
	}
	ex := Example{IDs: slices.Concat(prompt, answer), Labels: slices.Repeat([]int32{Ignore}, n)}
	copy(ex.Labels[len(prompt):], answer)
	if err := maskTools(f, ex.Labels[len(prompt):]); err != nil {
		return Example{}, err
	}
	ex.Rollout, err = rolloutOf(f, len(prompt), ex.Labels[len(prompt):])
	return ex, err
}

// maskTools takes the tokens of an answer that the model did not write out of its labels: those whose tool_mask is 0.
func maskTools(f Fields, labels []int32) error {
	if !f.Present("tool_mask") {
		return nil
	}
	mask, err := f.Ints("tool_mask")
	if err != nil {
		return err
	}
	key := f.Key("tool_mask")
	if len(mask) != len(labels) {
		return fmt.Errorf("field %q has %d elements, and the answer has %d tokens", key, len(mask), len(labels))
	}
	for t, m := range mask {
		switch m {
		case 0:
			labels[t] = Ignore
		case 1:
		default:
			return fmt.Errorf("%s[%d] is %d, want 1 for a token of the model and 0 for one of a tool", key, t, m)
		}
	}
	if countTrained(labels) == 0 {
		return fmt.Errorf("field %q is 0 for all tokens: at least one must be the model's", key)
	}
	return nil
}

// rolloutOf reads what a row says of its answer besides the tokens. labels are the answer's.
func rolloutOf(f Fields, prompt int, labels []int32) (*Rollout, error) {
	r := &Rollout{Truncated: []bool{false}}
	for role, to := range map[string]*[]float32{"old_logprobs": &r.Old, "ref_logprobs": &r.Reference} {
		if !f.Present(role) {
			continue
		}
		list, err := floatsOf(f, role, labels)
		if err != nil {
			return nil, err
		}
		*to = append(unknown(prompt), list...)
	}
	raw, _ := f.row.lookup(f.Key("rewards"))
	var rewards map[string]*float64
	if err := json.Unmarshal(raw, &rewards); err != nil || len(rewards) == 0 {
		return nil, fmt.Errorf("field %q is %s, want an object of numbers, such as {\"correct\": 1}, with null for a "+
			"reward that could not be given", f.Key("rewards"), words.Clip(string(raw), 40))
	}
	r.Names = slices.Sorted(maps.Keys(rewards))
	own := make([]float64, len(r.Names))
	for i, name := range r.Names {
		own[i] = math.NaN()
		if x := rewards[name]; x != nil {
			own[i] = *x
		}
	}
	r.Rewards = [][]float64{own}
	group, _ := f.row.lookup(f.Key("group"))
	switch kindOf(group) {
	case "a number":
		r.Group = string(group)
	case "a string":
		r.Group = strconv.Quote(textOf(group))
	default:
		return nil, fmt.Errorf("field %q is %s, want a number or a string that the answers of one prompt have in "+
			"common", f.Key("group"), kindOf(group))
	}
	if f.Present("truncated") {
		raw, _ := f.row.lookup(f.Key("truncated"))
		if err := json.Unmarshal(raw, &r.Truncated[0]); err != nil {
			return nil, fmt.Errorf("field %q is %s, want true or false", f.Key("truncated"),
				words.Clip(string(raw), 40))
		}
		return r, nil
	}
	r.Truncated = nil // the tokenizer's end token decides
	return r, nil
}

// floatsOf returns the list of numbers of a role, one for each token of the answer with the given labels. Tokens that
// are not the model's have no number.
func floatsOf(f Fields, role string, labels []int32) ([]float32, error) {
	raw, _ := f.row.lookup(f.Key(role))
	var list []*float64
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("field %q is %s, want a list of numbers", f.Key(role), words.Clip(string(raw), 40))
	}
	if len(list) != len(labels) {
		return nil, fmt.Errorf("field %q has %d elements, and the answer has %d tokens", f.Key(role), len(list),
			len(labels))
	}
	all := make([]float32, len(list))
	for i, x := range list {
		if labels[i] == Ignore {
			all[i] = float32(math.NaN())
			continue
		}
		if x == nil {
			return nil, fmt.Errorf("%s[%d] is null, want a number", f.Key(role), i)
		}
		all[i] = float32(*x)
		if math.IsInf(float64(all[i]), 0) {
			return nil, fmt.Errorf("%s[%d] is %v, which is no 32-bit number", f.Key(role), i, *x)
		}
	}
	return all, nil
}

// ended completes the rollout of an answer that says nothing about its end.
func (r *Rollout) ended(ids []int32, tok Tokenizer) {
	if r.Truncated == nil {
		end, ok := tok.EOS()
		r.Truncated = []bool{!ok || ids[len(ids)-1] != end}
	}
}

// inMemory reports whether the rows stay in memory as they are read and are not kept in the token cache: sampled
// answers, and prompts to answer, have more than tokens.
func (c Config) inMemory() bool {
	return c.Format == FormatRollouts || c.Prompts || c.Images != nil && !c.Streaming
}

// loadInMemory reads one file of rows that have more than tokens.
func loadInMemory(ctx context.Context, cfg Config, path string, tok Tokenizer, open opener) (Rows, *Report, error) {
	f, err := open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read data: %w", Missing(err))
	}
	defer f.Close()
	meter := newMeter(cfg.Progress)
	defer meter.end()
	meter.begin("reading", path, sizeOf(f))
	hashed := newHashReader(meter.reader(f))
	to := &inMemory{path: path, groups: map[string]int{}}
	s := loading{cfg: cfg, path: path, tok: tok, report: newReport(path), keep: to.add, meter: meter}
	if err := s.read(ctx, contextReader{ctx, io.Reader(hashed)}, f, cfg.workers()); err != nil {
		return nil, s.report, err
	}
	s.report.SHA256 = hashed.sum()
	if len(to.rows) == 0 {
		return nil, s.report, s.report.noRow()
	}
	s.report.Kept, s.report.TrainRows = len(to.rows), len(to.rows)
	s.report.Groups = to.sizes
	return to.rows, s.report, nil
}

// inMemory collects the rows of a file. Consecutive answers of one group become one row.
type inMemory struct {
	path   string
	rows   Memory
	groups map[string]int // line at which each group begins
	sizes  GroupReport
}

// add adds a row that was read, or joins it to the group before it.
func (m *inMemory) add(r *booked, text []byte) error {
	ids, labels := fromWords(text)
	row := Row{IDs: ids, Labels: labels, Index: r.index, Line: r.line, Source: m.path, Rollout: r.rollout,
		Columns: r.columns, Borders: r.borders, Desirable: r.desirable, Weights: r.weights, Targets: r.targets,
		Images: r.images}
	if r.rollout == nil {
		m.rows = append(m.rows, row)
		return nil
	}
	where := place(m.path, r.line, r.index)
	if n := len(m.rows); n > 0 && m.rows[n-1].Rollout.Group == r.rollout.Group {
		last := &m.rows[n-1]
		if len(last.Borders)+2 > MaxSequences {
			return fmt.Errorf("%s: group %s has more than %d answers", where, r.rollout.Group, MaxSequences)
		}
		if err := last.Rollout.join(r.rollout, len(last.IDs), len(ids)); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		last.Borders = append(last.Borders, int32(len(last.IDs)))
		last.IDs, last.Labels = append(last.IDs, ids...), append(last.Labels, labels...)
		if k := len(last.Borders); k == 1 {
			m.sizes.Rows, m.sizes.Sequences = m.sizes.Rows+1, m.sizes.Sequences+2
		} else {
			m.sizes.Sequences++
		}
		m.sizes.Most = max(m.sizes.Most, len(last.Borders)+1)
		return nil
	}
	if line, again := m.groups[r.rollout.Group]; again {
		return fmt.Errorf("%s: group %s began at line %d, and another group lies between: the answers of a group "+
			"follow one another", where, r.rollout.Group, line)
	}
	m.groups[r.rollout.Group] = r.line
	m.rows = append(m.rows, row)
	m.sizes.Sampled++
	return nil
}
