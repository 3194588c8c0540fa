package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
)

// precomputedFrom is how often, on average, a run must compute the reference of a row for training.precompute: auto to
// compute it once before training. Once would save nothing. The margin pays for the batches that are not full.
const precomputedFrom = 1.5

// keptTokens is the fewest tokens of all rows whose values dataset.cache_dir: auto keeps: fewer are computed in
// moments.
const keptTokens = 1_000_000

// referenceFolder returns the folder that keeps the values; "" = they are not kept.
func referenceFolder(p *planner) string {
	if train, val := p.data.Sizes(); p.spec.Dataset.CacheDir == dataset.CacheAuto &&
		train.Tokens+val.Tokens < keptTokens {
		return ""
	}
	return p.spec.Dataset.Folder()
}

// objective returns what the run minimises, with the log-probabilities of the reference from p.known if the run
// computes them before training.
func (p *planner) objective() objective.Objective {
	o := p.spec.Objective()
	if p.known != nil {
		o = objective.WithReferenceValues(o, p.known)
	}
	return o
}

// choosePrecompute decides whether the log-probabilities of the reference are computed before training.
func (p *planner) choosePrecompute() error {
	c := p.spec.Training
	why := cannotPrecompute(p)
	switch c.Precompute {
	case "yes":
		if why != nil {
			return fmt.Errorf("training.precompute: yes, but %w: write auto or no", why)
		}
		p.known = objective.NewReferenceValues()
		return nil
	case "no":
		return nil
	}
	if why != nil {
		return nil
	}
	// Where the base model is trained, it is the reference before the first step alone.
	chosen := referencePasses(p) >= precomputedFrom || p.Net.TrainsBase()
	if before, resumed := cursorIn(c.Resume, p.spec.OutputDir); resumed {
		chosen = before.Precomputed
	}
	if chosen {
		p.known = objective.NewReferenceValues()
	}
	return nil
}

// cannotPrecompute returns why the log-probabilities of the reference cannot be computed before training, nil if they
// can.
func cannotPrecompute(p *planner) error {
	o := p.spec.Objective()
	if _, ok := objective.PrecomputedForm(o); !ok {
		if objective.Refers(o) {
			return fmt.Errorf("training.objective: %s compares each token with its reference in the step",
				p.spec.Training.Objective)
		}
		return fmt.Errorf("training.objective: %s compares the model with no reference", p.spec.Training.Objective)
	}
	if p.data.Streaming() {
		return errors.New("the rows of a stream are not read ahead (dataset.streaming)")
	}
	return nil
}

// referencePasses returns how often the run would compute the reference of a row on average, over training and
// validation rows.
func referencePasses(p *planner) float64 {
	train, val := p.data.Sizes()
	passes := float64(p.total*p.window()) / float64(max(p.loader.Batches(0), 1))
	evaluations := 0
	if val.Rows > 0 {
		evaluations = 1
		if every := p.spec.Training.EvalSteps; every > 0 {
			evaluations = (p.total + every - 1) / every
		}
		if p.spec.Training.EvalOnStart {
			evaluations++
		}
	}
	all := passes*float64(train.Tokens) + float64(evaluations*val.Tokens)
	return all / float64(max(train.Tokens+val.Tokens, 1))
}

// noteOnReference returns what the plan reports of the reference: when it is computed, and what the other choice would
// cost. "" = the objective has no reference that could be computed before training.
func noteOnReference(p *planner) string {
	if cannotPrecompute(p) != nil {
		return ""
	}
	form, _ := objective.PrecomputedForm(p.spec.Objective())
	train, val := p.data.Sizes()
	tokens := train.Tokens + val.Tokens
	size := session.FormatBytes(int64(4 * form.Numbers() * (train.Sequences + val.Sequences)))
	passes := referencePasses(p)
	if p.known == nil {
		return fmt.Sprintf("the reference is computed in every step, %.1f times %d tokens in all; "+
			"training.precompute: "+
			"yes computes it once before training and keeps %s", passes, tokens, size)
	}
	where := "that are not kept (dataset.cache_dir)"
	if dir := referenceFolder(p); dir != "" {
		where = "kept in " + dir
	}
	return fmt.Sprintf("the reference is computed once before training: %d tokens, %s of log-probabilities %s; "+
		"computed in every step it would be %.1f times as many (training.precompute)", tokens, size, where, passes)
}

// planReference plans the forward pass of the reference before training, over batches as large as the step's; nil = the
// run has none.
func (p *planner) planReference(nw session.Network, z fit.Shapes) (*infer.ReferenceStep, error) {
	if p.known == nil {
		return nil, nil
	}
	loader, err := p.data.AllLoader(z.Train.Tokens, z.Train.MaxLen)
	if err != nil {
		return nil, err
	}
	form, _ := objective.PrecomputedForm(p.spec.Objective())
	return infer.PlanReference(nw, infer.ShapeOf(loader), form, p.On)
}

// samePrecompute refuses to resume a run that computed its reference at another time, which would change the last bits
// on a GPU. before and now say whether it is computed before training.
func samePrecompute(before, now bool) error {
	if before != now {
		words := map[bool]string{false: "no", true: "yes"}
		return fmt.Errorf("training.precompute was %s, now it is %s: write auto, or what it was", words[before],
			words[now])
	}
	return nil
}

