package fit

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// optimizer8Bit is the optimizer to suggest in place of adamw if adamw's moments are too large.
const optimizer8Bit = "adamw_8bit"

// refuse returns the error of a run that does not fit. The error says how much memory is missing, and what would fit.
func (p Problem[S]) refuse(c Choice[S]) error {
	need, limit := c.Need, p.Limit
	hint := ""
	if limit == 0 { // less memory is free than the driver or the system needs for itself
		hint = "other programs hold the memory of " + p.Machine.Name() +
			": wait for them, end them, raise the limit of a container or job, or use another device"
	} else {
		var err error
		if hint, err = p.suggest(limit, c); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: with %v the plan needs %s, the limit is %s: %s too much; %s", session.ErrDoesNotFit,
		c.Layout,
		session.FormatBytes(need.Total()), session.FormatBytes(limit), session.FormatBytes(need.Total()-limit), hint)
}

// advice looks for the nearest configuration whose planned memory is within limit bytes.
type advice[S any] struct {
	Problem[S]
	limit  int64
	shapes Shapes         // shapes of the run as configured
	lean   session.Layout // leanest layout of the run as configured, which does not fit
	auto   session.Layout // leanest layout with training.gradient_checkpointing: auto
	need   graph.Bytes    // planned memory of the newest attempt
}

// suggest names the nearest configuration that fits in limit bytes if c, the leanest allowed choice, does not: another
// layout, fewer rows in a micro-batch, an optimizer with smaller moments, or shorter rows.
func (p Problem[S]) suggest(limit int64, c Choice[S]) (string, error) {
	a := advice[S]{Problem: p, limit: limit, shapes: c.Shapes, lean: c.Layout}
	a.auto = session.Layout{Recompute: graph.Offload, LossRows: session.LeastLossRows, Shards: c.Layout.Shards,
		OffloadStates: c.Layout.OffloadStates, ShardStates: c.Layout.ShardStates}
	if !p.Machine.Capabilities().SeparateHost {
		a.auto.Recompute = graph.RecomputeLayers
	}
	for _, look := range []func() (string, error){a.states, a.offload, a.layout, a.sharding, a.sharing, a.rows,
		a.optimizer, a.length} {
		if hint, err := look(); hint != "" || err != nil {
			return hint, err
		}
	}
	return a.nothing(), nil
}

// fits plans the run in a layout and reports whether it is within the limit.
func (a *advice[S]) fits(l session.Layout, z Shapes) (bool, error) {
	planned, err := a.plan(l, z)
	a.need = planned.Need
	return err == nil && a.need.Total() <= a.limit, err
}

// bytes returns the planned memory of the newest attempt.
func (a *advice[S]) bytes() string { return session.FormatBytes(a.need.Total()) }

// layout looks for a layout that the configuration does not allow.
func (a *advice[S]) layout() (string, error) {
	if a.Checkpointing == "auto" && !a.lean.Dequantised {
		return "", nil
	}
	if ok, err := a.fits(a.auto, a.shapes); !ok {
		return "", err
	}
	keys := "training.gradient_checkpointing: auto"
	if a.lean.Dequantised {
		keys += " with training.dequantised_weights: auto"
	}
	return fmt.Sprintf("%s would fit, in as little as %s", keys, a.bytes()), nil
}

// states tries the optimizer's states in slices over the ranks.
func (a *advice[S]) states() (string, error) {
	if a.States != "never" || a.Ranks < 2 {
		return "", nil
	}
	return a.moved("training.optimizer_sharding", func(l *session.Layout) { l.ShardStates = true })
}

// offload tries the optimizer's states in host memory.
func (a *advice[S]) offload() (string, error) {
	if a.Offload != "never" || !a.Machine.Capabilities().SeparateHost {
		return "", nil
	}
	return a.moved("training.optimizer_offload", func(l *session.Layout) { l.OffloadStates = true })
}

// moved tries the optimizer's states elsewhere, which key: auto allows.
func (a *advice[S]) moved(key string, move func(*session.Layout)) (string, error) {
	for _, l := range []struct {
		layout session.Layout
		with   string
	}{{a.lean, ""}, {a.auto, " with training.gradient_checkpointing: auto"}} {
		move(&l.layout)
		if ok, err := a.fits(l.layout, a.shapes); err != nil {
			return "", err
		} else if ok {
			return fmt.Sprintf("%s: auto%s would fit, in as little as %s", key, l.with, a.bytes()), nil
		}
		if a.Checkpointing == "auto" {
			break
		}
	}
	return "", nil
}

// sharding tries a sharded base model.
func (a *advice[S]) sharding() (string, error) {
	if !a.Unsharded || a.Ranks < 2 {
		return "", nil
	}
	sharded := a.auto
	sharded.Shards = a.Ranks
	if ok, err := a.fits(sharded, a.shapes); !ok {
		return "", err
	}
	return fmt.Sprintf("training.base_sharding: auto would fit, in as little as %s on each device", a.bytes()), nil
}

