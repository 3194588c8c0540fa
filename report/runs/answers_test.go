package runs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

// answerLine is a line of completions.jsonl.
func answerLine(step, row int, mean float64, best string) string {
	return fmt.Sprintf(`{"step":%d,"row":%d,"prompt":"p%d <b>","reward":%g,"reward_std":0.5,`+
		`"best":{"text":%q,"reward":%g,"tokens":16,"truncated":true},"worst":{"text":"w","reward":0}}`+"\n",
		step, row, row, mean, best, mean+1)
}

// TestAnswers checks the tables and the plot of sampled answers: a later line replaces those of a step that a resumed
// run repeats, texts are escaped, damaged lines are reported, and memory and rows are bounded.
func TestAnswers(t *testing.T) {
	r := read(t, map[string]string{train.CompletionsFile: answerLine(1, 3, 0.5, "<script>alert(1)</script>") +
		answerLine(3, 3, 0.25, "gone") + answerLine(2, 3, 1.5, "later") + `{"step":2,"row":0}` + "\n" +
		`{"step":3,"row":1,"reward":1e999}` + "\n"})
	if len(r.Answers) != 2 || len(r.Problems) != 1 {
		t.Fatalf("%+v\n%q", r.Answers, r.Problems)
	}
	html, text := pages(t, r)
	plain := strings.NewReplacer("\\", "", "*", "").Replace(text)
	for _, want := range []string{"| 1 | p3 <b> | 0.5 ± 0.5 | 1.5 |",
		"| p3 <b> | 2 | 0.5 | 1.5 | 1.5 |", "later (cut after 16 tokens)"} {
		if !strings.Contains(plain, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(html, "<script>alert") || !strings.Contains(html, "Reward by prompt") {
		t.Error(html)
	}
	var many strings.Builder
	for step := 1; step < 4000; step++ {
		for row := 1; row < 4; row++ {
			many.WriteString(answerLine(step, row, 1, strings.Repeat("x", 3000)))
		}
	}
	r = read(t, map[string]string{train.CompletionsFile: many.String()})
	blocks := r.answers()
	rows := blocks[1].(report.Table).Rows
	if n := len(r.Answers); n > 3+2*mostAnswers || len(rows) > mostAnswerRows || rows[0][0] != "1" ||
		rows[len(rows)-1][0] != "3,999" || len(rows[0][4]) > mostAnswerText+40 {
		t.Errorf("%d kept, %d rows, the first is %.20q", n, len(rows), rows[0])
	}
	if n := len(blocks[0].(report.Plot).Series); n != 3 {
		t.Errorf("%d curves", n)
	}
}