// precompute computes the log-probabilities of the reference for all rows, or finds them in the cache, if the run
// computes them before training. Base model and reference must be in memory. Ranks take the batches in turn, in the
// order of one rank, so that all of them have the same values.
func (r *loaded) precompute(ctx context.Context) error {
	if r.known == nil {
		return nil
	}
	r.at.enter(phaseRefer)
	at := len(r.found.Step.budgets())
	if r.found.Step.eval != nil {
		at++
	}
	run, err := r.found.Step.refer.Bind(r.memory, r.memory.Runs[at])
	if err != nil {
		return err
	}
	loader, err := r.data.AllLoader(r.found.Shapes.Train.Tokens, r.found.Shapes.Train.MaxLen)
	if err != nil {
		return err
	}
	file := referenceFile{values: r.known}
	if r.env.team.leads() {
		if err := r.openReferenceFile(ctx, &file, loader); err != nil {
			return err
		}
	}
	found, err := r.env.team.leaders("the log-probabilities of the reference", string(file.found))
	if err != nil {
		return err
	}
	if found != "" {
		r.env.Newsf("reference: log-probabilities read from %s", file.path)
		return addReferenceRows(r.known, []byte(found))
	}
	began := time.Now()
	if err := r.computeReference(ctx, run, loader); err != nil {
		return fmt.Errorf("compute the log-probabilities of the reference: %w", err)
	}
	where := ""
	if file.path != "" {
		where = ", kept in " + file.path
		if err := file.write(); err != nil {
			where = fmt.Sprintf(", not kept: %v", err)
		}
	}
	r.env.Newsf("reference: log-probabilities of %d rows computed in %s%s", r.known.Len(),
		time.Since(began).Round(time.Millisecond), where)
	return nil
}

// computeReference computes the values of a loader's rows on all ranks.
func (r *loaded) computeReference(ctx context.Context, run *infer.ReferenceRun, loader *dataset.Loader) error {
	t, batches := r.env.team, loader.Batches(0)
	if t == nil {
		return run.Each(ctx, loader, r.known.Add, func() error { return nil })
	}
	own, err := r.shared(loader, r.rank)
	if err != nil {
		return err
	}
	var mine []byte
	rounds := 0
	share := func() error {
		rounds++
		sent, err := t.Group.Gather(t.ctx, "the log-probabilities of the reference", mine)
		mine = mine[:0]
		for _, text := range sent {
			if err == nil {
				err = addReferenceRows(r.known, text)
			}
		}
		return err
	}
	add := func(key uint64, values []float32) { mine = appendReferenceRow(mine, key, values) }
	if err := run.Each(ctx, own, add, share); err != nil {
		return err
	}
	for rounds < (batches+r.groups()-1)/r.groups() { // rounds of the other ranks
		if r.together() {
			if err := run.Again(); err != nil {
				return err
			}
		}
		if err := share(); err != nil {
			return err
		}
	}
	return nil
}

// openReferenceFile finds the cached values of a loader's rows. The file's name is a hash of everything that decides
// them.
func (r *loaded) openReferenceFile(ctx context.Context, f *referenceFile, loader *dataset.Loader) error {
	dir := referenceFolder(&r.planner)
	if dir == "" {
		return nil
	}
	subject, err := r.referenceSubject(ctx, loader)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(subject)
	f.key = hex.EncodeToString(sum[:])
	f.path = filepath.Join(dir, f.key[:32]+dataset.ReferenceExt)
	text, err := regular.ReadFile(f.path)
	if err != nil {
		return nil //nolint:nilerr // a file that cannot be read is written again
	}
	if f.found, err = parseReferenceFile(text, f.key); err != nil {
		r.env.Logf("%s was damaged (%v) and is written again", f.path, err)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(f.path, now, now) // marks it as used, so that age does not delete it
	return nil
}

// referenceSubject returns what the values of the reference depend on, as JSON.
func (r *loaded) referenceSubject(ctx context.Context, loader *dataset.Loader) ([]byte, error) {
	base, err := r.Base.Digest(ctx, r.On.Workers())
	if err != nil {
		return nil, err
	}
	config, err := fs.ReadFile(r.Base.Folder, "config.json")
	if err != nil {
		return nil, err
	}
	form, _ := objective.PrecomputedForm(r.spec.Objective())
	storage := "as it is"
	if s := r.Net.Scheme; s != nil {
		storage = fmt.Sprintf("%+v", *s)
	}
	layout := r.Net.Layout
	layout.Recompute, layout.Layers = 0, 0 // they concern the backward pass
	return json.Marshal(struct {
		Version, Commit                  string
		Dirty                            bool
		Base, Config, Storage, Layout    string
		Reference, Form                  string
		Device, Precision, Type, Kernels string
		LossRows                         int
		Software                         any
		Rows                             dataset.State
	}{
		r.env.Version, r.env.Commit, r.env.Dirty, base, fmt.Sprintf("%x", sha256.Sum256(config)), storage,
		layout.String(), r.saver.reference, form.String(), r.On.Name(), r.On.Precision().String(),
		r.On.Precision().Activations().String(), r.On.Software().Kernels, r.Net.LossRows(r.On),
		r.On.Software().Libraries, loader.State(),
	})
}

// write writes the values to the cache.
func (f *referenceFile) write() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(f.path, f.bytes())
}
