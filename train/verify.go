package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
)

// Verdict is what a replay of a run's first steps found.
type Verdict struct {
	Steps   int         `json:"steps"`    // replayed
	Of      int         `json:"of_steps"` // that the run had
	Equal   bool        `json:"equal"`    // losses, micro-batches and metrics, bit for bit
	Losses  *Divergence `json:"losses"`   // nil = equal
	Batches *Divergence `json:"batches"`  // nil = equal, or not known
	Metrics *Divergence `json:"metrics"`  // of the run's metrics.jsonl from its manifest, over all steps; nil = equal, or not compared
	Checked bool        `json:"metrics_compared"`
	// Adapter tells whether the replay's adapter is the run's, byte for byte; nil = not all steps were replayed, or the
	// manifest is of an older program.
	Adapter *bool        `json:"adapter_equal"`
	Files   FilesVerdict `json:"files"`     // that the run left; CheckFiles fills it in
	Changed []Change     `json:"different"` // what made the two runs, where it differs
}

// Divergence is where two runs first differ: behind the step After, where they were equal, and at the latest at Step.
type Divergence struct {
	After int `json:"equal_after"`
	Step  int `json:"different_at"`
}

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

// errEnough ends a replay.
var errEnough = errors.New("replayed far enough")

// Verify trains the first steps of a run again, in a folder of its own that goes afterwards, and compares losses and
// micro-batches with the run's manifest bit for bit, behind the last step the adapter too. It stops at the first
// difference.
func Verify(ctx context.Context, s Spec, env Env, was Manifest, steps int) (_ Verdict, err error) {
	if len(was.Evidence) == 0 { // of an older program
		was.Evidence = []Evidence{{Step: was.Steps, Losses: was.Losses}}
	}
	if first := was.Evidence[0].Step; steps < first {
		return Verdict{}, fmt.Errorf("%s says nothing of the losses before step %d: verify %d steps or more", ManifestFile, first, first)
	}
	if s.OutputDir, err = os.MkdirTemp("", "trainer-verify-"); err != nil {
		return Verdict{}, fmt.Errorf("make a folder for the replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.OutputDir)) }()
	world, share := 1, 1 // the configuration's, which is that of the run's last part; share is its first part's
	if plans := was.Plans; len(plans) > 0 {
		env.pieces, world = plans[0].Pieces, max(world, plans[len(plans)-1].Ranks)
		share = max(share, plans[0].Context)
		if i := slices.IndexFunc(plans, func(p PartPlan) bool { return !p.sameBits(plans[0]) }); i > 0 { // other bits from there on
			steps = min(steps, plans[i].FirstStep-1)
		}
		if world > share || plans[0].Ranks > share {
			env.lossRows, s.VRAM, s.Training.OnOOM = &plans[0].LossRows, "", fit.OnOOMStop
		}
	}
	s.Training.Resume, s.Training.SaveSteps, s.Training.EvalSteps, s.Training.SavesPerEpoch, s.Training.EvalsPerEpoch, s.Training.ReportTo, s.Expect = "", 0, 0, 0, 0, nil, Expect{} // grad_norm_steps stays: the plan has its memory
	s.Training.EvalOnStart, env.silent = false, true
	if s, err = s.spread(world); err != nil {
		return Verdict{}, err
	}
	s = s.alone(world)
	s.Devices, s.Training.ContextParallelSize = fmt.Sprint(share), share
	var v Verdict
	done := false
	err = Together(ctx, s, env, func(ctx context.Context, s Spec, env Env) error { // the numbers of any number of devices are those of as few
		one, err := verify(ctx, s, env, was, steps)
		if env.team.leads() {
			v, done = one, err == nil
		}
		return err
	})
	if done { // the others end where the first has seen a difference that they cannot see
		err = nil
	}
	return v, err
}

// sameBits tells whether steps laid out by either plan have the same bits.
func (p PartPlan) sameBits(q PartPlan) bool {
	return p.Pieces == q.Pieces && p.Context == q.Context && p.LossRows == q.LossRows
}

// verify is Verify on one of the devices that share each row.
func verify(ctx context.Context, s Spec, env Env, was Manifest, steps int) (Verdict, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Precision, env.Env)
	if err != nil {
		return Verdict{}, err
	}
	leave, err := env.Join(on)
	if err != nil {
		return Verdict{}, errors.Join(err, on.Close())
	}
	defer leave()
	return verifyOn(ctx, s, env, was, steps, on)
}

// verifyOn is verify on a machine that is open; it closes it.
func verifyOn(ctx context.Context, s Spec, env Env, was Manifest, steps int, on graph.Machine) (Verdict, error) {
	p, err := prepareOn(ctx, s, env, on)
	if err != nil {
		return Verdict{}, err
	}
	defer p.Close() //nolint:errcheck // read only
	r, err := p.start(ctx)
	if err != nil {
		return Verdict{}, err
	}
	w := &replay{of: r.recorder, was: slices.Clone(was.Evidence), steps: steps}
	for i, e := range w.was {
		if !env.team.leads() { // it has not seen what all ranks train
			w.was[i].Rows, w.was[i].Padded = "", ""
		}
		if severalRanks(was.Plans) { // each may have had other token budgets, and so other padding
			w.was[i].Padded = ""
		}
		r.recorder.asOlder = r.recorder.asOlder || e.Padded != ""
	}
	r.recorder.observers = append(r.recorder.observers, w)
	var adapterEqual *bool
	if err = r.explain(r.loop(ctx)); err == nil {
		err = w.Step(StepInfo{Step: r.recorder.step()}) // the last step was left out
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	var now Manifest
	if err == nil && env.team.leads() {
		if now, err = r.manifest(ctx); err == nil && r.recorder.step() == was.Steps && w.losses == nil && w.batches == nil {
			adapterEqual, err = r.adapterEquals(was)
		}
	}
	if eerr := r.end(err); err == nil {
		err = eerr
	}
	v := Verdict{Steps: r.recorder.step(), Of: was.Steps, Losses: w.losses, Batches: w.batches, Adapter: adapterEqual, Changed: was.changes(now)}
	v.Equal = v.Losses == nil && v.Batches == nil && (v.Adapter == nil || *v.Adapter)
	return v, err
}

// severalRanks tells whether a part of the run was of several ranks.
func severalRanks(plans []PartPlan) bool {
	return slices.ContainsFunc(plans, func(p PartPlan) bool { return p.Ranks > 1 })
}

// replay compares each step with what the run had there.
type replay struct {
	Silent
	of              *recorder
	was             []Evidence
	steps, equal    int // to replay; up to which all was equal
	losses, batches *Divergence
}

func (r *replay) Step(s StepInfo) error {
	at := slices.IndexFunc(r.was, func(e Evidence) bool { return e.Step == s.Step })
	if at >= 0 {
		was, p := r.was[at], r.of.progress
		if was.Losses != hashLosses(p.Losses) {
			r.losses = &Divergence{r.equal, s.Step}
		}
		if was.Rows != "" && was.Rows != p.Rows || was.Rows == "" && was.Padded != "" && was.Padded != r.of.padded {
			r.batches = &Divergence{r.equal, s.Step}
		}
		if r.losses != nil || r.batches != nil {
			return errEnough
		}
		r.equal = s.Step
	}
	if s.Step >= r.steps && at >= 0 {
		return errEnough
	}
	return nil
}

// changes are the entries about what made the run, by their names in the file. Entries that an older program left out
// are not known, and do not count.
func (m Manifest) changes(now Manifest) []Change {
	changed := []Change{}
	var compare func(prefix string, a, b reflect.Value)
	compare = func(prefix string, a, b reflect.Value) {
		for i := range a.NumField() {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			name = prefix + name
			x, y := a.Field(i), b.Field(i)
			if name == "steps" || name == "losses_sha256" || name == "evidence" || name == "skipped_steps" || name == "plans" || name == "files_sha256" || x.Kind() != reflect.Bool && x.IsZero() {
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

func text(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strings.Join(list, ", ")
	}
	return fmt.Sprint(v.Interface())
}
