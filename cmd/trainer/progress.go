package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tierlora/tierlora/train"
)

// progress shows a run: a bar on a terminal, else plain lines, one every so many steps.
type progress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil where no person watches
	every int
	total int
	done  int
	start time.Time
	tty   bool
}

func newProgress(w io.Writer, every int) *progress {
	return &progress{w: w, every: max(1, every), tty: mayColour(w)}
}

func (p *progress) Start(total, done int) {
	p.total, p.done, p.start = total, done, time.Now()
	if !p.tty {
		return
	}
	p.bar = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetWidth(16),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}),
	)
	if done > 0 {
		p.report(p.bar.Set(done))
	}
}

func (p *progress) Step(s train.StepInfo) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("loss %.4f  %s tok/s", s.Loss, rate(s.TokensPerSecond)))
		p.report(p.bar.Set(s.Step))
		if !math.IsNaN(s.EvalLoss) {
			p.log(fmt.Sprintf("step %d  eval loss %.4f", s.Step, s.EvalLoss))
		}
		return
	}
	if s.Step%p.every != 0 && s.Step != p.total && math.IsNaN(s.EvalLoss) {
		return
	}
	line := fmt.Sprintf("step %d/%d  loss %.4f  grad norm %.4g  lr %.3g  %s tok/s", s.Step, p.total, s.Loss, s.GradNorm, s.LearningRate, rate(s.TokensPerSecond))
	if s.LossScale > 0 {
		line += fmt.Sprintf("  loss scale %g", s.LossScale)
	}
	if !math.IsNaN(s.EvalLoss) {
		line += fmt.Sprintf("  eval loss %.4f", s.EvalLoss)
	}
	if left := p.left(s.Step); left > 0 {
		line += "  left " + left.String()
	}
	fmt.Fprintln(p.w, line)
}

// left is the time that the remaining steps take at the pace so far.
func (p *progress) left(step int) time.Duration {
	if step <= p.done {
		return 0
	}
	each := time.Since(p.start) / time.Duration(step-p.done)
	return (each * time.Duration(p.total-step)).Round(time.Second)
}

func (p *progress) End() {
	if p.bar != nil {
		fmt.Fprintln(p.w)
		p.bar = nil
	}
}

// log writes a line above the bar.
func (p *progress) log(line string) {
	if p.bar == nil {
		fmt.Fprintln(p.w, line)
		return
	}
	p.report(p.bar.Clear())
	fmt.Fprintln(p.w, line)
	p.report(p.bar.RenderBlank())
}

// report drops the bar when it can't be drawn: a run does not fail for that.
func (p *progress) report(err error) {
	if err != nil {
		p.bar = nil
	}
}

// rate writes a number of tokens with thousands apart.
func rate(perSecond float64) string {
	if math.IsNaN(perSecond) || math.IsInf(perSecond, 0) {
		return "?"
	}
	s := fmt.Sprintf("%.0f", perSecond)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
