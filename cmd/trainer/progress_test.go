package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// Where no terminal is, progress is plain lines: every so many steps, the last step, and evaluations.
func TestPlainProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, 2)
	p.Start(train.RunInfo{Total: 5, Done: 0})
	p.log("a note")
	for step := 1; step <= 5; step++ {
		p.Step(train.StepInfo{Step: step, Loss: 9, MeanLoss: 1.25, GradNorm: 0.5, LearningRate: 2e-4,
			TokensPerSecond: 12345.6})
		if step == 3 {
			p.Eval(train.EvalMetrics{Step: 3, Loss: 2.5})
		}
	}
	p.End(train.EndInfo{})
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	want := []string{
		"a note",
		"step 2/5  loss 1.2500 (mean of 2 steps)  grad norm 0.5  lr 0.0002  12,346 tok/s",
		"step 3/5  eval loss 2.5000",
		"step 4/5  loss 1.2500 (mean of 2 steps)  grad norm 0.5  lr 0.0002  12,346 tok/s",
		"step 5/5  loss 1.2500  grad norm 0.5  lr 0.0002  12,346 tok/s",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), b.String())
	}
	for i := range want {
		if got, _, _ := strings.Cut(lines[i], "  left "); got != want[i] {
			t.Errorf("line %d is %q, want %q", i+1, got, want[i])
		}
	}
}

func TestRate(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", math.Inf(1): "?"} {
		if got := rate(x); got != want {
			t.Errorf("rate(%v) = %q, want %q", x, got, want)
		}
	}
}

// terminal is what a terminal of some width shows of what is written to it: lines, of which the last is being
// written. A character behind the last column begins a new line, as on a real one.
type terminal struct {
	width int
	lines []string
	at    int // column
	wraps int
}

func (s *terminal) Write(p []byte) (int, error) {
	if len(s.lines) == 0 {
		s.lines = []string{""}
	}
	text := string(p)
	for len(text) > 0 {
		last := &s.lines[len(s.lines)-1]
		switch {
		case strings.HasPrefix(text, "\x1b[K"):
			*last = (*last)[:min(s.at, len(*last))]
			text = text[3:]
			continue
		case text[0] == '\r':
			s.at = 0
		case text[0] == '\n':
			s.lines, s.at = append(s.lines, ""), 0
		default:
			if s.at == s.width {
				s.lines, s.at = append(s.lines, ""), 0
				s.wraps++
				last = &s.lines[len(s.lines)-1]
			}
			*last = (*last)[:min(s.at, len(*last))] + text[:1] + (*last)[min(s.at+1, len(*last)):]
			s.at++
		}
		text = text[1:]
	}
	return len(p), nil
}

// The bar fits any terminal, never begins another line, and shows the step that was finished last.
func TestBarFits(t *testing.T) {
	for _, width := range []int{1, 5, 12, 20, 21, 30, 40, 46, 60, 80, 200} {
		for _, total := range []int{1, 100, 123456} {
			s := &terminal{width: width}
			p := newProgress(s, 2)
			p.width = func() int { return width }
			p.Start(train.RunInfo{Total: total, Done: 0})
			for step := 1; step <= min(total, 5); step++ {
				p.Step(train.StepInfo{Step: step, Loss: 9, MeanLoss: 3.25 + float64(step), TokensPerSecond: 12345.6})
				if step == 2 && total == 100 && width%20 == 0 {
					want, shown, lines := fmt.Sprintf("%d/%d", step, total), "", 0
					// the step came right after the first drawing
					for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(drawEvery / 4) {
						p.mu.Lock()
						shown, lines = s.lines[len(s.lines)-1], len(s.lines)
						p.mu.Unlock()
						if strings.Contains(shown, want) {
							break
						}
					}
					if lines != 1 || !strings.Contains(shown, want) || !strings.Contains(shown, "5.25") {
						t.Errorf("%d columns: the bar is %q after step %s", width, shown, want)
					}
				}
			}
			p.End(train.EndInfo{})
			if s.wraps > 0 || len(s.lines) != 2 {
				t.Errorf("%d columns, %d steps: %d lines wrapped in\n%s", width, total, s.wraps,
					strings.Join(s.lines, "\n"))
			}
			if want := fmt.Sprintf("%d/%d", min(total, 5), total); width >= 20 && !strings.Contains(s.lines[0], want) {
				t.Errorf("%d columns: the bar ends as %q, want %s", width, s.lines[0], want)
			}
		}
	}
}

