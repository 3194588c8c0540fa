// Package hardware reads what a run's machine does while it trains, processor, memory, disk and graphics cards, and
// keeps the readings beside the run's metrics. Nothing of it may end a run or slow it: what cannot be read is left out,
// and where the file cannot be written, the readings end.
package hardware

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

// File is the name of the file in a run's folder that holds the readings, a line of JSON each.
const File = "hardware.jsonl"

// mark begins every line of a File, by which this program knows its own.
const mark = `{"hardware":1,`

// Reading is what was read of a machine at one moment: numbers by their names. A name ends in the unit: _percent,
// _bytes, _bytes_per_second, _watts or _celsius. A name that begins with gpu and a number is about that card, as
// nvidia-smi counts; all others are about the machine or, where they begin with process, about the run's process.
type Reading map[string]float64

// Line is a line of a File.
type Line struct {
	Format  int     `json:"hardware"` // 1
	Time    float64 `json:"time"`     // seconds since 1970
	Seconds float64 `json:"seconds"`  // since this process began to read
	Reading Reading `json:"reading"`
}

// Sampler takes readings until it is stopped. A nil *Sampler does nothing.
type Sampler struct {
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// Interval is the time between two readings in a run's first hours. It grows with the file: see interval.
const Interval = 5 * time.Second

// linesAtFirst is how many readings are taken at Interval; after each such number the time between them doubles, so
// that the file of a run of a month stays below 10 MB.
const linesAtFirst = 5000

// interval returns the time between reading n and the one after it.
func interval(n int, first time.Duration) time.Duration {
	for ; n >= linesAtFirst && first < 10*time.Minute; n -= linesAtFirst {
		first *= 2
	}
	return first
}

// Start begins to write readings of the machine, and of the cards that cards returns, into a run's folder. cards may be
// nil. The error says why there are none; the run trains without them.
func Start(dir string, cards func() []Card) (*Sampler, error) { return start(dir, cards, Interval) }

func start(dir string, cards func() []Card, every time.Duration) (*Sampler, error) {
	path := filepath.Join(dir, File)
	if err := atomicfile.CheckOwn(path, "readings of a machine", mark); err != nil {
		return nil, err
	}
	file, err := atomicfile.Append(path, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep readings of the machine: %w", err)
	}
	if err := endLine(path, file); err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("keep readings of the machine: %w", err)
	}
	s := &Sampler{stop: make(chan struct{}), done: make(chan struct{})}
	m := newMachine(dir)
	began := time.Now()
	rescue.Go(func() {
		defer close(s.done)
		defer file.Close() //nolint:errcheck // each line is written as a whole or not
		for n := 0; ; n++ {
			if r := m.read(cards); len(r) > 0 && write(file, Line{1, seconds(time.Now()), time.Since(began).Seconds(), r}) != nil {
				return
			}
			select {
			case <-s.stop:
				return
			case <-time.After(interval(n, every)):
			}
		}
	})
	return s, nil
}

// endLine ends a line that a process which was killed left open.
func endLine(path string, file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // read only
	last := make([]byte, 1)
	if _, err := in.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = file.WriteString("\n")
	return err
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func write(file *os.File, l Line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return err
}

// Stop ends the readings and waits for the last one, a second at most: a driver may hang.
func (s *Sampler) Stop() {
	if s == nil {
		return
	}
	s.once.Do(func() { close(s.stop) })
	select {
	case <-s.done:
	case <-time.After(time.Second):
	}
}

// Card is a reading of one graphics card. A number below zero is not known.
type Card struct {
	Index       int     // as nvidia-smi counts
	Utilisation float64 // per cent of the time in which a kernel ran
	Memory      float64 // bytes that are in use, by whichever process
	Power       float64 // watts
	Temperature float64 // degrees Celsius
}

// read takes one reading.
func (m *machine) read(cards func() []Card) Reading {
	r := Reading{}
	m.host(r)
	if cards == nil {
		return r
	}
	for _, c := range cards() {
		for name, v := range map[string]float64{"utilization_percent": c.Utilisation, "memory_bytes": c.Memory, "power_watts": c.Power, "temperature_celsius": c.Temperature} {
			if v >= 0 {
				r[fmt.Sprintf("gpu%d_%s", c.Index, name)] = v
			}
		}
	}
	return r
}
