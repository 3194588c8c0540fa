package tier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Card is the memory of the card that runs use, over all processes on it.
type Card struct{ Used, Free int64 }

// Sample is a measurement of a run at one moment.
type Sample struct {
	Seconds float64 `json:"seconds"` // seconds since the command began
	Step    int     `json:"step"`    // last step in metrics.jsonl; 0 = none yet
	// Growth of the card's used memory since before the run; 0 = not known.
	Card int64 `json:"card_bytes,omitempty"`
	Host int64 `json:"host_bytes,omitempty"` // resident memory without pages of files; 0 = not known
}

const (
	sampleEvery = 25 * time.Millisecond
	maxSamples  = 2000 // when it is reached, every second sample is dropped and the interval doubles
)

// sampler samples a run.
type sampler struct {
	card    func() (Card, bool)
	metrics string
	before  Card
	known   bool // the card's memory can be read
	samples []Sample
	grown   int64 // largest growth of the card's memory
	step    int
	at      int64  // offset in metrics
	rest    []byte // beginning of an incomplete line
}

func newSampler(card func() (Card, bool), metrics string) *sampler {
	s := &sampler{card: card, metrics: metrics}
	if card != nil {
		s.before, s.known = card()
	}
	return s
}

func (s *sampler) watch(pid int, done <-chan struct{}) {
	began, every := time.Now(), sampleEvery
	for {
		s.take(pid, time.Since(began))
		if len(s.samples) >= maxSamples {
			for i := range maxSamples / 2 {
				s.samples[i] = s.samples[2*i+1]
			}
			s.samples = s.samples[:maxSamples/2]
			every *= 2
		}
		select {
		case <-done:
			return
		case <-time.After(every):
		}
	}
}

func (s *sampler) take(pid int, at time.Duration) {
	x := Sample{Seconds: at.Seconds(), Host: residentMemory(pid)}
	if s.known {
		if now, ok := s.card(); ok {
			x.Card = max(0, now.Used-s.before.Used)
			s.grown = max(s.grown, x.Card)
		}
	}
	s.follow()
	x.Step = s.step
	s.samples = append(s.samples, x)
}

// follow reads the new lines of metrics.jsonl.
func (s *sampler) follow() {
	f, err := os.Open(s.metrics)
	if err != nil {
		return // the file does not exist yet, or no longer
	}
	defer f.Close()
	more, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, s.at, 1<<40), maxOutput))
	if err != nil {
		return
	}
	s.at += int64(len(more))
	s.rest = append(s.rest, more...)
	end := bytes.LastIndexByte(s.rest, '\n')
	if end < 0 {
		return
	}
	start := bytes.LastIndexByte(s.rest[:end], '\n') + 1
	var line struct{ Step int }
	if json.Unmarshal(s.rest[start:end], &line) == nil {
		s.step = max(s.step, line.Step)
	}
	s.rest = append([]byte(nil), s.rest[end+1:]...)
}

// residentMemory returns a process's anonymous memory in bytes, as Linux reports it.
func residentMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// halves returns the largest samples in the first half of the steps and in the second. ok is false if either half has
// none.
func halves(samples []Sample, steps int, of func(Sample) int64) (first, last int64, ok bool) {
	var n, m int
	for _, x := range samples {
		v := of(x)
		switch {
		case v == 0 || x.Step < 1 || x.Step >= steps:
		case 2*x.Step <= steps:
			first, n = max(first, v), n+1
		default:
			last, m = max(last, v), m+1
		}
	}
	return first, last, n > 0 && m > 0
}
