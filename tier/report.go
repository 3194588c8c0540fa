package tier

import (
	"encoding/json"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

// Schema names the form of report.json. Fields may be added to it; one that changes its meaning or goes makes a new number.
const Schema = "tierlora-tier-report/1"

// The files of a report.
const (
	ReportJSON     = "report.json"
	ReportMarkdown = "report.md"
	ReportHTML     = "report.html"
)

// The states of a check, a tier and a report. A skip is no pass.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Report is report.json. Times are UTC, hashes SHA-256 in hexadecimal.
type Report struct {
	Schema      string          `json:"schema"`
	Time        string          `json:"time"` // of the start, RFC 3339
	Seconds     float64         `json:"seconds"`
	Status      string          `json:"status"`
	ExitCode    int             `json:"exit_code"`
	Command     []string        `json:"command"`
	Program     Program         `json:"program"`
	Machine     Machine         `json:"machine"`
	Environment json.RawMessage `json:"environment,omitempty"` // what trainer doctor --json says
	Selfcheck   *Selfcheck      `json:"selfcheck,omitempty"`
	Checks      []Check         `json:"checks"` // of the machine
	Commands    []Command       `json:"commands"`
	Tiers       []Result        `json:"tiers"`
}

// Program is what was validated.
type Program struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"` // files differed from the commit
	SHA256  string `json:"sha256"`
}

// Machine is what reports are compared by, of what doctor says.
type Machine struct {
	GPU      string `json:"gpu,omitempty"` // name of the first one; "" = none
	Driver   string `json:"driver,omitempty"`
	Platform string `json:"platform"`
	Cores    int    `json:"cores"`
}

// Selfcheck is how many kernels' checks ended how.
type Selfcheck struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
}

// Check is something that has to hold.
type Check struct {
	Name   string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Result is a tier and what came of it.
type Result struct {
	Tier     string    `json:"tier"`
	What     string    `json:"what"`
	Config   string    `json:"config"`
	GPU      bool      `json:"gpu"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"` // of a fail or skip: the first check that did not pass
	ExitCode int       `json:"exit_code"`        // that the tier alone would have
	Seconds  float64   `json:"seconds"`
	Folder   string    `json:"folder"` // in the report's folder
	Checks   []Check   `json:"checks"`
	Commands []Command `json:"commands"`

	Base       string `json:"base_model,omitempty"`
	BaseSHA256 string `json:"base_weights_sha256,omitempty"`
	// ConfigSHA256 is of the effective configuration without its output_dir.
	ConfigSHA256 string            `json:"config_sha256,omitempty"`
	Settings     []string          `json:"settings,omitempty"` // by --set
	Plan         *train.PlanReport `json:"plan,omitempty"`
	Run          *train.Result     `json:"run,omitempty"` // what trainer train --json says
	Manifest     *replay.Manifest  `json:"manifest,omitempty"`
	Loss         *Loss             `json:"loss,omitempty"`
	Curve        *Curve            `json:"reference,omitempty"`
	Throughput   *Throughput       `json:"throughput,omitempty"`
	Memory       *Memory           `json:"memory,omitempty"`
	Steps        []Step            `json:"steps,omitempty"`
	Evaluations  []Evaluation      `json:"evaluations,omitempty"`
	Comparison   *Comparison       `json:"comparison,omitempty"`
}

// Loss is counted here from metrics.jsonl.
type Loss struct {
	FirstTenth float64 `json:"first_tenth"` // mean of the steps
	LastTenth  float64 `json:"last_tenth"`
	Fall       float64 `json:"fall"` // as a part of the first tenth
}

// Throughput is of the steps, without evaluations and saves.
type Throughput struct {
	MedianMs     float64 `json:"median_step_ms"`
	FirstTenthMs float64 `json:"first_tenth_step_ms"`
	LastTenthMs  float64 `json:"last_tenth_step_ms"`
	Tokens       float64 `json:"tokens_per_second"` // from the first step to the last, all counted
}

// Memory is what the run held, in bytes.
type Memory struct {
	Planned   int64    `json:"planned_bytes"`
	Held      int64    `json:"held_bytes"`
	Limit     int64    `json:"limit_bytes,omitempty"`
	CardKnown bool     `json:"card_known"`
	CardUsed  int64    `json:"card_used_before_bytes"`
	CardFree  int64    `json:"card_free_before_bytes"`
	CardGrown int64    `json:"card_growth_bytes"` // most, while the run was on it
	HostPeak  int64    `json:"host_peak_bytes"`   // of the process, mapped pages of files counted
	Samples   []Sample `json:"samples"`
}

// Step is a line of metrics.jsonl.
type Step struct {
	Step     int     `json:"step"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	Rate     float64 `json:"learning_rate"`
	Tokens   int64   `json:"tokens"`  // since the start of the run
	Seconds  float64 `json:"seconds"` // since the first step began, evaluations and saves counted
}

// Evaluation is a line of metrics.jsonl about the validation rows.
type Evaluation struct {
	Step int     `json:"step"`
	Loss float64 `json:"eval_loss"`
}

// Comparison is a tier beside kept reports of the same tier, configuration, GPU (or CPU) and base model.
type Comparison struct {
	Kept        []Kept   `json:"kept"` // the newest first
	Lines       []Line   `json:"lines"`
	Regressions []string `json:"regressions,omitempty"`
	Notes       []string `json:"notes,omitempty"` // reports that could not be read, or are of something else
}

// Kept is what a kept report says.
type Kept struct {
	Report        string  `json:"report"`
	Time          string  `json:"time"`
	ProgramSHA256 string  `json:"program_sha256"`
	MedianMs      float64 `json:"median_step_ms"`
	LossEnd       float64 `json:"loss_last_tenth"`
	Held          int64   `json:"held_bytes"`
	LossesSHA256  string  `json:"losses_sha256"`
	made          string  // by which software, where that decides bits
}

// Line is a figure beside the newest kept one.
type Line struct {
	What  string  `json:"what"`
	Now   float64 `json:"now"`
	Was   float64 `json:"was"`
	Limit float64 `json:"limit"` // above it is a regression
	Of    int     `json:"kept_reports"`
	OK    bool    `json:"ok"`
	Rule  string  `json:"rule"`
}
