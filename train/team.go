package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/ranks"
)

// team is one rank's view of the ranks of a run, with the decisions that they take together over the host. nil = the
// run has one rank. Decisions that depend on time, memory, the disk or a signal are taken once for all ranks, through
// team or with a step's numbers. Everything else is the same on every rank because its inputs are.
type team struct {
	ranks.Group
	ctx    context.Context
	local  int         // index among the ranks of this process
	locals int         // number of ranks of this process
	shared *sharedData // rows shared by the ranks of this process
	left   sync.Once
}

// leads reports whether this rank logs and writes for all: rank 0, or the only one.
func (t *team) leads() bool { return t == nil || t.Rank() == 0 }

func (t *team) rank() int {
	if t == nil {
		return 0
	}
	return t.Rank()
}

// kernels is the group in the form that collective operations use.
type kernels struct{ *team }

func (k kernels) Gather(what string, mine []byte) ([][]byte, error) {
	return k.Group.Gather(k.ctx, what, mine)
}

// join joins a machine to the ranks, and aborts what waits on it if a rank is lost.
func (t *team) join(on graph.Machine) (end func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	joiner, ok := on.(graph.Joiner)
	if !ok {
		return nil, fmt.Errorf("%s cannot train with others", on.Name())
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(rescue.Wrap(func() { // starts with the first collective operation
		select {
		case <-t.Lost():
			joiner.Abandon()
		case <-t.Stalled():
			joiner.Abandon()
		case <-done:
		}
	}))
	end = sync.OnceFunc(func() {
		close(done)
		watch.Wait()
	})
	if err := joiner.Join(kernels{t}); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// leave informs the others that this rank has ended; only the first call has an effect.
func (t *team) leave(err error) {
	if t != nil {
		t.left.Do(func() { t.Leave(err) }) //nolint:errcheck // the error that the run ended with counts
	}
}

// failure returns why the group has ended; nil = it has not.
func (t *team) failure() error {
	if t == nil {
		return nil
	}
	return t.Err()
}

// verdictTime is how long a rank waits for the name of the rank that the others waited for.
const verdictTime = 30 * time.Second

// cause returns why a run has ended with an error. If the devices waited for one another, it names the rank that is to
// blame. The error that this rank's device reports then is not the cause; that it reports one shows the others that
// this rank is not to blame.
func (t *team) cause(step int, err error) error {
	if !t.stalled() {
		return err
	}
	t.At(step, "ending what its device waited for")
	select {
	case <-t.Lost():
		return t.Err()
	case <-time.After(verdictTime):
		return err
	}
}

// stalled reports whether this rank's device was made to abort its wait.
func (t *team) stalled() bool {
	if t == nil {
		return false
	}
	select {
	case <-t.Stalled():
		return true
	default:
		return false
	}
}

// errStalled is the error of a rank that does not learn which rank the others waited for.
var errStalled = errors.New("the devices of the ranks waited for one another, and none got on")

// ended returns why the results of a step are meaningless; nil = they are valid.
func (t *team) ended(step int) error {
	if err := t.failure(); err != nil || !t.stalled() {
		return err
	}
	return t.cause(step, errStalled)
}

// meet waits for all ranks, so that no rank waits on its device for work of another rank's host.
func (t *team) meet(after string) error {
	if t == nil {
		return nil
	}
	_, err := t.Group.Gather(t.ctx, "the end of "+after, nil)
	return err
}

// least returns the minimum of the ranks' numbers.
func (t *team) least(what string, mine int64) (int64, error) {
	if t == nil {
		return mine, nil
	}
	all, err := t.Group.Gather(t.ctx, what, binary.LittleEndian.AppendUint64(nil, uint64(mine)))
	if err != nil {
		return 0, err
	}
	for r, theirs := range all {
		if len(theirs) != 8 {
			return 0, fmt.Errorf("%s: rank %d sent %d bytes", what, r, len(theirs))
		}
		mine = min(mine, int64(binary.LittleEndian.Uint64(theirs)))
	}
	return mine, nil
}

// leaders returns rank 0's text on all ranks.
func (t *team) leaders(what, mine string) (string, error) {
	if t == nil {
		return mine, nil
	}
	all, err := t.Group.Gather(t.ctx, what, []byte(mine))
	if err != nil {
		return "", err
	}
	return string(all[0]), nil
}

// anyOf reports whether mine is true on any rank.
func (t *team) anyOf(what string, mine bool) (bool, error) {
	v := int64(1)
	if mine {
		v = 0
	}
	v, err := t.least(what, v)
	return v == 0, err
}

// fact is a named value that must be the same on all ranks.
type fact struct{ Name, Value string }

// same returns an error if facts differ between ranks. The error names the first one that does, and the ranks.
func (t *team) same(what string, facts []fact) error {
	if t == nil {
		return nil
	}
	mine, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	all, err := t.Group.Gather(t.ctx, what, mine)
	if err != nil {
		return err
	}
	for r, theirs := range all {
		if bytes.Equal(theirs, all[0]) {
			continue
		}
		var a, b []fact
		if err := json.Unmarshal(all[0], &a); err != nil {
			return fmt.Errorf("%s: rank 0: %w", what, err)
		}
		if err := json.Unmarshal(theirs, &b); err != nil {
			return fmt.Errorf("%s: rank %d: %w", what, r, err)
		}
		return fmt.Errorf("rank %d is not as rank 0, so they would not train the same model: %s",
			r, factsApart(a, b, r))
	}
	return nil
}

// factsApart lists the facts in which rank 0 and another rank differ.
func factsApart(a, b []fact, rank int) string {
	short := func(v string) string {
		if v == "" {
			return "not set"
		}
		if len(v) > 80 {
			return v[:80] + "..."
		}
		return v
	}
	var apart []string
	names := []string{}
	values := [2]map[string]string{{}, {}}
	for i, list := range [][]fact{a, b} {
		for _, f := range list {
			values[i][f.Name] = f.Value
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	for _, name := range names {
		if x, y := values[0][name], values[1][name]; x != y {
			apart = append(apart, fmt.Sprintf("%s is %s there and %s on rank %d", name, short(x), short(y), rank))
		}
	}
	return strings.Join(apart, "; ")
}

// sharedData has the rows that the ranks of a process train on. The first of them reads the rows once.
type sharedData struct {
	ready   chan struct{}        // closed when the other fields are set
	images  *session.ImageValues // how batches hold images; nil = no row has any
	set     *dataset.Set
	report  *dataset.Report
	loaders []*dataset.Loader // loader of each local rank, in its share
	err     error
}

// readShared reads the rows on the process's first rank; the other ranks wait for them.
func (p *inputs) readShared(ctx context.Context) error {
	t := p.env.team
	d := t.shared
	if t.local == 0 {
		defer close(d.ready)
		d.set, d.report, d.err = p.readSet(ctx)
		if d.err != nil {
			return d.err
		}
		d.images = p.Net.Images
		var whole *dataset.Loader
		if whole, d.err = p.trainLoader(d.set, p.spec.Training.BatchSize); d.err != nil {
			return d.err
		}
		whole.State() // hashes the rows once for all ranks
		for i := range t.locals {
			l, err := p.shared(whole, t.Rank()+i)
			if err != nil {
				d.err = err
				return err
			}
			d.loaders = append(d.loaders, l)
		}
	} else {
		select {
		case <-d.ready:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.Lost():
			return t.Err()
		}
		if d.err != nil {
			return fmt.Errorf("the rows were not read: %w", d.err)
		}
		p.Net.Images = d.images
	}
	report := *d.report
	p.data, p.report, p.loader = d.set, &report, d.loaders[t.local]
	return nil
}
