package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

var sequence = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// TestTUI draws a run at many sizes: no line is too long, no picture too high, and nothing but the cursor's place, line
// ends and colours that are reset is ever sent to the terminal, so that there is nothing to restore.
func TestTUI(t *testing.T) {
	for _, colour := range []bool{false, true} {
		for _, size := range [][2]int{{20, 3}, {39, 30}, {40, 10}, {40, 12}, {80, 24}, {120, 40}, {300, 100}} {
			var out bytes.Buffer
			s := &tui{bar: newProgress(&bytes.Buffer{}, 1), w: &out, colour: colour, size: func() (int, int) {
				return size[0], size[1]
			},
				busy: func() bool { return true }} // the test alone draws
			s.bar.width = func() int { return 80 }
			s.log("before it begins")
			if err := s.Start(train.RunInfo{Dir: t.TempDir(), Total: 30_000, HeldBytes: 5 << 30}); err != nil {
				t.Fatal(err)
			}
			for step := 1; step <= 20_000; step++ {
				loss := 2 + 5/float64(step)
				switch step % 1000 {
				case 500:
					loss = math.NaN()
				case 501:
					loss = math.Inf(1)
				}
				if err := s.Step(train.StepInfo{Step: step, MeanLoss: loss, TokensPerSecond: 1e5}); err != nil {
					t.Fatal(err)
				}
				if step%100 == 0 {
					s.log(fmt.Sprintf("line %d", step))
				}
			}
			if err := s.Eval(train.EvalMetrics{Step: 20_000, Loss: 2.5}); err != nil {
				t.Fatal(err)
			}
			s.log("\x1b[31mred\x1b[0m \r\x07 " + strings.Repeat("字", 300) + "\u202ereversed")
			out.Reset()
			s.mu.Lock()
			s.put(s.picture(size[0], size[1], true))
			s.mu.Unlock()
			picture := out.String()
			if !strings.HasPrefix(picture, "\x1b[H") || !strings.HasSuffix(picture, "\x1b[J") {
				t.Fatalf("%q", picture)
			}
			lines := strings.Split(sequence.ReplaceAllString(picture, ""), "\n")
			if len(lines) > size[1]-1 {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, l := range lines {
				n := len([]rune(l)) + strings.Count(l, "字")
				if n > size[0]-1 {
					t.Errorf("%v: a line of %d columns: %s", size, n, l)
				}
			}
			whole := size[0] >= tuiColumns && size[1] >= tuiRows
			for _, want := range []string{"20000/30000", "loss, smoothed ", "memory 5.0 GiB held", "\ufffd[31mred"} {
				if (whole || want == "20000/30000") != strings.Contains(picture, want) {
					t.Errorf("%v: %q in the picture: %v\n%s", size, want, !whole, strings.Join(lines, "\n"))
				}
			}
			out.Reset()
			if err := s.End(train.EndInfo{}); err != nil {
				t.Fatal(err)
			}
			s.close() // as runTrain does once more
			if got := out.String(); !strings.HasSuffix(got, "\n") || strings.Count(got, "20000/30000") < 1 ||
				!strings.Contains(got, "line 5000") {
				t.Errorf("%v: at the end %q", size, got)
			}
			for _, q := range sequence.FindAllString(picture+out.String(), -1) {
				if q != "\x1b[H" && q != "\x1b[K" && q != "\x1b[J" && (!colour || !strings.HasSuffix(q, "m")) {
					t.Fatalf("the terminal is sent %q (colour %v)", q, colour)
				}
			}
			if len(s.loss.x) > tuiPoints || len(s.smooth().x) > tuiPoints {
				t.Errorf("%d and %d points are kept", len(s.loss.x), len(s.smooth().x))
			}
		}
	}
}

// TestTUINumbers draws runs with numbers beside the loss: each is whole, with that of the last evaluation beside it, in
// as many lines as a terminal of that size has.
func TestTUINumbers(t *testing.T) {
	o := objective.Of("dpo", objective.Config{})
	for _, size := range [][2]int{{40, 10}, {80, 24}, {120, 40}} {
		s := &tui{bar: newProgress(io.Discard, 1), w: io.Discard, size: func() (int, int) { return size[0], size[1] },
			busy: func() bool { return true }} // the test alone draws
		s.bar.width = func() int { return 80 }
		if err := s.Start(train.RunInfo{Dir: t.TempDir(), Total: 10, Numbers: o.Numbers()}); err != nil {
			t.Fatal(err)
		}
		var values, held train.Values
		for i, n := range o.Numbers() {
			values = append(values, objective.Value{Name: n.Name, Value: float64(i) + 0.5})
			held = append(held, objective.Value{Name: "eval_" + n.Name, Value: float64(i) + 0.25})
		}
		logged := train.StepInfo{Step: 1, MeanLoss: 1, Logged: &train.StepMetrics{Numbers: values}}
		if err := errors.Join(s.Step(logged), s.Eval(train.EvalMetrics{Step: 1, Loss: 2, Numbers: held})); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		lines := s.picture(size[0], size[1], true)
		s.mu.Unlock()
		text := strings.Join(lines, "\n")
		for _, want := range []string{"rewards/chosen 0.5 (eval 0.25)", "rewards/margins 3.5 (eval 3.25)",
			"mean_token_accuracy 9.5 (eval 9.25)"} {
			fits := size[1] > 24 || size[1] > 10 && !strings.HasPrefix(want, "mean")
			if has := strings.Contains(text, want); has != fits {
				t.Errorf("%v: %q in the picture: %v\n%s", size, want, has, text)
			}
		}
		if strings.Contains(text, "tokens/chosen") {
			t.Errorf("%v: hidden numbers are shown\n%s", size, text)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size[0]-1 {
				t.Errorf("%v: a line of %d columns: %s", size, n, line)
			}
		}
		if len(lines) > size[1]-1 {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		s.close()
	}
}

// TestTUINeedsATerminal: elsewhere there are lines, and nobody asks for a picture and silence.
func TestTUINeedsATerminal(t *testing.T) {
	dir := t.TempDir()
	if code, _, errOut := trainer(t, dir, nil, "", append([]string{"train", "--tui"}, small...)...); code != 0 ||
		!strings.Contains(errOut, "note: --tui needs a terminal; progress is shown as lines\n") ||
		!strings.Contains(errOut, "step 3/3") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", append([]string{"train", "--tui", "-q"}, small...)...); code != 2 ||
		errOut != "trainer: --quiet shows no progress and --tui a picture of it: leave one out\n" {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}

// BenchmarkTUIStep is what a step costs a run that is drawn, beside the drawing, which another goroutine does.
func BenchmarkTUIStep(b *testing.B) {
	s := &tui{bar: newProgress(&bytes.Buffer{}, 1), w: &bytes.Buffer{}, size: func() (int, int) {
		return 120, 40
	}, busy: func() bool { return true }}
	s.bar.width = func() int { return 80 }
	if err := s.Start(train.RunInfo{Dir: b.TempDir(), Total: 1 << 30}); err != nil {
		b.Fatal(err)
	}
	defer s.close()
	for i := 0; b.Loop(); i++ {
		if err := s.Step(train.StepInfo{Step: i + 1, MeanLoss: 2 + 1/float64(i+1)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTUIDraw is a picture of a long run.
func BenchmarkTUIDraw(b *testing.B) {
	s := &tui{bar: newProgress(&bytes.Buffer{}, 1), w: io.Discard, colour: true, size: func() (int, int) {
		return 120, 40
	}, busy: func() bool { return false }}
	s.bar.width = func() int { return 80 }
	for i := range 100_000 {
		s.noteLoss(i+1, 2+1/float64(i+1))
	}
	for b.Loop() {
		s.draw()
	}
}
