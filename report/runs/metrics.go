package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/train"
)

// Limits of what is read of a run, because its folder is untrusted input.
const (
	mostLines  = 2_000_000
	mostLine   = 1 << 20   // bytes of one line
	mostFile   = 256 << 20 // bytes of any other file
	mostTensor = 20_000    // different names in grad_norms.jsonl
)

// Step is a line about training. Values that are missing or null are NaN.
type Step struct {
	Step                           int
	Loss, GradNorm, Clipped, Rate  float64
	LearningRate, Tokens, LossMult float64 // LossMult is the loss scale
	Seconds                        float64 // time since the start, without the time between an interrupt and its resume
	HeldGiB                        float64

	own  float64 // seconds of the process that wrote the line
	from int     // the step that this process resumed after
}

// Eval is a line about the validation rows.
type Eval struct {
	Step          int
	Loss, Seconds float64
}

// End is the line about a finished run.
type End struct {
	Step          int
	Loss, Seconds float64
}

// number is a JSON number, or NaN for null.
type number struct {
	there bool
	v     float64
}

func (n *number) UnmarshalJSON(text []byte) error {
	n.there, n.v = true, math.NaN()
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	return json.Unmarshal(text, &n.v)
}

func (n number) value() float64 {
	if !n.there {
		return math.NaN()
	}
	return n.v
}

// metricsLine is any line of metrics.jsonl; TestKeysAreTrains compares its keys with those that train writes.
type metricsLine struct {
	Step     int    `json:"step"`
	Loss     number `json:"loss"`
	GradNorm number `json:"grad_norm"`
	Clipped  number `json:"grad_norm_clipped"`
	LR       number `json:"learning_rate"`
	Tokens   number `json:"num_input_tokens_seen"`
	Rate     number `json:"tokens/train_per_sec_per_gpu"`
	Own      number `json:"train_seconds"`
	From     int    `json:"resumed_from"`
	Memory   number `json:"memory/max_allocated (GiB)"`
	Scale    number `json:"loss_scale"`
	EvalLoss number `json:"eval_loss"`
	EvalTime number `json:"eval_runtime"`
	RunLoss  number `json:"train_loss"`
	Runtime  number `json:"train_runtime"`

	Task      string `json:"task"`
	Metric    string `json:"metric"`
	Value     number `json:"value"`
	StdErr    number `json:"stderr"`
	Questions int    `json:"questions"`
}

// readMetrics reads metrics.jsonl. It reports incomplete lines and leaves them out. If steps go back, as after a
// resume, the later line counts.
func (r *Run) readMetrics() {
	r.eachLine(train.MetricsFile, r.takeMetrics)
	r.setSeconds()
}

// takeMetrics parses a line of metrics.jsonl and reports whether it is valid.
func (r *Run) takeMetrics(text []byte) bool {
	var l metricsLine
	if err := json.Unmarshal(text, &l); err != nil || l.Step < 0 {
		return false
	}
	switch {
	case l.Loss.there:
		r.Steps = append(r.Steps[:r.before(l.Step)], Step{Step: l.Step, Loss: l.Loss.value(),
			GradNorm: l.GradNorm.value(), Clipped: l.Clipped.value(), Rate: l.Rate.value(), LearningRate: l.LR.value(),
			Tokens: l.Tokens.value(), LossMult: l.Scale.value(), HeldGiB: l.Memory.value(), own: l.Own.value(), from: l.From})
		for len(r.Evals) > 0 && r.Evals[len(r.Evals)-1].Step >= l.Step {
			r.Evals = r.Evals[:len(r.Evals)-1]
		}
		r.tasksBefore(l.Step)
		r.cutNumbers(l.Step, false)
		r.takeNumbers(text, l.Step, false)
		r.End = nil
	case l.EvalLoss.there:
		for len(r.Evals) > 0 && r.Evals[len(r.Evals)-1].Step >= l.Step {
			r.Evals = r.Evals[:len(r.Evals)-1]
		}
		r.Evals = append(r.Evals, Eval{l.Step, l.EvalLoss.value(), l.EvalTime.value()})
		r.cutNumbers(l.Step, true)
		r.takeNumbers(text, l.Step, true)
	case l.Task != "":
		r.takeTask(l)
	case l.RunLoss.there:
		r.End = &End{l.Step, l.RunLoss.value(), l.Runtime.value()}
	}
	return true
}

// before returns the number of steps before the given one.
func (r *Run) before(step int) int {
	n := len(r.Steps)
	for n > 0 && r.Steps[n-1].Step >= step {
		n--
	}
	return n
}

