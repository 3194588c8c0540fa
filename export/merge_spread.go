package export

import (
	"context"

	"github.com/tierlora/tierlora/model/weights"
)

// chunk is the number of weights that one thread takes at a time. Chunks do not depend on the number of threads, and
// sums are added in their order, so that files and reports are reproducible.
const chunk = 1 << 14

// spread calls f for pieces of at most grain of [0,n) on all threads. It returns the error of the first piece that has
// one.
func (m *merging) spread(n, grain int, f func(from, to int) error) error {
	if n == 0 {
		return nil
	}
	errs := make([]error, (n+grain-1)/grain)
	m.cpu.Range(n, grain, func(from, to int) { errs[from/grain] = f(from, to) })()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// count adds to c what see counts for n numbers, with scratch memory in was and then.
func (m *merging) count(c *layerCounts, n int, see func(c *layerCounts, from, to int)) {
	m.was, m.then = grow(m.was, n), grow(m.then, n)
	counts := make([]layerCounts, (n+chunk-1)/chunk)
	m.cpu.Range(n, chunk, func(from, to int) { see(&counts[from/chunk], from, to) })()
	for i := range counts {
		c.plus(&counts[i])
	}
}

// countRounded counts a piece that is rounded to a type.
func (m *merging) countRounded(c *layerCounts, d weights.DType, base, merged []float32) {
	half := halfSteps(d)
	m.count(c, len(base), func(c *layerCounts, from, to int) {
		was, then := m.was[from:to], m.then[from:to]
		weights.RoundFloat32s(was, d, base[from:to])
		weights.RoundFloat32s(then, d, merged[from:to])
		c.add(base[from:to], merged[from:to], was, then, half)
	})
}

// Size of the sample of adapted tensors that decides whether all of them are counted before writing: this many tensors,
// this many rows of each, in this many groups. A merge is never refused because of a sample: other rows may hold the
// update.
const (
	sampleTensors = 32
	sampleRows    = 64
	sampleGroups  = 8
	likelyKept    = 0.75
)

// refuseLoss returns a *LossError, before anything is written, if rounding loses most of the adapter. If a sample shows
// that the loss is far below the limit, the exact count is made while writing.
func (m *merging) refuseLoss(ctx context.Context) error {
	if m.o.AllowLoss {
		return nil
	}
	var rest []string // names whose rounding storedTensors has not counted
	for _, name := range m.s.Base.Tensors().Names() {
		t, _ := m.s.Base.Tensors().Tensor(name)
		if _, ok := m.updates[layer(name)]; ok && !m.stored[name] && isNumbers(t.DType) {
			rest = append(rest, name)
		}
	}
	if err := m.countTensors(ctx, sampled(rest), sampleRows); err != nil {
		return err
	}
	r := m.rounding()
	if r.Kept < likelyKept && len(rest) > 0 {
		if err := m.countTensors(ctx, rest, 0); err != nil {
			return err
		}
		r = m.rounding()
	} else if len(rest) > 0 {
		return nil
	}
	if r.Kept < leastKept {
		fp16, err := m.inFP16(ctx, r)
		if err != nil {
			return err
		}
		return &LossError{DType: m.typeText(), Rounding: r, FP16: fp16}
	}
	return nil
}

// sampled returns some of the names, evenly spread.
func sampled(names []string) []string {
	if len(names) <= sampleTensors {
		return names
	}
	var some []string
	for i := range sampleTensors {
		some = append(some, names[i*len(names)/sampleTensors])
	}
	return some
}

// inFP16 estimates from a sample what fp16 keeps of an update of which bf16 loses too much; nil = the merge does not
// write bf16, or bf16 loses little.
func (m *merging) inFP16(ctx context.Context, r Rounding) (*Rounding, error) {
	if !r.loses() {
		return nil, nil
	}
	var names []string
	for _, name := range m.s.Base.Tensors().Names() {
		t, _ := m.s.Base.Tensors().Tensor(name)
		if _, ok := m.updates[layer(name)]; ok && !m.stored[name] && m.target(t) == weights.BF16 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	fp16 := map[string]*layerCounts{}
	for _, name := range sampled(names) {
		c := &layerCounts{}
		if err := m.eachOf(ctx, name, sampleRows, func(_ int, base, merged []float32) error {
			m.countRounded(c, weights.F16, base, merged)
			return nil
		}); err != nil {
			return nil, err
		}
		fp16[layer(name)] = c
	}
	left := roundingOf(fp16)
	return &left, nil
}

// countTensors counts the rounding loss of tensors, or of a sample of their rows.
func (m *merging) countTensors(ctx context.Context, names []string, rows int) error {
	for _, name := range names {
		t, err := m.tensor(name)
		if err != nil {
			return err
		}
		c, d := &layerCounts{}, m.target(t)
		err = m.eachOf(ctx, name, rows, func(_ int, base, merged []float32) error {
			m.countRounded(c, d, base, merged)
			return nil
		})
		if err != nil {
			return err
		}
		m.lost[layer(name)] = c
	}
	return nil
}
