package dataset

import (
	"fmt"
	"math"
	"slices"
)

// MaxBudgets is the largest useful number of token budgets: each budget costs one planned and captured training step.
const MaxBudgets = 8

// Limits of ChooseBudgets.
const (
	// a further budget costs about as much time as this many micro-batches, so it must save more than that
	batchesABudget  = 2
	savingOfABudget = 0.005   // the smallest share of the computed tokens that a further budget must save
	budgetSizes     = 512     // the most budget sizes that are considered
	grains          = 1 << 16 // the most bins of the histogram of batch sizes
	dealtRows       = 1 << 26 // the most rows that are dealt in advance, which takes a few seconds
)

// ChooseBudgets chooses at most `most` token budgets for a run of the given number of micro-batches over all ranks,
// from the batches that the run will deal. The largest budget holds the largest of these batches; if the run is too
// long to be dealt in advance, it holds the largest batch that is possible. The other budgets are placed where they
// save the most padding. NextWindow must not run past the epoch in which the run ends. With Packing or Padded,
// ChooseBudgets changes nothing.
func (l *Loader) ChooseBudgets(batches, most int) {
	if !l.opt.flat() {
		return
	}
	opt, largest := l.dealt(), l.largest
	grain := 8
	for largest > grain*grains {
		grain *= 2
	}
	counts := make([]int, (largest+grain-1)/grain+1) // histogram: batches by their number of grains
	seen := 0
	for epoch := 0; seen < max(batches, 1); epoch++ {
		if epoch > 0 && epoch*l.Len() > dealtRows {
			counts[len(counts)-1]++
			break
		}
		s := l.preview(epoch)
		for p := range opt.batches(s.dealt.len()) {
			counts[(s.count(opt.in(s, p))+grain-1)/grain]++
			seen++
		}
		if !s.whole { // later batches may be larger
			counts[len(counts)-1]++
			break
		}
	}
	for counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	unit := max(budgetUnit((len(counts)-1)*grain), grain)
	budgets := placeBudgets(counts, grain, unit, most, max(savingOfABudget, batchesABudget/float64(max(batches, 1))))
	for i, b := range budgets {
		budgets[i] = min(b, opt.BatchSize*opt.T)
	}
	l.budgets = slices.Compact(budgets)
}

// UseBudgets replaces the budgets. They must ascend, and the largest budget must stay the same.
func (l *Loader) UseBudgets(budgets []int) {
	if len(budgets) == 0 || !slices.IsSorted(budgets) || budgets[len(budgets)-1] != l.budgets[len(l.budgets)-1] {
		panic(fmt.Sprintf("token budgets %v do not replace %v", budgets, l.budgets))
	}
	l.budgets = budgets
}

// budgetUnit returns the number that budgets of at most the given number of tokens are multiples of: the rows of a GEMM
// or attention tile on GPUs, if batches are large enough for this rounding to cost next to nothing.
func budgetUnit(tokens int) int {
	unit := 128
	switch {
	case tokens <= 1024:
		unit = 8
	case tokens <= 8192:
		unit = 64
	}
	for tokens > unit*budgetSizes {
		unit *= 2
	}
	return unit
}

// placeBudgets chooses at most `most` budgets, multiples of unit, that minimise the number of computed tokens.
// counts[i] is the number of batches of i grains of tokens. Each further budget saves at least the share `saving` of
// the computed tokens. unit is a multiple of grain.
func placeBudgets(counts []int, grain, unit, most int, saving float64) []int {
	size := func(grains int) int { return (grains*grain + unit - 1) / unit }
	n := size(len(counts) - 1)
	fit := make([]int, n+1) // fit[i] counts the batches of at most i units
	for i, batches := range counts {
		fit[size(i)] += batches
	}
	for i := 1; i <= n; i++ {
		fit[i] += fit[i-1]
	}
	// computed[i] is the number of units computed for all batches of at most i units with k budgets, the largest of
	// which is i; from[k][i] is the next smaller budget.
	computed := make([]int, n+1)
	for i := range computed {
		computed[i] = i * fit[i]
	}
	from := [][]int{make([]int, n+1)}
	for len(from) < most {
		with, below := slices.Clone(computed), slices.Clone(from[len(from)-1])
		for i := 1; i <= n; i++ {
			for j := range i {
				if c := computed[j] + i*(fit[i]-fit[j]); c < with[i] {
					with[i], below[i] = c, j
				}
			}
		}
		if float64(computed[n]-with[n]) < saving*float64(with[n]) {
			break
		}
		computed, from = with, append(from, below)
	}
	var budgets []int
	for k, at := len(from)-1, n; at > 0; k-- {
		budgets = append(budgets, at*unit)
		at = from[k][at]
	}
	slices.Reverse(budgets)
	return budgets
}

// largest returns the tokens of the largest batch that any order of the rows can make.
func (o Options) largest(all Rows) int {
	count := make([]int, o.T+1) // count[n] is the number of rows of n tokens
	for i := range all.Len() {
		count[all.Length(i)]++
	}
	left, tokens := o.BatchSize, 0
	for n := o.T; n > 0 && left > 0; n-- {
		rows := min(count[n], left)
		left, tokens = left-rows, tokens+rows*n
	}
	unit := budgetUnit(tokens)
	return min((tokens+unit-1)/unit*unit, o.BatchSize*o.T)
}

// budget returns the smallest token budget that holds a batch of the given number of tokens.
func (l *Loader) budget(tokens int) int {
	for _, b := range l.budgets {
		if tokens <= b {
			return b
		}
	}
	panic(fmt.Sprintf("a batch of %d tokens, the budgets %v were chosen for a shorter run", tokens, l.budgets))
}

// Efficiency returns the share of an epoch's computed tokens that belong to rows and are not padding, from 0 to 1. For
// a stream it covers the first window.
func (l *Loader) Efficiency(epoch int) float64 {
	s := l.preview(epoch)
	opt := l.dealt()
	batches := opt.batches(s.dealt.len())
	computed := float64(batches) * float64(l.budgets[len(l.budgets)-1])
	if l.opt.flat() {
		computed = 0
		for p := range batches {
			computed += float64(l.budget(s.count(opt.in(s, p))))
		}
	}
	return math.Min(float64(s.tokens)/computed, 1)
}