// setSeconds sets the time of each line, which never falls: the time of its process plus the time at the step after
// which that process resumed. Lines of older programs do not have it; their time is the number of tokens so far divided
// by tokens per second.
func (r *Run) setSeconds() {
	last, from, before := 0.0, 0, 0.0
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.from != from {
			from, before = s.from, r.secondsAt(s.from, i)
		}
		s.Seconds = math.NaN()
		t := before + s.own
		if !finite(s.own) {
			t = s.Tokens / s.Rate
		}
		if t >= 0 && t < 1e12 {
			last = max(last, t)
			s.Seconds = last
		}
	}
}

// secondsAt returns the time of the last of the first n lines whose step is at most the given one.
func (r *Run) secondsAt(step, n int) float64 {
	for i := n - 1; i >= 0; i-- {
		if s := &r.Steps[i]; s.Step <= step && finite(s.Seconds) {
			return s.Seconds
		}
	}
	return 0
}

// eachLine passes the lines of a file to see, which reports whether a line is valid. A missing file has no lines.
func (r *Run) eachLine(name string, see func(text []byte) bool) {
	f, err := regular.Open(filepath.Join(r.Dir, name))
	if err != nil {
		r.missing(name, err)
		return
	}
	defer f.Close()
	r.Files = append(r.Files, name)
	l := lines{name: name}
	l.read(r, f, see)
	if tail := bytes.TrimSpace(l.tail); len(tail) > 0 && !see(tail) {
		r.problem("%s: its last line, %d, is not whole: the run was cut off while it wrote it, or is writing now", name, l.n+1)
	}
	l.tell(r)
}

// lines is the state of reading a file of lines.
type lines struct {
	name     string
	at       int64 // offset of the first line that is not complete yet
	n        int   // complete lines
	tail     []byte
	inLong   bool // at is inside a line that is longer than mostLine
	bad      int
	firstBad int
}

// read passes the lines after those of the last call to see; f is at that offset.
func (l *lines) read(r *Run, f io.Reader, see func(text []byte) bool) {
	in := bufio.NewReaderSize(f, 64<<10)
	l.tail = nil
	for l.n < mostLines {
		text, size, err := line(in)
		if err != nil && !errors.Is(err, io.EOF) {
			r.problem("%s: line %d: %v; what comes before it is shown", l.name, l.n+1, err)
			return
		}
		if err != nil {
			if l.tail = text; size > mostLine { // the next call need not read it again
				l.at, l.inLong = l.at+size, true
			}
			return
		}
		long := l.inLong || size > mostLine
		l.n++
		l.at, l.inLong = l.at+size, false
		if long || len(bytes.TrimSpace(text)) > 0 && !see(text) {
			if l.bad++; l.bad == 1 {
				l.firstBad = l.n
			}
		}
	}
}

// tell reports what was left out.
func (l *lines) tell(r *Run) {
	if l.n == mostLines {
		r.problem("%s: only its first %d lines are shown", l.name, mostLines)
	}
	if l.bad > 0 {
		r.problem("%s: %d damaged lines are left out, the first is line %d", l.name, l.bad, l.firstBad)
	}
}

// line reads a line and returns its length. A line of more than mostLine bytes is returned empty, or as one byte if the
// file ends in it.
func line(in *bufio.Reader) (text []byte, size int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += int64(len(part))
		if size > mostLine {
			text = nil
		} else {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err != nil && size > mostLine {
				text = []byte("?")
			}
			return text, size, err
		}
	}
}

// readJSON parses a file of the run into v and reports whether that succeeded.
func (r *Run) readJSON(name string, v any) bool {
	text, ok := r.read(name)
	if !ok {
		return false
	}
	if err := json.Unmarshal(text, v); err != nil {
		r.problem("%s: %v; it is left out", name, err)
		return false
	}
	return true
}

// read reads a whole file of the run.
func (r *Run) read(name string) ([]byte, bool) {
	f, err := regular.Open(filepath.Join(r.Dir, name))
	if err != nil {
		r.missing(name, err)
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	var text []byte
	switch {
	case err != nil:
	case info.Size() > mostFile:
		err = fmt.Errorf("it has %d bytes, more than the %d that are read", info.Size(), mostFile)
	default:
		text, err = io.ReadAll(io.LimitReader(f, mostFile))
	}
	if err != nil {
		r.problem("%s: %v; it is left out", name, err)
		return nil, false
	}
	r.Files = append(r.Files, name)
	return text, true
}
