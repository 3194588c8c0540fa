package objective

import (
	"context"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/dataset"
)

// preferring is an optional capability of an Objective: it learns from preferences, which are rows of several sequences
// or rows with a label. An objective without it takes single sequences.
type preferring interface {
	// CheckRows refuses rows that the objective has no use for, by the report of a data set.
	CheckRows(r *dataset.Report) error
}

// Prefers reports whether an objective learns from preferences, from targets or from rewards. Its loss is defined for
// such rows alone, and an evaluation of them measures it. The loss of other objectives belongs to single sequences.
func Prefers(o Objective) bool {
	_, ok := o.(preferring)
	return ok
}

// reading is an optional capability of an Objective: it needs the rows of a data set in a form of its own.
type reading interface {
	// Read changes how a data set is read, for micro-batches of so many rows.
	Read(c *dataset.Config, batchSize int)
	// CheckBatch refuses a number of rows of a micro-batch.
	CheckBatch(batchSize int) error
}

// Reading returns the configuration of a data set with what an objective needs of it: rows that could be preferences
// are read as such for an objective that learns from them, and with the targets that it learns from. batchSize is the
// number of rows of a micro-batch.
func Reading(o Objective, c dataset.Config, batchSize int) dataset.Config {
	if a, ok := o.(aiming); ok {
		c.Aim = a.Aim()
	}
	_, prefers := o.(preferring)
	c.Preferences = prefers && (c.Aim.Kind == "" || c.Aim.Kind == dataset.AimMargin)
	if r, ok := o.(reading); ok {
		r.Read(&c, batchSize)
	}
	return c
}

// CheckBatch refuses micro-batches of a number of rows that an objective cannot learn from.
func CheckBatch(o Objective, batchSize int) error {
	if r, ok := o.(reading); ok {
		return r.CheckBatch(batchSize)
	}
	return nil
}

// BatchTerm names the part of an objective's loss that is defined over a micro-batch, such as the negatives of an anchor:
// the same step in smaller micro-batches has another loss. "" = none, and the loss of a step is a sum over its rows. An
// objective has this optional capability by a method of that name.
func BatchTerm(o Objective) string {
	if b, ok := o.(interface{ BatchTerm() string }); ok {
		return b.BatchTerm()
	}
	return ""
}

// SharesPrompts reports whether an objective takes batches in which the sequences of a row continue a common prefix
// (dataset.Batch.Prefixes). Its Filler finds a row's sequences by dataset.Batch.Sequences, which leaves prefixes out,
// and its loss needs only labels of a sequence's own tokens, or finds those of the prefix itself. An objective has this
// optional capability by a method of that name.
func SharesPrompts(o Objective) bool {
	s, ok := o.(interface{ SharesPrompts() bool })
	return ok && s.SharesPrompts()
}

// TakesParts reports whether any part of a row has a loss under an objective, given the part's tokens, labels and
// weights alone. Losses of answers, of targets and of recorded log-probabilities need whole rows. An objective has this
// optional capability by a method takesParts.
func TakesParts(o Objective) bool {
	p, ok := o.(interface{ takesParts() bool })
	return ok && p.takesParts()
}

// aiming is an optional capability of an Objective: it wants something of rows beside their tokens.
type aiming interface {
	// Aim says what.
	Aim() dataset.Aim
}

// checkAimed refuses rows without targets, and rows of several sequences.
func checkAimed(r *dataset.Report, a dataset.Aim) error {
	switch g := r.Groups; {
	case g.Rows > 0:
		return fmt.Errorf("it learns from single texts with a label, and %d rows have several sequences", g.Rows)
	case g.Aimed < r.Kept:
		form := "dataset.format: classification with a text and a label"
		if a.Kind == dataset.AimTokens {
			form = "dataset.format: token_classification with tokens and tags"
		}
		return fmt.Errorf("it learns from labels, and %d of %d rows have none: write %s, with dataset.fields where "+
			"the columns have other names", r.Kept-g.Aimed, r.Kept, form)
	}
	return nil
}

// checking is an optional capability of an Objective: it needs more of a data set than its rows.
type checking interface {
	// CheckData refuses a data set, read with a tokenizer for a model of a vocabulary, that the objective lacks
	// something for.
	CheckData(ctx context.Context, set *dataset.Set, tok dataset.Tokenizer, vocabulary int) error
}

// CheckData refuses a data set that an objective lacks something for, such as a teacher's log-probabilities.
func CheckData(ctx context.Context, o Objective, set *dataset.Set, tok dataset.Tokenizer, vocabulary int) error {
	if c, ok := o.(checking); ok {
		return c.CheckData(ctx, set, tok, vocabulary)
	}
	return nil
}

// CheckRows refuses data whose rows an objective has no use for, training and validation rows alike. name is the
// objective's name in Objectives.
func CheckRows(name string, o Objective, r *dataset.Report) error {
	takes, prefers := o.(preferring)
	for _, part := range []*dataset.Report{r, r.Val} {
		if part == nil {
			continue
		}
		if prefers {
			if err := takes.CheckRows(part); err != nil {
				return fmt.Errorf("training.objective: %s: %s: %w", name, part.Source, err)
			}
			continue
		}
		if what := unsupervised(part.Groups); what != "" {
			return fmt.Errorf("training.objective: %s takes single sequences, and %s has %s (format %s): %s",
				name, part.Source, what, part.Format, strings.Join(part.Supervised(), "; "))
		}
	}
	return nil
}

// unsupervised says what of the rows is not a single sequence without a label; "" = nothing.
func unsupervised(g dataset.GroupReport) string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	switch {
	case g.Most == 2:
		return count(g.Rows, "pair") + " of sequences"
	case g.Rows > 0:
		return fmt.Sprintf("%s of up to %d sequences", count(g.Rows, "row"), g.Most)
	case g.Desirable+g.Undesirable > 0:
		return count(g.Desirable+g.Undesirable, "answer") + " with a label"
	case g.Aimed > 0:
		return count(g.Aimed, "text") + " with a label and no answer"
	}
	return ""
}
