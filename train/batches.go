package train

import (
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
)

// division is how the ranks of a run divide the rows of a step among themselves.
type division struct {
	world        int // number of ranks of the run, at least 1
	rank         int // index of this rank, from 0
	sharing      int // training.context_parallel_size: number of ranks that share a row's tokens, at least 1
	batchSize    int // training.batch_size
	accumulation int // training.gradient_accumulation_steps
}

// divisionOf returns the division of a run's steps, as this rank sees it.
func divisionOf(s Spec, env Env) division {
	c := s.Training
	d := division{
		world: max(env.ranks, 1), sharing: c.sharing(), batchSize: c.BatchSize,
		accumulation: c.GradientAccumulationSteps,
	}
	if t := env.team; t != nil {
		d.world, d.rank = t.World(), t.Rank()
	}
	return d
}

// groups returns the number of context-parallel groups: each has micro-batches of its own. Without context
// parallelism each rank is a group.
func (d division) groups() int { return max(d.world/d.sharing, 1) }

// window returns the micro-batches of a step over all ranks, if no batch is split.
func (d division) window() int { return d.accumulation * d.groups() }

// shared returns the loader as a rank of the run sees it.
func (d division) shared(l *dataset.Loader, rank int) (*dataset.Loader, error) {
	own, err := l.Shard(rank/d.sharing, d.groups())
	if err == nil && rank%d.sharing > 0 {
		own.Quiet()
	}
	return own, err
}

// batches has the rows of a run and deals them in micro-batches on this rank. It implements fit.Batches.
type batches struct {
	division
	evenCost int // cost of a token, for dataset.Loader.Even
	data     *dataset.Set
	report   *dataset.Report
	loader   *dataset.Loader // loader of the training rows; nil before they are read
	val      *dataset.Loader // loader of the validation rows; nil = there are none
	total    int             // optimizer steps of the run
	pieces   int             // micro-batches that each configured batch is split into, at least 1
	noted    string          // what the plan reports of shared prompts; "" = nothing
	sampled  bool            // the run samples the answers that it trains on
	longest  int             // tokens of the longest sample with its answer; 0 = the run makes no samples
}

var _ fit.Batches = (*batches)(nil)

// accumulate returns the number of micro-batches of a whole step on one rank.
func (b *batches) accumulate() int { return b.accumulation * b.pieces }

// BatchReport returns how full the micro-batches of an epoch of s are, for the base model's network; a network without
// a Build computes every prompt with each answer. The plan of s reports the same, unless it chooses fewer token budgets
// to save memory. data stays as it is.
func BatchReport(data *dataset.Set, s Spec, nw session.Network) (*dataset.BatchReport, error) {
	own := *data
	if nw.Build != nil {
		layers := func(longest int) error { return nw.CheckPrefixes(longest, s.Device == "cuda") }
		if _, err := sharePrompts(s, &own, layers); err != nil {
			return nil, err
		}
	}
	b, err := firstRank(&own, s, nw.Config.HiddenSize)
	if err != nil {
		return nil, err
	}
	return b.loader.Report(), nil
}

// firstRank returns the batches of an epoch of s on its first rank, without those of validation rows, for a model whose
// hidden state has hiddenSize numbers. No batch is split to save memory.
func firstRank(data *dataset.Set, s Spec, hiddenSize int) (*batches, error) {
	ranks, err := s.RanksAsked()
	if err != nil {
		return nil, err
	}
	if s, err = s.spread(ranks); err != nil {
		return nil, err
	}
	b := &batches{division: divisionOf(s, Env{ranks: ranks}), evenCost: tokenCost * hiddenSize, data: data, pieces: 1}
	if b.loader, err = b.trainLoader(data, s.Training.BatchSize); err == nil && b.world > 1 {
		b.loader, err = b.shared(b.loader, 0)
	}
	if err != nil {
		return nil, err
	}
	if b.total, err = stepsOf(s.Training, b.loader, b.window()); err != nil {
		return nil, err
	}
	b.ChooseBudgets(dataset.MaxBudgets)
	return b, nil
}

