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

// Report is the result of a benchmark. Times are milliseconds of whole steps, each waited for, with the loss read back.
// Pipelined is the time per step if the next step is queued before a loss is read, as in a run.
type Report struct {
	// Shape of random weights, or the base model of a configuration.
	Shape     string `json:"shape"`
	Config    string `json:"config,omitempty"` // the file; "" = a shape
	Work      string `json:"work_sha256"`      // hash of what is timed: sizes or configuration
	Device    string `json:"device"`
	Precision string `json:"precision"`
	Workers   int    `json:"cpu_threads"`
	By        By     `json:"made_by"`
	Batch     int    `json:"batch,omitempty"`
	Length    int    `json:"length,omitempty"`
	// Devices that share a step; bytes, calls and parts are per device. 0 = one.
	Ranks int `json:"ranks,omitempty"`
	// Tokens of the median step of a configuration, without padding.
	Tokens    int                  `json:"tokens_per_step"`
	Median    float64              `json:"median_ms"`
	Fastest   float64              `json:"fastest_ms"`
	Slowest   float64              `json:"slowest_ms"`
	Times     []float64            `json:"steps_ms"` // ascending
	Pipelined float64              `json:"ahead_ms"`
	Estimated float64              `json:"estimated_ms,omitempty"` // step time that the plan estimates; 0 = none
	PerSec    float64              `json:"tokens_per_second"`
	Trained   int64                `json:"trained_parameters"`
	Layout    string               `json:"layout"`
	Held      int64                `json:"held_bytes"`
	Parts     []train.PlanCategory `json:"categories"`
	Peak      []graph.Living       `json:"peak"` // memory of the arena at its peak, by kernel
	Planned   float64              `json:"plan_s"`
	Load      float64              `json:"load_s"`       // time to plan, allocate and quantise weights
	First     float64              `json:"first_step_s"` // time of the first step
	Loss      float64              `json:"loss"`
	Kernels   map[string]int       `json:"calls"`            // kernel calls by segment
	Queued    int                  `json:"queued,omitempty"` // launches, fills and copies of a step on a GPU
	Notes     []string             `json:"notes,omitempty"`

	Ceilings *graph.Ceilings `json:"ceilings,omitempty"` // measured after the steps
	// Parts of that step, each waited for, and the copies of a checkpoint.
	Transfers []Part        `json:"parts,omitempty"`
	Profile   []ProfileLine `json:"profile,omitempty"` // calls of that step, by operation and type of the result
	Ops       []ProfileLine `json:"operations,omitempty"`
	Layers    []ProfileLine `json:"layers,omitempty"` // calls by layer, forward and backward separately
	Covered   float64       `json:"calls_ms"`         // sum of all calls, the median over the rounds
	// The same step in its parts, each waited for, without making the batch.
	Waited float64 `json:"waited_ms"`
	lines  *profiler
}

// By identifies the program and machine of a report.
type By struct {
	Program string `json:"program"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
	graph.Software
}

// newReport returns a report with the program and the machine that measure.
func newReport(on graph.Machine, env session.Env) Report {
	return Report{Device: on.Name(), Precision: on.Precision().String(), Workers: on.Workers(),
		By: By{env.Version, env.Commit, env.Dirty, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, on.Software()}}
}

// hashOf returns the SHA-256 of a text, in hexadecimal.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// maxReport is the largest size of a report that is read, in bytes.
const maxReport = 64 << 20

// Read reads a report in JSON.
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
