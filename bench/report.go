package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// Report is what a benchmark measured. Times are milliseconds of whole steps, each waited for, the loss
// read back; Pipelined is a step's share of as many where the next one is queued before a loss is read, as in a run.
type Report struct {
	Shape     string               `json:"shape"`            // of random weights, or the base model of a configuration
	Config    string               `json:"config,omitempty"` // the file; "" = a shape
	Work      string               `json:"work_sha256"`      // of what is timed: sizes or configuration
	Device    string               `json:"device"`
	Precision string               `json:"precision"`
	Workers   int                  `json:"cpu_threads"`
	By        By                   `json:"made_by"`
	Batch     int                  `json:"batch,omitempty"`
	Length    int                  `json:"length,omitempty"`
	Ranks     int                  `json:"ranks,omitempty"` // devices that share a step; bytes, calls and parts are those of one. 0 = one
	Tokens    int                  `json:"tokens_per_step"` // of a configuration: of the median step by tokens, without padding
	Median    float64              `json:"median_ms"`
	Fastest   float64              `json:"fastest_ms"`
	Slowest   float64              `json:"slowest_ms"`
	Times     []float64            `json:"steps_ms"` // ascending
	Pipelined float64              `json:"ahead_ms"`
	PerSec    float64              `json:"tokens_per_second"`
	Trained   int64                `json:"trained_parameters"`
	Layout    string               `json:"layout"`
	Held      int64                `json:"held_bytes"`
	Parts     []train.PlanCategory `json:"categories"`
	Peak      []graph.Living       `json:"peak"` // of the arena, by kernel
	Planned   float64              `json:"plan_s"`
	Load      float64              `json:"load_s"`       // plan, memory, weights quantised
	First     float64              `json:"first_step_s"` // the first step alone
	Loss      float64              `json:"loss"`
	Kernels   map[string]int       `json:"calls"`            // kernel calls by segment
	Queued    int                  `json:"queued,omitempty"` // launches, fills and copies of a step on a GPU
	Notes     []string             `json:"notes,omitempty"`

	Ceilings  *graph.Ceilings `json:"ceilings,omitempty"` // measured after the steps
	Transfers []Part          `json:"parts,omitempty"`    // of that step, each waited for; then what a checkpoint brings
	Profile   []ProfileLine   `json:"profile,omitempty"`  // of that step, by operation and type of its result
	Ops       []ProfileLine   `json:"operations,omitempty"`
	Layers    []ProfileLine   `json:"layers,omitempty"` // by layer, forward and backward apart
	Covered   float64         `json:"calls_ms"`         // sum of all calls, of rounds the median
	Waited    float64         `json:"waited_ms"`        // the same step in its parts, each waited for, without data
	lines     *profiler
}

// By is what made a report.
type By struct {
	Program string `json:"program"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
	graph.Software
}

// newReport says what measures, and on what.
func newReport(on graph.Machine, env session.Env) Report {
	return Report{Device: on.Name(), Precision: on.Precision().String(), Workers: on.Workers(),
		By: By{env.Version, env.Commit, env.Dirty, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, on.Software()}}
}

// hashOf is the SHA-256 of a text, in hexadecimal.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// maxReport bounds a report that is read, in bytes.
const maxReport = 64 << 20

// Read reads a report as JSON has it.
func Read(from io.Reader) (Report, error) {
	var r Report
	data, err := io.ReadAll(io.LimitReader(from, maxReport+1))
	if err != nil {
		return r, err
	}
	if len(data) > maxReport {
		return r, fmt.Errorf("a report of more than %d bytes", maxReport)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("not a report of trainer bench --json: %w", err)
	}
	if r.Median <= 0 || r.Device == "" {
		return r, fmt.Errorf("not a report of trainer bench --json: it has no median_ms and device")
	}
	return r, nil
}
