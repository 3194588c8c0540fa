package runs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

// Bounds of what is kept and shown of sampled answers.
const (
	mostAnswers      = 2000 // prompts with answers that are kept in addition to the first step's
	mostAnswerRows   = 40   // rows of the table of answers
	mostAnswerText   = 600  // characters of an answer or a prompt
	mostPromptRows   = 30   // rows of the table of prompts
	mostPromptCurves = 6    // curves of rewards by prompt
)

// takeAnswers parses a line of completions.jsonl and reports whether it is valid. If steps go back, as after a resume,
// the later line counts.
func (r *Run) takeAnswers(text []byte) bool {
	var l train.CompletionLine
	if json.Unmarshal(text, &l) != nil || l.Step < 1 || l.Row < 1 || !finite(l.Mean) || !finite(l.Std) ||
		!finite(l.Best.Reward) || !finite(l.Worst.Reward) {
		return false
	}
	n := len(r.Answers)
	for n > 0 && r.Answers[n-1].Step > l.Step {
		n--
	}
	for _, text := range []*string{&l.Prompt, &l.Best.Text, &l.Worst.Text} {
		*text = cutTo(*text, mostAnswerText)
	}
	r.Answers = append(r.Answers[:n], l)
	if first := r.firstAnswers(); len(r.Answers) > first+2*mostAnswers {
		r.Answers = slices.Delete(r.Answers, first, len(r.Answers)-mostAnswers)
	}
	return true
}

// firstAnswers returns the number of lines of the first step.
func (r *Run) firstAnswers() int {
	n := 0
	for n < min(len(r.Answers), mostAnswerRows/2) && r.Answers[n].Step == r.Answers[0].Step {
		n++
	}
	return n
}

// cutTo returns a text cut to a number of characters.
func cutTo(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}

// promptRewards are the rewards of the answers to a prompt over the run, by step.
type promptRewards struct {
	prompt string
	x, y   []float64 // steps that sampled answers to the prompt, and the mean rewards
}

// byPrompt returns the rewards of each prompt, those of prompts with most steps first.
func (r *Run) byPrompt() (all []promptRewards) {
	at := map[int]int{}
	for _, l := range r.Answers {
		i, ok := at[l.Row]
		if !ok {
			i = len(all)
			at[l.Row], all = i, append(all, promptRewards{prompt: l.Prompt})
		}
		all[i].x, all[i].y = append(all[i].x, float64(l.Step)), append(all[i].y, l.Mean)
	}
	slices.SortStableFunc(all, func(a, b promptRewards) int { return cmp.Compare(len(b.x), len(a.x)) })
	return all
}

// answers returns the rewards by prompt and the best and worst sampled answers.
func (r *Run) answers() []report.Block {
	if len(r.Answers) == 0 {
		return nil
	}
	prompts := r.byPrompt()
	blocks := []report.Block{}
	plot := report.Plot{Title: "Reward by prompt", XLabel: "step", YLabel: "mean of the answers"}
	for i, p := range prompts[:min(len(prompts), mostPromptCurves)] {
		if len(p.x) > 1 {
			plot.Series = append(plot.Series, report.Series{Name: cutTo(p.prompt, 40), X: p.x, Y: p.y, Colour: i + 1})
		}
	}
	if plot.Series != nil {
		blocks = append(blocks, plot)
	}
	return append(blocks, r.answerTable(), promptTable(prompts))
}

// answerTable returns a table of the best and the worst answers, of the first step and the newest ones.
func (r *Run) answerTable() report.Table {
	t := report.Table{Caption: "Sampled answers: the best and the worst to each prompt, of the first step and the " +
		"newest; " + train.CompletionsFile + " has more",
		Columns: []report.Column{{Title: "step"}, {Title: "prompt"}, {Title: "reward", Right: true},
			{Title: "best", Right: true}, {Title: "best answer"}, {Title: "worst", Right: true},
			{Title: "worst answer"}}}
	rows := r.Answers
	if first := r.firstAnswers(); len(rows) > mostAnswerRows {
		rows = slices.Concat(rows[:first], rows[len(rows)-(mostAnswerRows-first):])
	}
	best := 0
	for i, l := range rows {
		if l.Best.Reward > rows[best].Best.Reward {
			best = i
		}
		t.Rows = append(t.Rows, []string{report.Whole(int64(l.Step)), l.Prompt,
			report.Number(rounded(l.Mean)) + " ± " + report.Number(rounded(l.Std)),
			report.Number(rounded(l.Best.Reward)), answerText(l.Best), report.Number(rounded(l.Worst.Reward)),
			answerText(l.Worst)})
	}
	t.Strong = []int{best}
	return t
}

// answerText returns an answer with what is worth knowing of it.
func answerText(a train.JudgedAnswer) string {
	if a.Truncated {
		return a.Text + fmt.Sprintf(" (cut after %d tokens)", a.Tokens)
	}
	return a.Text
}

// promptTable returns a table of the prompts and how their rewards went.
func promptTable(prompts []promptRewards) report.Table {
	t := report.Table{Caption: "Rewards by prompt: means over the answers",
		Columns: []report.Column{{Title: "prompt"}, {Title: "steps", Right: true}, {Title: "first", Right: true},
			{Title: "last", Right: true}, {Title: "highest", Right: true}}}
	if len(prompts) > mostPromptRows {
		t.Caption += fmt.Sprintf("; %d of %d prompts", mostPromptRows, len(prompts))
		prompts = prompts[:mostPromptRows]
	}
	for _, p := range prompts {
		t.Rows = append(t.Rows, []string{cutTo(p.prompt, 160), report.Whole(int64(len(p.x))),
			report.Number(rounded(p.y[0])), report.Number(rounded(p.y[len(p.y)-1])),
			report.Number(rounded(slices.Max(p.y)))})
	}
	return t
}
