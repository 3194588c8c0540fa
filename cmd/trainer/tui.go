package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// Bounds of the terminal dashboard.
const (
	tuiEvery   = 250 * time.Millisecond // between two frames
	tuiColumns = 40                     // with fewer columns, or too few rows, only the bar is shown
	tuiRows    = 10
	tuiLog     = 200  // lines that are kept
	tuiPoints  = 6000 // points of a curve before it is thinned out
)

// tui is the terminal dashboard of a run: the bar, plots of loss and memory, and the log below. It changes no mode of
// the terminal and writes each frame at once, so that the terminal is intact however the program ends. The run's
// goroutine only stores values; another goroutine draws.
type tui struct {
	bar    *progress // supplies the line of the bar
	size   func() (columns, rows int)
	colour bool
	busy   func() bool // reports whether the last frame is not written yet

	train.Silent
	mu      sync.Mutex
	w       io.Writer
	on      bool // between Start and End
	dir     string
	held    int64
	plan    *train.PlanReport
	loss    curve
	evals   curve
	memory  curve
	even    curve // losses at even distances, smoothed as on the page
	each    int   // lines that make a point of even
	sum     float64
	n       int
	history []string // lines of the log
	// numbers and evaluated are the objective's numbers of the last logged step and of the last evaluation.
	numbers, evaluated []item
	start              time.Time
	stop               chan struct{}
	stopped            chan struct{}
}

// curve is a list of points in order.
type curve struct{ x, y []float64 }

func (c *curve) add(x, y float64) {
	c.x, c.y = append(c.x, x), append(c.y, y)
	if len(c.x) > tuiPoints {
		c.x, c.y = report.Thinned(c.x, c.y, tuiPoints/6)
	}
}

func (c *curve) series(name string, style report.Style, colour int) report.Series {
	return report.Series{Name: name, X: c.x, Y: c.y, Style: style, Colour: colour}
}

// newTUI returns nil if the writer is not a terminal that can be drawn on.
func newTUI(w io.Writer, every int) *tui {
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	t := &tui{bar: newProgress(io.Discard, every), w: w, colour: mayColour(w), size: func() (int, int) {
		return terminalSize(w)
	}}
	t.busy = func() bool { o, ok := raw(w).(*outlet); return ok && o.pending() }
	t.bar.width = func() int { return 80 }
	return t
}

// terminalSize returns the terminal's size, 80 by 24 if it does not report one.
func terminalSize(w io.Writer) (columns, rows int) {
	if f, ok := behind(w).(*os.File); ok {
		if c, r, err := term.GetSize(int(f.Fd())); err == nil && c > 0 && r > 0 {
			return c, r
		}
	}
	return 80, 24
}

func (t *tui) Start(r train.RunInfo) error {
	if err := t.bar.Start(r); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dir, t.held, t.start = r.Dir, r.HeldBytes, time.Now()
	for _, text := range r.History {
		var l struct {
			Step     int      `json:"step"`
			Loss     *float64 `json:"loss"`
			EvalLoss *float64 `json:"eval_loss"`
		}
		if json.Unmarshal(text, &l) != nil {
			continue
		}
		if l.Loss != nil {
			t.noteLoss(l.Step, *l.Loss)
		}
		if l.EvalLoss != nil {
			t.evals.add(float64(l.Step), *l.EvalLoss)
		}
	}
	t.on, t.stop, t.stopped = true, make(chan struct{}), make(chan struct{})
	_, rows := t.size()
	fmt.Fprint(t.w, strings.Repeat("\n", rows)) // keeps what was on the screen above it
	rescue.Go(func() { t.drawing() })
	return nil
}

// drawing draws frames until the end.
func (t *tui) drawing() {
	defer close(t.stopped)
	every := time.NewTicker(tuiEvery)
	defer every.Stop()
	for {
		t.draw()
		select {
		case <-t.stop:
			return
		case <-every.C:
		}
	}
}