// sharing tries context parallelism where a micro-batch has one row.
func (a *advice[S]) sharing() (string, error) {
	if a.Batches.Shape().Sequences != 1 {
		return "", nil
	}
	for _, n := range a.Sharings {
		planned, err := a.Try(Attempt{Layout: a.auto, Shapes: a.shapes, Optimizer: a.Optimizer, Sharing: n})
		if err != nil {
			return "", nil //nolint:nilerr // the model cannot share rows
		}
		if need := planned.Need.Total(); need <= a.limit {
			return fmt.Sprintf("training.context_parallel_size: %d would fit, in as little as %s on each device",
				n, session.FormatBytes(need)), nil
		}
	}
	return "", nil
}

// rows tries fewer rows in a micro-batch.
func (a *advice[S]) rows() (string, error) {
	sequences := a.Batches.Shape().Sequences
	for _, l := range []struct {
		layout session.Layout
		with   string
	}{{a.lean, ""}, {a.auto, " with training.gradient_checkpointing: auto"}} {
		for rows := sequences / 2; rows >= 1; rows /= 2 {
			fewer, err := a.Batches.Fewer(rows)
			if err != nil {
				return "", err
			}
			ok, err := a.fits(l.layout, fewer)
			if err != nil {
				return "", err
			}
			if ok {
				return a.fewerRows(rows, sequences, l.with), nil
			}
		}
		if a.Checkpointing == "auto" {
			break
		}
	}
	return "", nil
}

// fewerRows formulates the advice to put rows in a micro-batch in place of sequences.
func (a *advice[S]) fewerRows(rows, sequences int, with string) string {
	hint := fmt.Sprintf("training.batch_size: %d%s would fit, in %s ", rows, with, a.bytes())
	if a.BatchTerm != "" {
		return hint + fmt.Sprintf("(with another loss: %s of each micro-batch)", a.BatchTerm)
	}
	hint += fmt.Sprintf("(with gradient_accumulation_steps: %d for about the same step)",
		(a.Accumulation*sequences+rows-1)/rows)
	if a.OnOOM != OnOOMShrink {
		hint += "; training.on_oom: shrink does so by itself"
	}
	return hint
}

// optimizer tries 8-bit moments in place of AdamW's, with the rows of the run and with one row at a time.
func (a *advice[S]) optimizer() (string, error) {
	if a.Optimizer != "adamw" {
		return "", nil
	}
	sequences := a.Batches.Shape().Sequences
	z := a.shapes
	for _, rows := range []int{sequences, 1} {
		if rows == 1 {
			var err error
			if z, err = a.Batches.Fewer(1); err != nil {
				return "", nil //nolint:nilerr // the run is refused for its memory
			}
		}
		planned, err := a.Try(Attempt{Layout: a.auto, Shapes: z, Optimizer: optimizer8Bit, Sharing: a.Sharing})
		if err != nil || planned.Need.Total() > a.limit {
			continue
		}
		hint := "training.optimizer: " + optimizer8Bit
		if a.Checkpointing != "auto" {
			hint += " with training.gradient_checkpointing: auto"
		}
		if rows < sequences {
			hint += fmt.Sprintf(" and training.batch_size: %d", rows)
		}
		return fmt.Sprintf("%s would fit, in as little as %s: moments in 8 bits, other numbers",
			hint, session.FormatBytes(planned.Need.Total())), nil
	}
	return "", nil
}

// length tries one row of half the length, then of a quarter and so on, as long as the rows have tokens to train on.
func (a *advice[S]) length() (string, error) {
	for length := a.Batches.Shape().T / 2; a.Batches.Trains(length); length /= 2 {
		ok, err := a.fits(a.lean, a.shapes.cut(1, length))
		if err != nil {
			return "", err
		}
		if ok {
			return fmt.Sprintf("dataset.max_length: %d and training.batch_size: 1 would fit, in %s",
				length, a.bytes()), nil
		}
	}
	return "", nil
}

// nothing formulates the advice for a run for which no batch is small enough.
func (a *advice[S]) nothing() string {
	hint := fmt.Sprintf("no batch is small enough: weights, adapter and optimizer alone take %s; "+
		"use a model with fewer parameters", session.FormatBytes(a.need.Total()-a.need.Arena))
	if !a.Quantised && a.Smaller != "" {
		hint += ", or adapter: " + a.Smaller
	}
	if a.lean.Sharded() {
		hint += fmt.Sprintf(", or more devices than %d", a.lean.Shards)
	}
	return hint
}

// cut returns the same shapes with at most rows rows of length tokens.
func (z Shapes) cut(rows, length int) Shapes {
	less := func(x session.Shape) session.Shape {
		if x.Tokens == 0 {
			return x
		}
		x.Tokens = min(x.Tokens, rows*length)
		x.Sequences, x.MaxLen = min(x.Sequences, x.Tokens), min(x.MaxLen, length)
		return x
	}
	return Shapes{less(z.Train), less(z.Eval), z.Several}
}
