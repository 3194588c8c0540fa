package reward

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/words"
)

// mostLine is the longest line that a program may answer with, in bytes.
const mostLine = 1 << 16

// program is a judge that asks copies of a program.
type program struct {
	Config
	zeros   *int
	workers []*worker
}

func newProgram(c Config, zeros *int) *program {
	p := &program{Config: c, zeros: zeros}
	for range c.Workers {
		p.workers = append(p.workers, &worker{Config: c})
	}
	return p
}

// judge divides the answers among the workers. The result does not depend on which worker judges which answer.
func (p *program) judge(ctx context.Context, answers []Answer) ([]float64, error) {
	numbers := make([]float64, len(answers))
	problems, err := p.inParallel(ctx, len(answers), func(w, i int) (err error) {
		numbers[i], err = p.workers[w].ask(ctx, answers[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, err := range problems {
		if err == nil {
			continue
		}
		if p.OnError != "zero" {
			return nil, fmt.Errorf("%s on the answer %q: %w; on_error: zero would count it and go on", p.Command[0],
				words.Clip(answers[i].Completion, 80), err)
		}
		numbers[i] = 0
		*p.zeros++
	}
	return numbers, nil
}

func (p *program) close() error {
	for _, w := range p.workers {
		w.end()
	}
	return nil
}

// worker is a copy of the program.
type worker struct {
	Config
	cmd   *exec.Cmd // nil = it does not run
	in    io.WriteCloser
	out   io.ReadCloser
	lines chan string // lines that it writes; closed when it ends
	noise *tail       // the end of what it writes to its standard error
}

// start starts the program.
func (w *worker) start() error {
	name, args := w.Command[0], w.Command[1:]
	if w.MemoryMiB > 0 {
		args = append([]string{"-c", `ulimit -v "$0" && exec "$@"`, strconv.Itoa(w.MemoryMiB << 10)}, w.Command...)
		name = "sh"
	}
	cmd := exec.Command(name, args...)
	cmd.Env = environment(os.Environ())
	w.noise = &tail{}
	cmd.Stderr = w.noise
	alone(cmd)
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	w.cmd, w.in, w.out, w.lines = cmd, in, out, make(chan string, 1)
	lines := w.lines
	rescue.Go(func() {
		defer close(lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, mostLine)
		for scan.Scan() {
			lines <- scan.Text()
		}
	})
	return nil
}

// end kills the program.
func (w *worker) end() {
	if w.cmd == nil {
		return
	}
	kill(w.cmd)
	w.in.Close()  //nolint:errcheck // it is killed
	w.out.Close() //nolint:errcheck // its reader ends
	for range w.lines {
	}
	w.cmd.Wait() //nolint:errcheck // it was killed
	w.cmd = nil
}

// ask gives an answer to the program and reads its number.
func (w *worker) ask(ctx context.Context, a Answer) (float64, error) {
	text, err := w.reply(ctx, a, "number")
	if err != nil {
		return 0, err
	}
	return parse(text)
}

// reply gives the program a line and returns the line that it writes: what says what that should be.
func (w *worker) reply(ctx context.Context, line any, what string) (string, error) {
	if w.cmd == nil {
		if err := w.start(); err != nil {
			return "", err
		}
	}
	given, err := json.Marshal(line)
	if err != nil {
		return "", err
	}
	late := time.NewTimer(duration(w.Timeout))
	defer late.Stop()
	in := w.in
	rescue.Go(func() {
		in.Write(append(given, '\n')) //nolint:errcheck // a program that reads nothing answers nothing
	})
	select {
	case text, ok := <-w.lines:
		if !ok {
			w.end()
			return "", errors.New("the program ended" + w.noise.last())
		}
		return text, nil
	case <-late.C:
		w.end()
		return "", fmt.Errorf("no %s came within %v s, and the program was killed%s", what, w.Timeout, w.noise.last())
	case <-ctx.Done():
		w.end()
		return "", ctx.Err()
	}
}

// parse reads the line of a program: a number or null.
func parse(line string) (float64, error) {
	var x *float64
	if err := json.Unmarshal([]byte(line), &x); err != nil {
		return 0, fmt.Errorf("it wrote %q, want a number or null", words.Clip(line, 80))
	}
	if x == nil {
		return math.NaN(), nil
	}
	return *x, nil
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, b...); len(t.text) > 1<<12 {
		t.text = bytes.Clone(t.text[len(t.text)-1<<12:])
	}
	return len(b), nil
}

// last returns the last line for a message; "" without one.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.text)
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf(": %q", words.Clip(string(text[bytes.LastIndexByte(text, '\n')+1:]), 200))
}