func (t *tui) noteLoss(step int, loss float64) {
	t.loss.add(float64(step), loss)
	if !(math.Abs(loss) <= 1e300) {
		return
	}
	if t.sum, t.n = t.sum+loss, t.n+1; t.n < t.each {
		return
	}
	t.even.x, t.even.y = append(t.even.x, float64(step)), append(t.even.y, t.sum/float64(t.n))
	t.sum, t.n = 0, 0
	if len(t.even.x) < tuiPoints {
		return
	}
	for i := range tuiPoints / 2 { // halve them: each new point is the mean of two
		t.even.x[i], t.even.y[i] = t.even.x[2*i+1], (t.even.y[2*i]+t.even.y[2*i+1])/2
	}
	t.even.x, t.even.y, t.each = t.even.x[:tuiPoints/2], t.even.y[:tuiPoints/2], 2*max(1, t.each)
}

// smooth returns the smoothed loss.
func (t *tui) smooth() curve { return curve{t.even.x, runs.Smooth(t.even.y)} }

func (t *tui) Step(s train.StepInfo) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bar.mu.Lock()
	defer t.bar.mu.Unlock()
	t.bar.evaluating, t.bar.step, t.bar.rate = "", s.Step, s.TokensPerSecond
	if s.Step%t.bar.every == 0 || s.Step == t.bar.total || s.Step-t.bar.done < t.bar.every {
		t.bar.loss = s.MeanLoss
		t.noteLoss(s.Step, s.MeanLoss)
	}
	if s.Logged != nil {
		t.numbers = t.bar.items(s.Logged.Numbers, "")
	}
	return nil
}

// Evaluating shows the progress of an evaluation.
func (t *tui) Evaluating(_, batches, of int) {
	t.bar.mu.Lock()
	defer t.bar.mu.Unlock()
	t.bar.evaluating = fmt.Sprintf(" evaluating %d/%d", batches, of)
}

func (t *tui) Eval(e train.EvalMetrics) error {
	t.mu.Lock()
	t.evals.add(float64(e.Step), e.Loss)
	t.evaluated = t.bar.items(e.Numbers, "eval_")
	t.mu.Unlock()
	t.bar.mu.Lock()
	t.bar.evaluating = ""
	total := t.bar.total
	t.bar.mu.Unlock()
	t.log(fmt.Sprintf("step %d/%d  eval loss %.4f", e.Step, total, e.Loss) + t.bar.named(e.Numbers, "eval_"))
	return nil
}

func (t *tui) End(train.EndInfo) error {
	t.close()
	return nil
}

// close draws the last frame with all kept lines of the log below it. It may be called again.
func (t *tui) close() {
	t.mu.Lock()
	on := t.on
	t.on = false
	t.mu.Unlock()
	if !on {
		return
	}
	close(t.stop)
	<-t.stopped
	t.mu.Lock()
	defer t.mu.Unlock()
	columns, rows := t.size()
	lines := t.picture(columns, rows, false)
	for _, l := range t.history {
		lines = append(lines, fitted(l, columns-1))
	}
	t.put(lines)
	fmt.Fprint(t.w, "\n")
}

// log adds a line. Any goroutine may call it.
func (t *tui) log(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on {
		fmt.Fprintln(t.w, line)
		return
	}
	line = safetext.Mask(strings.TrimRight(line, "\n"))
	t.history = append(t.history, strings.Split(line, "\n")...)
	if n := len(t.history) - tuiLog; n > 0 {
		t.history = append([]string(nil), t.history[n:]...)
	}
}

// draw draws a new frame. It skips frames while the last one is not written yet: a slow terminal gets fewer.
func (t *tui) draw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy() {
		return
	}
	columns, rows := t.size()
	t.put(t.picture(columns, rows, true))
}

// put writes a frame over the previous one: from the top, each line to its end, then it clears the rest.
func (t *tui) put(lines []string) {
	fmt.Fprint(raw(t.w), "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[J")
}

