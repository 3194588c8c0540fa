package main

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
)

// Where no terminal is, progress is plain lines: every so many steps, the last step, and evaluations.
func TestPlainProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, 2)
	p.Start(5, 0)
	p.log("a note")
	for step := 1; step <= 5; step++ {
		eval := math.NaN()
		if step == 3 {
			eval = 2.5
		}
		p.Step(train.StepInfo{Step: step, Loss: 1.25, GradNorm: 0.5, LearningRate: 2e-4, TokensPerSecond: 12345.6, EvalLoss: eval})
	}
	p.End()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	want := []string{
		"a note",
		"step 2/5  loss 1.2500  grad norm 0.5  lr 0.0002  12,346 tok/s",
		"step 3/5  loss 1.2500  grad norm 0.5  lr 0.0002  12,346 tok/s  eval loss 2.5000",
		"step 4/5  loss 1.2500  grad norm 0.5  lr 0.0002  12,346 tok/s",
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