// A long count leaves less for the loss.
func TestBarOfManySteps(t *testing.T) {
	for total, want := range map[int]string{1000: "34/1000 loss 3.2400", 50000: "34/50000 loss 3.24",
		12345678: "34/12345678 3.24"} {
		p := &progress{w: io.Discard, every: 1, total: total, step: 34, done: 34, loss: 3.24}
		if got := p.frame(19); got != want {
			t.Errorf("%d steps: %q, want %q", total, got, want)
		}
	}
}

// Parts of the bar go one by one as the terminal gets narrower; lines above it stay whole.
func TestBarParts(t *testing.T) {
	for width, want := range map[int]string{
		20:  "34/100 loss 3.2400",
		30:  "34/100 loss 3.2400 left 1m6s",
		40:  "[==    ] 34/100 loss 3.2400 left 1m6s",
		200: "[=============                           ] 34/100 loss 3.2400 52,324 tok/s left 1m6s",
	} {
		s := &terminal{width: width}
		p := newProgress(s, 1)
		p.width = func() int { return width }
		p.Start(train.RunInfo{Total: 100, Done: 0})
		p.start = time.Now().Add(-34 * time.Second)
		p.Step(train.StepInfo{Step: 34, MeanLoss: 3.24, TokensPerSecond: 52324})
		p.log("a note")
		if got := s.lines; len(got) != 2 || got[0] != "a note" || got[1] != want {
			t.Errorf("%d columns: %q, want %q below a note", width, got, want)
		}
		p.End(train.EndInfo{})
	}
}

func TestReadingLine(t *testing.T) {
	for _, c := range []struct {
		p    dataset.Progress
		want string
	}{
		{dataset.Progress{Doing: "tokenising", Path: "a/rows.jsonl", Rows: 1204331, Bytes: 1_200_000_000,
			Size: 10_400_000_000, Took: 24 * time.Second},
			"tokenising rows.jsonl: 1,204,331 rows, 1.2 of 10.4 GB (11%), 50 MB/s, left 3m4s"},
		{dataset.Progress{Doing: "hashing", Path: "rows.jsonl", Bytes: 5_000_000, Took: time.Second},
			"hashing rows.jsonl: 5 MB, 5 MB/s"},
		{dataset.Progress{Doing: "waiting for another run that tokenises", Path: "rows.jsonl"},
			"waiting for another run that tokenises rows.jsonl"},
	} {
		if got := readingLine(c.p); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestReadingIsSilent where the standard error is no terminal.
func TestReadingIsSilent(t *testing.T) {
	c := &console{err: &bytes.Buffer{}}
	if c.reading() != nil {
		t.Error("somebody is told")
	}
}

// TestProgressOfNumbers: the objective's numbers with a sum of their own end a line; those derived from others do not.
func TestProgressOfNumbers(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, 1)
	p.Start(train.RunInfo{Total: 2, Numbers: []objective.Number{{Name: "nll"}, {Name: "ppl", Of: "nll"},
		{Name: "margin"}}})
	logged := &train.StepMetrics{Numbers: train.Values{{Name: "nll", Value: 1.5}, {Name: "ppl", Value: 4.5},
		{Name: "margin", Value: 0.25}, {Name: "reward", Value: 0.5}, {Name: "completions/mean_length", Value: 12}}}
	p.Step(train.StepInfo{Step: 1, MeanLoss: 2, Logged: logged})
	p.Eval(train.EvalMetrics{Step: 1, Loss: 3, Numbers: train.Values{{Name: "eval_nll", Value: 2.5},
		{Name: "eval_ppl", Value: 12}}})
	for _, want := range []string{"tok/s  reward 0.5  mean_length 12  nll 1.5  margin 0.25",
		"eval loss 3.0000  nll 2.5\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