// picture returns a frame in at most rows-1 lines.
func (t *tui) picture(columns, rows int, log bool) []string {
	t.bar.mu.Lock()
	head := t.bar.frame(columns - 1)
	step, total := t.bar.step, t.bar.total
	t.bar.mu.Unlock()
	if columns < tuiColumns || rows < tuiRows {
		return []string{fitted(head, columns-1)}
	}
	t.sample(step)
	bar, memory := t.memoryBar()
	strip, names := bar.Terminal(columns-2, t.colour)
	smooth := t.smooth()
	lines := []string{head, fitted(t.lossTitle(smooth.y), columns-1)}
	rest := rows - 1 - 4
	logRows := max(2, rest/4)
	memoryRows := 0
	if rest-logRows > 12 {
		memoryRows = 5
	}
	nameRows := 0
	if rest-logRows-memoryRows > 6 {
		nameRows = 1
	}
	numbers := t.numberLines(columns-1, min(tuiNumberRows, max(0, rest-logRows-memoryRows-nameRows-6)))
	if !log {
		logRows = 0
	}
	loss := report.Plot{XLabel: fmt.Sprintf("step of %d", total),
		Series: []report.Series{t.loss.series("", report.Faint, 1), smooth.series("", report.Line, 1),
			t.evals.series("", report.Points, 2)}}
	lines = append(lines, loss.Braille(columns-1, rest-logRows-memoryRows-nameRows-len(numbers), t.colour)...)
	lines = append(lines, numbers...)
	lines = append(lines, fitted(memory, columns-1), strip)
	if nameRows > 0 {
		lines = append(lines, wholeNames(names, columns-1))
	}
	if memoryRows > 0 {
		lines = append(lines, fitted("memory of the process, MiB, by seconds", columns-1))
		lines = append(lines, report.Plot{XLabel: "seconds", Series: []report.Series{t.memory.series("", report.Line,
			3)}}.Braille(columns-1, memoryRows-1, t.colour)...)
	}
	if !log {
		return lines
	}
	for i := max(0, len(t.history)-logRows); i < len(t.history); i++ {
		lines = append(lines, fitted(t.history[i], columns-1))
	}
	return lines
}

// lossTitle describes the loss.
func (t *tui) lossTitle(smooth []float64) string {
	text := "loss, smoothed"
	if n := len(smooth); n > 0 {
		text += " " + report.Number(smooth[n-1]) + runs.Trend(smooth)
	}
	if n := len(t.evals.y); n > 0 {
		best := 0
		for i, v := range t.evals.y {
			if v < t.evals.y[best] {
				best = i
			}
		}
		text += fmt.Sprintf("; evaluation %s, best %s at step %.0f", report.Number(t.evals.y[n-1]),
			report.Number(t.evals.y[best]), t.evals.x[best])
	}
	return text
}

// memoryBar returns a bar and a description of planned memory against its limit, once the run has written its plan.
func (t *tui) memoryBar() (report.Bar, string) {
	if t.plan == nil {
		if text, err := regular.ReadFile(filepath.Join(t.dir, train.PlanReportFile)); err == nil {
			var p train.PlanReport
			if json.Unmarshal(text, &p) == nil && p.TotalBytes == t.held { // otherwise the file is from an earlier run
				t.plan = &p
			}
		}
	}
	text := "memory " + session.FormatBytes(t.held) + " held"
	bar := report.Bar{Parts: []report.Part{{Name: "held", Bytes: t.held}}}
	if t.plan != nil {
		bar = runs.MemoryBar(t.plan)
		if t.plan.Limit > 0 {
			text += fmt.Sprintf(" of %s (%.3g%%)", session.FormatBytes(t.plan.Limit),
				100*float64(t.held)/float64(t.plan.Limit))
		}
	}
	if n := len(t.memory.y); n > 0 {
		text += fmt.Sprintf(", process %s", session.FormatBytes(int64(t.memory.y[n-1]*(1<<20))))
	}
	return bar, text
}

// sample records the physical memory that the process holds, once a second.
func (t *tui) sample(int) {
	now := time.Since(t.start).Seconds()
	if n := len(t.memory.x); n > 0 && now-t.memory.x[n-1] < 1 {
		return
	}
	t.memory.add(math.Round(10*now)/10, float64(processBytes())/(1<<20))
}

// wholeNames returns as many of the names, separated by two spaces, as fit without cutting one.
func wholeNames(names string, columns int) string {
	line := fitted(names, columns)
	if i := strings.LastIndex(line, "  "); len(line) < len(names) && i > 0 {
		return line[:i]
	}
	return line
}

// fitted returns a line without control characters, cut to the given number of columns.
func fitted(line string, columns int) string {
	var b strings.Builder
	for _, r := range line {
		n := 1
		switch kind := width.LookupRune(r).Kind(); {
		case r == '\t':
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			r = '\ufffd'
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
			n = 0
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n = 2
		}
		if columns -= n; columns < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
