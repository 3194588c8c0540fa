package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// drawEvery is the least time between two drawings of the bar. Later changes wait until it has passed.
const drawEvery = 100 * time.Millisecond

// progress shows a run as a one-line bar on a terminal, else as plain lines at intervals of steps. The loss is the mean
// over the trained tokens since the last line of metrics.jsonl, as in that file.
type progress struct {
	w     io.Writer
	every int
	width func() int // returns the terminal's width in columns; nil if the output is not a terminal
	intro string     // line before the first step; "" = none

	train.Silent
	numbers []objective.Number // numbers that the run's objective reports besides the loss

	mu    sync.Mutex
	bar   bool // draw a bar: between Start and End, on a terminal
	total int
	done  int // steps before this start
	step  int // the newest step
	loss  float64
	// evaluating describes the progress of an evaluation; empty = no evaluation runs
	evaluating string
	rate       float64
	start      time.Time
	drawn      time.Time
	later      *time.Timer // draws changes that came too soon after the last drawing
}

func newProgress(w io.Writer, every int) *progress {
	p := &progress{w: w, every: max(1, every), loss: math.NaN()}
	if mayColour(w) {
		p.width = func() int { return columns(w) }
	}
	return p
}

func (p *progress) Start(r train.RunInfo) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intro != "" {
		p.line(p.intro)
	}
	p.numbers = r.Numbers
	p.total, p.done, p.step, p.start, p.bar = r.Total, r.Done, r.Done, time.Now(), p.width != nil
	p.draw()
	return nil
}

func (p *progress) Step(s train.StepInfo) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluating = ""
	logged := s.Step%p.every == 0 || s.Step == p.total
	if p.bar {
		p.step, p.rate = s.Step, s.TokensPerSecond
		if logged || s.Step-p.done < p.every {
			p.loss = s.MeanLoss
		}
		p.drawSoon()
		return nil
	}
	if !logged {
		return nil
	}
	of := ""
	if n := (s.Step-1)%p.every + 1; n > 1 {
		of = fmt.Sprintf(" (mean of %d steps)", n)
	}
	line := fmt.Sprintf("step %d/%d  loss %.4f%s  grad norm %.4g  lr %.3g  %s tok/s", s.Step, p.total, s.MeanLoss, of,
		s.GradNorm, s.LearningRate, rate(s.TokensPerSecond))
	if s.Logged != nil {
		line += p.named(s.Logged.Numbers, "")
	}
	if s.LossScale > 0 {
		line += fmt.Sprintf("  loss scale %g", s.LossScale)
	}
	if left := p.left(s.Step); left > 0 {
		line += "  left " + left.String()
	}
	fmt.Fprintln(p.w, line)
	return nil
}

// Evaluating shows the progress of an evaluation in place of pace and time left.
func (p *progress) Evaluating(_, batches, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluating = fmt.Sprintf(" evaluating %d/%d", batches, of)
	p.drawSoon()
}

func (p *progress) Eval(e train.EvalMetrics) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluating = ""
	if e.Step == p.done {
		p.start = time.Now() // the pace is that of the steps that begin now
	}
	p.line(fmt.Sprintf("step %d/%d  eval loss %.4f", e.Step, p.total, e.Loss) + p.named(e.Numbers, "eval_"))
	p.draw()
	return nil
}

// left returns the time that the remaining steps take at the present pace.
func (p *progress) left(step int) time.Duration {
	if step <= p.done {
		return 0
	}
	each := time.Since(p.start) / time.Duration(step-p.done)
	return (each * time.Duration(p.total-step)).Round(time.Second)
}

func (p *progress) End(train.EndInfo) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.later != nil {
		p.later.Stop()
	}
	if p.bar {
		p.draw()
		p.bar = false
		fmt.Fprintln(p.w)
	}
	return nil
}

// log writes a line above the bar. Any goroutine may call it.
func (p *progress) log(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(line)
	p.draw()
}

func (p *progress) line(line string) {
	if p.bar {
		fmt.Fprint(raw(p.w), "\r\x1b[K")
	}
	sayLine(p.w, line)
}

// drawSoon draws now, or as soon as drawEvery has passed, so that the newest step is always shown.
func (p *progress) drawSoon() {
	wait := drawEvery - time.Since(p.drawn)
	switch {
	case wait <= 0 || p.step == p.total:
		p.draw()
	case p.later == nil:
		p.later = time.AfterFunc(wait, rescue.Wrap(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.draw()
		}))
	}
}

