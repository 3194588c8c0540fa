package main

import (
	"fmt"
	"strconv"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train"
)

// regret is the source of what init writes of ranks, alpha and target modules.
const regret = "LoRA Without Regret, Schulman et al. 2025"

// Ranks that init writes. Heads and preferences keep the least: their rows hold a bit or a few each.
const (
	leastRank = 16
	mostRank  = 128
)

// learnsText reports whether the goal trains tokens of text, about one bit each.
func (o *initOptions) learnsText() bool { return o.goal != goalPairs && headGoals[o.goal].task == "" }

// rankByData returns the rank whose adapter has as many numbers as the rows have trained tokens, from leastRank to
// mostRank. A trained model holds about two bits in a number, and a token is worth about one bit.
func (ch *choice) rankByData(o *initOptions) int {
	rank := leastRank
	if !o.learnsText() || ch.found.tokens == 0 {
		return rank
	}
	each := ch.plan.TrainedParameters / int64(ch.spec.LoRA.R) // numbers of a rank
	for rank < mostRank && each > 0 && each*int64(rank) < ch.found.trainedTokens {
		rank *= 2
	}
	return rank
}

// rankLine explains the rank.
func (ch *choice) rankLine(o *initOptions) string {
	f, numbers := ch.found, ch.plan.TrainedParameters
	switch {
	case !o.learnsText() || f.tokens == 0:
		return "rank of the update: 16 for a task, 64 and more for new knowledge; a higher rank takes more memory."
	case numbers >= f.trainedTokens:
		return fmt.Sprintf("rank of the update: its %s numbers hold the %s trained tokens of the rows, about a bit "+
			"each (%s).", words.Count(int(numbers)), words.Count(int(f.trainedTokens)), regret)
	}
	return fmt.Sprintf("rank of the update: its %s numbers are fewer than the %s trained tokens of the rows; a higher "+
		"rank may learn more and takes more memory (%s).", words.Count(int(numbers)),
		words.Count(int(f.trainedTokens)), regret)
}

// rate returns the learning rate of supervised fine-tuning with LoRA: by the model's size where that was fitted, to two
// digits.
func (f *looked) rate() float64 {
	fitted := train.RateBySize(f.family, f.hidden)
	if fitted == 0 {
		return 2e-4
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(fitted, 'e', 1, 64), 64)
	if err != nil {
		panic(err) // FormatFloat wrote it
	}
	return rounded
}

// rateLine explains the learning rate of supervised fine-tuning.
func (f *looked) rateLine() string {
	if train.RateBySize(f.family, f.hidden) == 0 {
		return "LoRA usually wants 1e-4 to 1e-3; lower it if the loss jumps. trainer sweep compares several."
	}
	return fmt.Sprintf("what Tinker's cookbook fits for %s of width %d; lower it if the loss jumps. trainer lr-find "+
		"tries rates on these rows.", f.family, f.hidden)
}
