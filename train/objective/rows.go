package objective

import (
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

// Preferences tells whether an objective learns from preferences, so that rows which could be such are read as such
// (dataset.Config.Preferences).
func Preferences(o Objective) bool {
	_, ok := o.(preferring)
	return ok
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
	}
	return ""
}
