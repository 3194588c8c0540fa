package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
)

// Answer is the result of a question.
type Answer struct {
	Task        string             `json:"task"`
	Adapter     string             `json:"adapter,omitempty"`
	Where       string             `json:"where"`
	Prompt      string             `json:"prompt"` // without the chat template
	Examples    int                `json:"few_shot"`
	Expected    string             `json:"expected"`
	Answer      string             `json:"answer"`
	Extracted   string             `json:"extracted,omitempty"`
	Stopped     string             `json:"stopped,omitempty"`
	Choices     []string           `json:"choices,omitempty"`
	Likelihoods []float64          `json:"log_likelihoods,omitempty"` // of the choices
	Scores      map[string]float64 `json:"scores"`
}

// Metric is a mean over the questions.
type Metric struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	StdErr float64 `json:"stderr"` // standard deviation of the sample / sqrt(questions); 0 for a single question
}

// Result is a task's outcome.
type Result struct {
	Task      string        `json:"task"`
	Kind      string        `json:"kind"`
	Data      string        `json:"data"`
	Adapter   string        `json:"adapter,omitempty"`
	Questions int           `json:"questions"`
	FewShot   int           `json:"few_shot"`
	Chat      bool          `json:"chat"` // asked with the chat template
	Metrics   []Metric      `json:"metrics"`
	Cut       int           `json:"cut"` // answers that max_tokens cut off
	Duration  time.Duration `json:"duration_ns"`
	Answers   []Answer      `json:"-"`
}

// Run asks all questions of a task. adapter describes the model in the answers. progress may be nil.
func Run(ctx context.Context, g *infer.Generator, t *Task, adapter string,
	progress func(done, of int)) (Result, error) {
	s, err := Prepare(ctx, g, t, adapter)
	if err != nil {
		return Result{}, err
	}
	return s.Ask(ctx, progress)
}

// Sheet holds a task's questions, tokenised and checked against the model's context.
type Sheet struct {
	Longest int // tokens of the longest question with its answer

	g         *infer.Generator
	task      *Task
	blank     Result // result with the questions and without answers
	questions []question
	prompts   []infer.Prompt
	rows      []dataset.Row // rows of the choices, question by question
}

// Prepare reads and tokenises the questions. It does not run the model and needs no memory for it.
func Prepare(ctx context.Context, g *infer.Generator, t *Task, adapter string) (*Sheet, error) {
	s := &Sheet{g: g, task: t, blank: Result{Task: t.Name, Kind: t.Kind, Data: t.Data, Adapter: adapter,
		FewShot: t.FewShot}}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	return s, nil
}

// Ask asks all questions. It may be called again.
func (s *Sheet) Ask(ctx context.Context, progress func(done, of int)) (Result, error) {
	r, began := s.blank, time.Now()
	r.Answers = slices.Clone(r.Answers)
	ask := s.generate
	if Kinds[s.task.Kind].Score == nil {
		ask = s.choose
	}
	if err := ask(ctx, &r, progress); err != nil {
		return Result{}, fmt.Errorf("task %s: %w", s.task.Name, err)
	}
	r.Metrics, r.Duration = means(r.Answers), time.Since(began)
	return r, nil
}

func (s *Sheet) prepare(ctx context.Context) error {
	g, t, r := s.g, s.task, &s.blank
	questions, err := t.read(ctx, g, t.dataConfig(t.Data, t.Split), t.Limit)
	if err != nil {
		return err
	}
	if r.Chat, err = t.talks(g); err != nil {
		return err
	}
	shots, err := t.examples(ctx, g, questions)
	if err != nil {
		return err
	}
	prompts := make([]infer.Prompt, len(questions))
	s.questions, s.prompts = questions, prompts
	r.Questions, r.Answers = len(questions), make([]Answer, len(questions))
	for i, q := range questions {
		few := shots.of(i)
		a := Answer{Task: t.Name, Adapter: r.Adapter, Where: q.where, Prompt: q.prompt, Examples: len(few),
			Expected: q.expected, Choices: q.choices}
		if !r.Chat {
			a.Prompt = text(q, few)
			prompts[i] = g.Text(a.Prompt)
		} else if prompts[i], err = t.chatPrompt(g, q, few); err != nil {
			return err
		}
		r.Answers[i] = a
		if len(prompts[i].IDs) == 0 {
			return fmt.Errorf("%s: the prompt is empty", q.where)
		}
	}
	if Kinds[t.Kind].Score == nil {
		return s.choiceRows()
	}
	for i, p := range prompts {
		if err := s.fits(questions[i], len(p.IDs)); err != nil {
			return err
		}
		s.Longest = max(s.Longest, len(p.IDs)+t.MaxTokens)
	}
	return nil
}

// generate lets the model write the answers.
func (s *Sheet) generate(ctx context.Context, r *Result, progress func(done, of int)) error {
	t := s.task
	o := infer.GenerateOptions{MaxTokens: t.MaxTokens, Stop: t.Stop}
	return answers(ctx, s.g, s.prompts, o, func(i int, made infer.Generated) {
		a := &r.Answers[i]
		score := Kinds[t.Kind].Score(t, a.Expected, made.Text)
		a.Answer, a.Extracted, a.Stopped, a.Scores = made.Text, score.Extracted, made.Stopped, score.Metrics
		if made.Stopped == infer.StoppedLength {
			r.Cut++
		}
		if progress != nil {
			progress(i+1, len(s.prompts))
		}
	})
}

// answers continues all prompts greedily.
func answers(ctx context.Context, g *infer.Generator, prompts []infer.Prompt, o infer.GenerateOptions,
	take func(i int, made infer.Generated)) error {
	for i, p := range prompts {
		made, err := g.Continue(ctx, p, o, nil)
		if err != nil {
			return err
		}
		take(i, made)
	}
	return nil
}

