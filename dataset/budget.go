package dataset

import (
	"fmt"
	"math"
	"slices"
)

// MaxBudgets is how many token budgets are worth having: a step is planned and captured for each.
const MaxBudgets = 8

// Limits of ChooseBudgets.
const (
	batchesABudget  = 2       // which takes about as long as so many micro-batches: a further budget must save more
	savingOfABudget = 0.005   // and this part of the tokens at least
	budgetSizes     = 512     // different sizes that are looked at, at most
	grains          = 1 << 16 // totals of batches that are counted apart, at most
	dealtRows       = 1 << 26 // rows that are dealt beforehand, at most: some seconds
)

// ChooseBudgets chooses at most most token budgets of a run of so many micro-batches over all ranks, from the batches that
// it will deal: the largest holds the largest of them, or of a run too long to be dealt beforehand the largest that there could be; the
// others lie where they save the most padding. NextWindow must not go further than the epoch that the run ends in. With
// Packing or Padded nothing changes.
func (l *Loader) ChooseBudgets(batches, most int) {
	if !l.opt.flat() {
		return
	}
	opt, largest := l.dealt(), l.largest
	grain := 8
	for largest > grain*grains {
		grain *= 2
	}
	counts := make([]int, (largest+grain-1)/grain+1) // batches of so many grains
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
		if !s.whole { // what comes behind may be larger
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

// UseBudgets replaces the budgets, ascending; the largest must stay.
func (l *Loader) UseBudgets(budgets []int) {
	if len(budgets) == 0 || !slices.IsSorted(budgets) || budgets[len(budgets)-1] != l.budgets[len(l.budgets)-1] {
		panic(fmt.Sprintf("token budgets %v do not replace %v", budgets, l.budgets))
	}
	l.budgets = budgets
}

// budgetUnit is what budgets of at most so many tokens are multiples of: the rows that GEMM and attention tiles have on
// GPUs, where batches are large enough for it to cost next to nothing.
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

// placeBudgets chooses at most most budgets, multiples of unit, where counts[i] batches have i grains of tokens: those with
// which the fewest tokens are computed. Each further one saves at least such a part of them. unit is a multiple of grain.
func placeBudgets(counts []int, grain, unit, most int, saving float64) []int {
	size := func(grains int) int { return (grains*grain + unit - 1) / unit }
	n := size(len(counts) - 1)
	fit := make([]int, n+1) // batches of at most so many units
	for i, batches := range counts {
		fit[size(i)] += batches
	}
	for i := 1; i <= n; i++ {
		fit[i] += fit[i-1]
	}
	// computed[i] is the units computed for all batches of at most i units with k budgets, the largest i; from[k][i] the
	// budget below.
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

// largest is the tokens of the largest batch that there could be, whatever the order.
func (o Options) largest(all Rows) int {
	count := make([]int, o.T+1) // rows of so many tokens
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

// budget is the smallest one that holds a batch.
func (l *Loader) budget(tokens int) int {
	for _, b := range l.budgets {
		if tokens <= b {
			return b
		}
	}
	panic(fmt.Sprintf("a batch of %d tokens, the budgets %v were chosen for a shorter run", tokens, l.budgets))
}

// Efficiency is the part of the tokens computed in an epoch that are rows' and not padding; of a stream, in its first
// window.
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
