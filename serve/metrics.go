package serve

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// metrics counts requests; the scheduler counts the rest.
type metrics struct {
	mu       *sync.Mutex
	requests map[string]int64 // number by "path status"
	seconds  float64
	answered int64
	lately   time.Duration // moving average of a request's duration
	started  time.Time
}

func newMetrics() metrics {
	return metrics{mu: &sync.Mutex{}, requests: map[string]int64{}, started: time.Now()}
}

func (m *metrics) count(path string, status int) {
	m.mu.Lock()
	m.requests[fmt.Sprintf("path=%q,status=\"%d\"", path, status)]++
	m.mu.Unlock()
}

// took records the duration of an accepted request.
func (m *metrics) took(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered++; m.answered == 1 {
		m.lately = d
	}
	m.seconds += d.Seconds()
	m.lately += (d - m.lately) / 8
}

func (m *metrics) mean() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lately
}

// text returns the metrics in Prometheus's text format.
func (m *metrics) text(s Stats) string {
	var b strings.Builder
	head := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP trainer_%s %s\n# TYPE trainer_%s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, value any) {
		head(name, kind, help)
		fmt.Fprintf(&b, "trainer_%s %v\n", name, value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	head("requests_total", "counter", "HTTP requests by path and status.")
	for _, labels := range sortedKeys(m.requests) {
		fmt.Fprintf(&b, "trainer_requests_total{%s} %d\n", labels, m.requests[labels])
	}
	head("request_seconds", "summary", "Time of requests that were taken on, from arrival to the last byte.")
	fmt.Fprintf(&b, "trainer_request_seconds_sum %g\ntrainer_request_seconds_count %d\n", m.seconds, m.answered)
	one("slots", "gauge", "Sequences that are decoded at once at most.", s.Slots)
	one("slots_running", "gauge", "Sequences that are decoded now.", s.Running)
	one("requests_waiting", "gauge", "Requests that wait for a slot.", s.Waiting)
	one("requests_refused_total", "counter", "Requests refused because too many waited.", s.Refused)
	one("sequences_finished_total", "counter", "Answers that came to their end.", s.Finished)
	one("sequences_failed_total", "counter", "Answers that were cut off: client gone, time out, failure.", s.Failed)
	one("prompt_tokens_total", "counter", "Tokens of prompts.", s.PromptTokens)
	one("generated_tokens_total", "counter", "Tokens that were generated.", s.GeneratedTokens)
	one("decode_steps_total", "counter", "Steps of the model.", s.Steps)
	one("decode_seconds_total", "counter", "Time in steps of the model.", s.StepTime.Seconds())
	one("uptime_seconds", "gauge", "Time since the start.", time.Since(m.started).Seconds())
	return b.String()
}
