// Package replay proves that a training run can be repeated bit for bit.
//
// It records what a run was made from and did (Manifest, Evidence), and compares a later run with that record. In
// goes the manifest of a run and the same run opened again (Run); out comes a Verdict, which says whether losses,
// micro-batches and adapter are equal, and at which step they first differ. CheckFiles and CheckMetrics compare the
// files that the run left.
//
// The package knows no device, configuration or data: Run does the training.
package replay

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Verdict is the result of replaying a run's first steps.
type Verdict struct {
	Steps   int         `json:"steps"`    // number of replayed steps
	Of      int         `json:"of_steps"` // number of steps of the run
	Equal   bool        `json:"equal"`    // losses, micro-batches and metrics are equal, bit for bit
	Losses  *Divergence `json:"losses"`   // nil = equal
	Batches *Divergence `json:"batches"`  // nil = equal, or unknown
	// difference between metrics.jsonl and the manifest; nil = equal, or not compared
	Metrics *Divergence `json:"metrics"`
	Checked bool        `json:"metrics_compared"` // Metrics was compared over all steps
	// Adapter reports whether the replay's adapter equals the run's, byte for byte. nil = not all steps were replayed,
	// or an older program wrote the manifest.
	Adapter *bool        `json:"adapter_equal"`
	Files   FilesVerdict `json:"files"`     // result of CheckFiles
	Changed []Change     `json:"different"` // entries of the manifests that differ
}

// Divergence is where two runs first differ. They are equal up to the step After, and differ at Step at the latest.
type Divergence struct {
	After int `json:"equal_after"`
	Step  int `json:"different_at"`
}

// String says where the runs first differ.
func (d Divergence) String() string {
	if d.Step == d.After+1 {
		return fmt.Sprintf("first at step %d", d.Step)
	}
	return fmt.Sprintf("first between steps %d and %d", d.After+1, d.Step)
}

// Change is an entry of the manifest that differs.
type Change struct {
	What string `json:"what"`
	Was  string `json:"was"`
	Now  string `json:"now"`
}

// Run is a run that was opened again and has not trained yet.
type Run interface {
	// Train trains the steps of the run and calls seen after each step that is not skipped. If seen returns an error,
	// the run ends with it. padded requests Evidence.Padded.
	Train(ctx context.Context, padded bool, seen func() error) error
	// Evidence returns what the run computed up to its newest step.
	Evidence() Evidence
	// Leads reports whether this rank sees the training of all ranks and writes the files.
	Leads() bool
	// Manifest returns the manifest of the run up to its newest step.
	Manifest(ctx context.Context) (Manifest, error)
	// AdapterSum returns the SHA-256 of the adapter's weights, as the run would write them.
	AdapterSum() (string, error)
	// End releases the memory. err is the error that ended the run, or nil.
	End(err error) error
}

// errEnough ends a replay early.
var errEnough = errors.New("replayed far enough")

// Verify trains the first steps of a run again and compares them with its manifest. It stops at the first difference,
// and ends the run.
func Verify(ctx context.Context, run Run, was Manifest, steps int) (Verdict, error) {
	c := comparison{run: run, was: slices.Clone(was.Evidence), steps: steps}
	padded := false
	for i, e := range c.was {
		if !run.Leads() { // this rank has not seen the training of all ranks
			c.was[i].Rows, c.was[i].Padded = "", ""
		}
		if severalRanks(was.Plans) { // each rank may have had other token budgets, and so other padding
			c.was[i].Padded = ""
		}
		padded = padded || e.Padded != ""
	}
	err := run.Train(ctx, padded, c.see)
	if err == nil {
		err = c.see() // the last step was skipped
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	at := run.Evidence().Step
	v := Verdict{Steps: at, Of: was.Steps, Losses: c.losses, Batches: c.batches}
	var now Manifest
	if err == nil && run.Leads() {
		if now, err = run.Manifest(ctx); err == nil && at == was.Steps && c.losses == nil && c.batches == nil {
			v.Adapter, err = adapterEquals(run, was)
		}
	}
	if eerr := run.End(err); err == nil {
		err = eerr
	}
	v.Changed = was.changes(now)
	v.Equal = v.Losses == nil && v.Batches == nil && (v.Adapter == nil || *v.Adapter)
	return v, err
}

// adapterEquals compares the run's adapter with that of a manifest. nil = the manifest has no hash of it.
func adapterEquals(run Run, was Manifest) (*bool, error) {
	if was.trained() == "" {
		return nil, nil
	}
	sum, err := run.AdapterSum()
	if err != nil {
		return nil, err
	}
	equal := sum == was.trained()
	return &equal, nil
}

// severalRanks reports whether a part of a run had several ranks.
func severalRanks(plans []PartPlan) bool {
	return slices.ContainsFunc(plans, func(p PartPlan) bool { return p.Ranks > 1 })
}

// comparison compares each step with the recorded run.
type comparison struct {
	run             Run
	was             []Evidence
	steps           int // steps to replay
	equal           int // newest step up to which everything was equal
	losses, batches *Divergence
}

// see compares the newest step. It returns errEnough when the replay should end.
func (c *comparison) see() error {
	now := c.run.Evidence()
	at := slices.IndexFunc(c.was, func(e Evidence) bool { return e.Step == now.Step })
	if at >= 0 {
		was := c.was[at]
		if was.Losses != now.Losses {
			c.losses = &Divergence{c.equal, now.Step}
		}
		if was.Rows != "" && was.Rows != now.Rows || was.Rows == "" && was.Padded != "" && was.Padded != now.Padded {
			c.batches = &Divergence{c.equal, now.Step}
		}
		if c.losses != nil || c.batches != nil {
			return errEnough
		}
		c.equal = now.Step
	}
	if now.Step >= c.steps && at >= 0 {
		return errEnough
	}
	return nil
}

// uncompared lists the entries about what the runs computed, as opposed to what they were made from.
var uncompared = []string{"steps", "losses_sha256", "evidence", "skipped_steps", "plans", "files_sha256"}

// changes returns the differing entries about what the runs were made from, by their names in the file. Entries that an
// older program did not write do not count.
func (m Manifest) changes(now Manifest) []Change {
	changed := []Change{}
	var compare func(prefix string, a, b reflect.Value)
	compare = func(prefix string, a, b reflect.Value) {
		for i := range a.NumField() {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			name = prefix + name
			x, y := a.Field(i), b.Field(i)
			if slices.Contains(uncompared, name) || x.Kind() != reflect.Bool && x.IsZero() {
				continue
			}
			if x.Kind() == reflect.Struct {
				compare(name+".", x, y)
			} else if !reflect.DeepEqual(x.Interface(), y.Interface()) {
				changed = append(changed, Change{name, text(x), text(y)})
			}
		}
	}
	compare("", reflect.ValueOf(m), reflect.ValueOf(now))
	return changed
}

// text returns an entry in the form that a user reads.
func text(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strings.Join(list, ", ")
	}
	return fmt.Sprint(v.Interface())
}
