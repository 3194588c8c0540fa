package tier

import (
	"encoding/json"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

// Schema names the format of report.json. New fields keep the number; a field that is removed or changes its meaning
// makes a new one.
const Schema = "tierlora-tier-report/1"

// The names of a report's files.
const (
	ReportJSON     = "report.json"
	ReportMarkdown = "report.md"
	ReportHTML     = "report.html"
)

// The states of a check, a tier and a report. Skip does not count as passed.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Report is the content of report.json. Times are UTC, hashes SHA-256 in hexadecimal.
type Report struct {
	Schema      string          `json:"schema"`
	Time        string          `json:"time"` // time of the start, RFC 3339
	Seconds     float64         `json:"seconds"`
	Status      string          `json:"status"`
	ExitCode    int             `json:"exit_code"`
	Command     []string        `json:"command"`
	Program     Program         `json:"program"`
	Machine     Machine         `json:"machine"`
	Environment json.RawMessage `json:"environment,omitempty"` // output of trainer doctor --json
	Selfcheck   *Selfcheck      `json:"selfcheck,omitempty"`
	Checks      []Check         `json:"checks"` // checks of the machine
	Commands    []Command       `json:"commands"`
	Tiers       []Result        `json:"tiers"`
}

// Program identifies the program that was validated.
type Program struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"` // the program was built from files that differ from the commit
	SHA256  string `json:"sha256"`
}

// Machine has the facts of doctor's output by which reports are compared.
type Machine struct {
	GPU      string `json:"gpu,omitempty"` // name of the first one; "" = none
	Driver   string `json:"driver,omitempty"`
	Platform string `json:"platform"`
	Cores    int    `json:"cores"`
}

// Selfcheck counts the kernels' checks by their result.
type Selfcheck struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
}

// Check is a condition with its result.
type Check struct {
	Name   string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Result is a tier with its result.
type Result struct {
	Tier     string    `json:"tier"`
	What     string    `json:"what"`
	Config   string    `json:"config"`
	GPU      bool      `json:"gpu"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"` // reason of a fail or skip: the first check that did not pass
	ExitCode int       `json:"exit_code"`        // exit code that the tier alone would have
	Seconds  float64   `json:"seconds"`
	Folder   string    `json:"folder"` // name of the run's folder in the report's folder
	Checks   []Check   `json:"checks"`
	Commands []Command `json:"commands"`

	Base       string `json:"base_model,omitempty"`
	BaseSHA256 string `json:"base_weights_sha256,omitempty"`
	// ConfigSHA256 is the hash of the effective configuration without its output_dir.
	ConfigSHA256 string            `json:"config_sha256,omitempty"`
	Settings     []string          `json:"settings,omitempty"` // settings of --set
	Plan         *train.PlanReport `json:"plan,omitempty"`
	Run          *train.Result     `json:"run,omitempty"` // output of trainer train --json
	Manifest     *replay.Manifest  `json:"manifest,omitempty"`
	Loss         *Loss             `json:"loss,omitempty"`
	Curve        *Curve            `json:"reference,omitempty"`
	Throughput   *Throughput       `json:"throughput,omitempty"`
	Memory       *Memory           `json:"memory,omitempty"`
	Steps        []Step            `json:"steps,omitempty"`
	Evaluations  []Evaluation      `json:"evaluations,omitempty"`
	Comparison   *Comparison       `json:"comparison,omitempty"`
}

// Loss is computed here from metrics.jsonl.
type Loss struct {
	FirstTenth float64 `json:"first_tenth"` // mean over the steps
	LastTenth  float64 `json:"last_tenth"`
	Fall       float64 `json:"fall"` // fall as a part of the first tenth
}

// Throughput is the throughput of the steps, without evaluations and saves.
type Throughput struct {
	MedianMs     float64 `json:"median_step_ms"`
	FirstTenthMs float64 `json:"first_tenth_step_ms"`
	LastTenthMs  float64 `json:"last_tenth_step_ms"`
	Tokens       float64 `json:"tokens_per_second"` // from the first step to the last, including everything
}

// Memory is the memory of the run in bytes.
type Memory struct {
	Planned   int64    `json:"planned_bytes"`
	Held      int64    `json:"held_bytes"`
	Limit     int64    `json:"limit_bytes,omitempty"`
	CardKnown bool     `json:"card_known"`
	CardUsed  int64    `json:"card_used_before_bytes"`
	CardFree  int64    `json:"card_free_before_bytes"`
	CardGrown int64    `json:"card_growth_bytes"` // largest growth of the card's memory during the run
	HostPeak  int64    `json:"host_peak_bytes"`   // peak of the process's memory, including mapped pages of files
	Samples   []Sample `json:"samples"`
}

// Step is a line of metrics.jsonl.
type Step struct {
	Step     int     `json:"step"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	Rate     float64 `json:"learning_rate"`
	Tokens   int64   `json:"tokens"`  // tokens since the start of the run
	Seconds  float64 `json:"seconds"` // seconds since the first step began, including evaluations and saves
}

// Evaluation is a line of metrics.jsonl about the validation rows.
type Evaluation struct {
	Step int     `json:"step"`
	Loss float64 `json:"eval_loss"`
}

// Comparison compares a tier with kept reports of the same tier, configuration, GPU (or CPU) and base model.
type Comparison struct {
	Kept        []Kept   `json:"kept"` // kept reports, the newest first
	Lines       []Line   `json:"lines"`
	Regressions []string `json:"regressions,omitempty"`
	Notes       []string `json:"notes,omitempty"` // reports that could not be read, or have another subject
}

// Kept has the figures of a kept report.
type Kept struct {
	Report        string  `json:"report"`
	Time          string  `json:"time"`
	ProgramSHA256 string  `json:"program_sha256"`
	MedianMs      float64 `json:"median_step_ms"`
	LossEnd       float64 `json:"loss_last_tenth"`
	Held          int64   `json:"held_bytes"`
	LossesSHA256  string  `json:"losses_sha256"`
	made          string  // software that made it, if it decides bits
}

// Line is a figure beside the newest kept one.
type Line struct {
	What  string  `json:"what"`
	Now   float64 `json:"now"`
	Was   float64 `json:"was"`
	Limit float64 `json:"limit"` // a figure above it is a regression
	Of    int     `json:"kept_reports"`
	OK    bool    `json:"ok"`
	Rule  string  `json:"rule"`
}