// draw replaces the previous bar.
func (p *progress) draw() {
	if !p.bar {
		return
	}
	if p.later != nil {
		p.later.Stop()
		p.later = nil
	}
	p.drawn = time.Now()
	columns := p.width() - 1 // some terminals wrap after the last column
	if columns > 30 {
		columns -= 2 // the terminal shows ^C after the bar
	}
	fmt.Fprint(raw(p.w), "\r", p.frame(columns), "\x1b[K")
}

// frame returns the bar in at most the given columns. It leaves out the least important parts first: pace, time left,
// bar, loss.
func (p *progress) frame(columns int) string {
	count := fmt.Sprintf("%d/%d", p.step, p.total)
	if len(count) > columns {
		return count[:max(0, columns)]
	}
	free := columns - len(count)
	fit := func(choices ...string) string { // the first choice that fits
		for _, c := range choices {
			if len(c) <= free {
				free -= len(c)
				return c
			}
		}
		return ""
	}
	loss, left, pace := "", "", fit(p.evaluating)
	if !math.IsNaN(p.loss) {
		loss = fit(fmt.Sprintf(" loss %.4f", p.loss), fmt.Sprintf(" loss %.2f", p.loss), fmt.Sprintf(" %.2f", p.loss))
	}
	if d := p.left(p.step); d > 0 && p.evaluating == "" {
		left = fit(" left " + d.String())
	}
	if p.step > p.done && p.evaluating == "" {
		pace = fit(" " + rate(p.rate) + " tok/s")
	}
	picture := ""
	if inside := min(free-3, 40); inside >= 5 { // brackets and a blank
		picture = drawBar(p.step, p.total, inside) + " "
	}
	return picture + count + loss + pace + left
}

// drawBar returns the bar alone, with its brackets, as the library draws it.
func drawBar(step, total, inside int) string {
	bar := progressbar.NewOptions(max(total, 1), progressbar.OptionSetWriter(io.Discard),
		progressbar.OptionSetWidth(inside),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "=", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}))
	if err := bar.Set(step); err != nil {
		return ""
	}
	text := bar.String()
	from, to := strings.IndexByte(text, '['), strings.LastIndexByte(text, ']')
	if from < 0 || to < from {
		return ""
	}
	return text[from : to+1]
}

// rate formats a number of tokens with separators of thousands.
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

// reading returns a function that shows the progress of reading a data file, in one line of a terminal that is cleared
// at the end, or nil if err is not a terminal.
func (c *console) reading() func(dataset.Progress) {
	if !mayColour(c.err) {
		return nil
	}
	shown := false
	return func(p dataset.Progress) {
		if p.Doing == "" {
			if shown {
				fmt.Fprint(raw(c.err), "\r\x1b[K")
			}
			shown = false
			return
		}
		shown = true
		line := plainText(readingLine(p))
		fmt.Fprint(raw(c.err), "\r", line[:min(len(line), columns(c.err)-1)], "\x1b[K")
	}
}

// readingLine returns, for example, "tokenising rows.jsonl: 1,204,331 rows, 1.20 of 10.4 GB (11 %), 52 MB/s, left
// 2m57s".
func readingLine(p dataset.Progress) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", p.Doing, filepath.Base(p.Path))
	sep := ": "
	part := func(format string, args ...any) {
		fmt.Fprintf(&b, sep+format, args...)
		sep = ", "
	}
	if p.Rows > 0 {
		part("%s rows", rate(float64(p.Rows)))
	}
	if p.Bytes == 0 {
		return b.String()
	}
	unit, name := 1e6, "MB"
	if max(p.Size, p.Bytes) >= 1e9 {
		unit, name = 1e9, "GB"
	}
	if p.Size > 0 {
		part("%.3g of %.3g %s (%d%%)", float64(p.Bytes)/unit, float64(p.Size)/unit, name, 100*p.Bytes/p.Size)
	} else {
		part("%.3g %s", float64(p.Bytes)/unit, name)
	}
	part("%.0f MB/s", p.PerSecond()/1e6)
	if left := p.Left(); left >= time.Second {
		part("left %v", left.Round(time.Second))
	}
	return b.String()
}