// talks reports whether the questions are asked with a chat template.
func (t *Task) talks(g *infer.Generator) (bool, error) {
	if t.Chat == ChatNever {
		return false, nil
	}
	has, err := g.HasChatTemplate()
	if err == nil && !has && t.Images != "" {
		err = errors.New("images_field: images need a chat template, and neither the model nor the adapter has one")
	}
	if err == nil && !has && t.Chat == ChatAlways {
		err = errors.New("chat: always, and neither the model nor the adapter has a chat template")
	}
	return has, err
}

func (t *Task) chatPrompt(g *infer.Generator, q question, few []question) (infer.Prompt, error) {
	conv, err := t.talk(q, few)
	if err != nil {
		return infer.Prompt{}, fmt.Errorf("%s: %w", q.where, err)
	}
	p, err := g.ChatPrompt(conv, "")
	if err == nil && t.Images != "" {
		p, err = t.show(g, p, imagesOf(q, few))
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", q.where, err)
	}
	return p, nil
}

// fits returns an error for a question that is longer than the model's context.
func (s *Sheet) fits(q question, prompt int) error {
	t, answer := s.task, s.task.MaxTokens
	if most := s.g.Base.Config.MaxPositions; prompt+answer > most {
		return fmt.Errorf("%s: the prompt has %d tokens and the answer up to %d, together more than the model's %d "+
			"positions: lower few_shot (%d) or max_tokens", q.where, prompt, answer, most, t.FewShot)
	}
	return nil
}

// choiceRows tokenises the choices.
func (s *Sheet) choiceRows() error {
	for i, q := range s.questions {
		for _, c := range q.choices {
			row, err := s.blank.choiceRow(s.g, q, s.blank.Answers[i].Prompt, s.prompts[i].IDs, c)
			if err != nil {
				return err
			}
			row.Images = s.prompts[i].Images
			s.rows, s.Longest = append(s.rows, row), max(s.Longest, len(row.IDs))
		}
	}
	return nil
}

// choose scores choices by their likelihood after the prompt.
func (s *Sheet) choose(ctx context.Context, r *Result, progress func(done, of int)) error {
	sums, err := s.g.LogLikelihoods(ctx, s.rows, progress)
	if err != nil {
		return err
	}
	for i, q := range s.questions {
		a, n := &r.Answers[i], len(q.choices)
		a.Likelihoods, sums = sums[:n:n], sums[n:]
		chosen, scores := scoreChoices(q.choices, q.gold, a.Likelihoods)
		a.Answer, a.Scores = q.choices[chosen], scores
	}
	return nil
}

// choiceRow returns a choice after its prompt. In plain text both are tokenised together, and the space between them
// counts to the choice, as in lm-eval.
func (r *Result) choiceRow(g *infer.Generator, q question, prompt string, ids []int32,
	choice string) (dataset.Row, error) {
	all := slices.Concat(ids, g.Base.Tokenizer.IDs(choice, false))
	if !r.Chat {
		bare := strings.TrimRight(prompt, " \t\n")
		ids = g.Base.Tokenizer.IDs(bare, true)
		all = g.Base.Tokenizer.IDs(prompt+gapBefore(prompt, choice)+choice, true)
	}
	if len(ids) == 0 || len(all) <= len(ids) {
		return dataset.Row{}, fmt.Errorf("%s: the prompt and the choice %q make no tokens that could be told apart",
			q.where, clip(choice, 40))
	}
	if most := g.Base.Config.MaxPositions; len(all) > most {
		return dataset.Row{}, fmt.Errorf("%s: the prompt and the choice %q have %d tokens, more than the model's %d "+
			"positions: lower few_shot (%d)", q.where, clip(choice, 40), len(all), most, r.FewShot)
	}
	labels := slices.Clone(all)
	for k := range ids {
		labels[k] = dataset.Ignore
	}
	return dataset.Row{IDs: all, Labels: labels, Source: q.where}, nil
}

// means returns the metrics over all answers, sorted by name.
func means(answers []Answer) (all []Metric) {
	if len(answers) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(answers[0].Scores)) {
		values := make([]float64, len(answers))
		for i, a := range answers {
			values[i] = a.Scores[name]
		}
		mean, err := meanOf(values)
		all = append(all, Metric{name, mean, err})
	}
	return all
}

// meanOf returns a mean and its standard error.
func meanOf(values []float64) (mean, stderr float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v
	}
	mean /= n
	if len(values) < 2 {
		return mean, 0
	}
	sum := 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sum / (n - 1) / n)
}

// Change compares a metric of two models on the same questions.
type Change struct {
	Name   string  `json:"name"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Change float64 `json:"change"`
	StdErr float64 `json:"stderr"` // standard error of Change, over the differences per question
	Better int     `json:"better"` // questions whose score rose
	Worse  int     `json:"worse"`
}

// Compare pairs the answers of two runs of one task.
func Compare(before, after Result) ([]Change, error) {
	if len(before.Answers) != len(after.Answers) {
		return nil, fmt.Errorf("compare task %s: %d answers before, %d after", after.Task, len(before.Answers),
			len(after.Answers))
	}
	var all []Change
	for k, m := range after.Metrics {
		c := Change{Name: m.Name, Before: before.Metrics[k].Value, After: m.Value}
		differences := make([]float64, len(after.Answers))
		for i := range after.Answers {
			d := after.Answers[i].Scores[m.Name] - before.Answers[i].Scores[m.Name]
			differences[i] = d
			if d > 0 {
				c.Better++
			} else if d < 0 {
				c.Worse++
			}
		}
		c.Change, c.StdErr = meanOf(differences)
		all = append(all, c)
	}
	return all, nil
}