// trainLoader deals the training rows in batches of rows, with as many rows in a step as the configuration says. Rows
// whose loss depends on the rows beside them stay in the micro-batches that the order of the data set gives.
func (b *batches) trainLoader(data *dataset.Set, rows int) (*dataset.Loader, error) {
	l, err := data.TrainLoader(rows)
	if err == nil && data.Config.Mismatched == 0 {
		l.Even(b.window()*b.batchSize/rows, b.evenCost)
	}
	return l, err
}

// loadValidation packs the validation rows into batches as large as training's; they take less memory.
func (b *batches) loadValidation(batchSize int) (err error) {
	if b.data.Val.Len() == 0 || b.sampled { // answers to validation prompts are sampled, and have no loss
		return nil
	}
	if b.val, err = b.data.ValLoader(batchSize, slices.Max(b.loader.Shape().Budgets)); err == nil && b.world > 1 {
		b.val, err = b.shared(b.val, b.rank)
	}
	return err
}

// Shapes returns the largest micro-batches of training, and of validation where there is one.
func (b *batches) Shapes() fit.Shapes {
	z := fit.Shapes{Train: infer.ShapeOf(b.loader), Several: b.accumulate() > 1}
	if b.val != nil {
		z.Eval = infer.ShapeOf(b.val)
	}
	z.Train.MaxLen = max(z.Train.MaxLen, z.Eval.MaxLen, b.longest)
	if b.val != nil {
		z.Eval.MaxLen = z.Train.MaxLen
	}
	return z
}

// Shape returns what all training micro-batches have in common.
func (b *batches) Shape() dataset.Shape { return b.loader.Shape() }

// Efficiency returns the part of an epoch's computed tokens that is not padding.
func (b *batches) Efficiency(epoch int) float64 { return b.loader.Efficiency(epoch) }

// ChooseBudgets chooses at most most token budgets.
func (b *batches) ChooseBudgets(most int) {
	if b.sampled {
		b.loader.UseBudgets(budgetsOfAnswers(slices.Max(b.loader.Shape().Budgets)))
		return
	}
	b.loader.ChooseBudgets(b.total*b.accumulate()*b.groups(), most)
}

// budgetsOfAnswers are token budgets for answers that are sampled later, whose lengths are not known: the largest, its
// half and its quarter.
func budgetsOfAnswers(largest int) (all []int) {
	for _, part := range []int{4, 2} {
		if n := (largest/part + 7) / 8 * 8; n < largest && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return append(all, largest)
}

// Split deals every configured batch in pieces micro-batches, and returns the largest micro-batches of that division.
func (b *batches) Split(pieces int) (fit.Shapes, error) {
	if err := b.loader.Split(pieces); err != nil {
		return fit.Shapes{}, err
	}
	b.pieces = pieces
	b.ChooseBudgets(dataset.MaxBudgets)
	if err := b.loadValidation(b.batchSize / pieces); err != nil {
		return fit.Shapes{}, err
	}
	return b.Shapes(), nil
}

// Fewer returns the largest micro-batches of rows rows each, for steps with the present total number of rows.
func (b *batches) Fewer(rows int) (fit.Shapes, error) {
	of := *b
	var err error
	if of.loader, err = b.trainLoader(b.data, rows); err != nil {
		return fit.Shapes{}, err
	}
	of.loader.ChooseBudgets((b.total*b.window()*b.loader.Shape().Sequences+rows-1)/rows, dataset.MaxBudgets)
	if err := of.loadValidation(rows); err != nil {
		return fit.Shapes{}, err
	}
	z := of.Shapes()
	z.Several = true
	return z, nil
}

// Trains reports whether rows that are cut to length tokens leave a token to train on.
func (b *batches) Trains(length int) bool {
	for i := range b.data.Train.Len() {
		row := b.data.Train.Row(i)
		for _, l := range row.Labels[:min(max(length, 0), len(row.Labels))] {
			if l != dataset.Ignore {
				return true
			}
		}
	}
	return false
}
