package infer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
)

// BySource is the value of EvalReport.By if the groups are the data's sources.
const BySource = "source"

// maxGroups is the most groups of a table: a field with more values does not classify rows.
const maxGroups = 1000

// GroupLoss is the loss over the rows of one group.
type GroupLoss struct {
	Name          string     `json:"name"`
	Rows          int        `json:"rows"`
	Tokens        int64      `json:"tokens"`
	TrainedTokens int64      `json:"trained_tokens"`
	NLL           float64    `json:"nll"`
	Loss          float64    `json:"eval_loss"`
	StdErr        float64    `json:"eval_loss_stderr,omitempty"`
	Perplexity    Perplexity `json:"perplexity"`
}

// tally accumulates the losses of rows.
type tally struct {
	rows                 int
	tokens, trained      int64
	nll                  float64
	squares, cross, nlls float64 // sums of t^2, t*l and l^2 over rows of t trained tokens and loss l
}

func (t *tally) add(r RowLoss) {
	n := float64(r.Trained)
	t.rows++
	t.tokens, t.trained, t.nll = t.tokens+r.Tokens, t.trained+r.Trained, t.nll+r.NLL
	t.squares, t.cross, t.nlls = t.squares+n*n, t.cross+n*r.NLL, t.nlls+r.NLL*r.NLL
}

// stdErr returns the standard error of the mean loss per token. Tokens of one row are not independent, so rows are the
// sampling unit: the mean is a ratio of sums over n rows, and its standard error is sqrt(n/(n-1) * sum (l - mean*t)^2)
// / sum t (Cochran, Sampling Techniques, chapter 6).
func (t *tally) stdErr() float64 {
	if t.rows < 2 || t.trained == 0 {
		return 0
	}
	n, mean := float64(t.rows), t.nll/float64(t.trained)
	residual := max(0, t.nlls-2*mean*t.cross+mean*mean*t.squares)
	return math.Sqrt(n/(n-1)*residual) / float64(t.trained)
}

// tables accumulates the losses of rows, in total and by group.
type tables struct {
	by    string
	of    func(row int) string // returns a row's group; nil = no groups
	all   tally
	named map[string]*tally
}

// ErrNoField is wrapped by the error for a row without the field by which losses are grouped.
var ErrNoField = errors.New("evaluate by field")

func newTables(ctx context.Context, s *session.Session, set *dataset.Set, o EvalOptions) (*tables, error) {
	t := &tables{named: map[string]*tally{}}
	if o.By != "" {
		held := o.Data.Held()
		groups, err := set.ValGroups(o.By, func(see func(dataset.Item) error) error {
			return s.EachRow(ctx, held, see)
		})
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrNoField, o.By, err)
		}
		t.by, t.of = o.By, func(row int) string { return groups[row] }
		if n := len(slices.Compact(slices.Sorted(slices.Values(groups)))); n > maxGroups {
			return nil,
				fmt.Errorf(
					"evaluate by field %q: it has %d values, more than %d: choose a field that names a kind of row",
					o.By, n, maxGroups)
		}
		return t, nil
	}
	for i := range set.Val.Len() {
		if set.ValSource(i) != set.ValSource(0) {
			t.by, t.of = BySource, set.ValSource
			break
		}
	}
	return t, nil
}

func (t *tables) add(row int, of RowLoss) {
	t.all.add(of)
	if t.of == nil {
		return
	}
	name := t.of(row)
	if t.named[name] == nil {
		t.named[name] = &tally{}
	}
	t.named[name].add(of)
}

// groups returns the groups sorted by name.
func (t *tables) groups() []GroupLoss {
	var all []GroupLoss
	for _, name := range slices.Sorted(maps.Keys(t.named)) {
		g := t.named[name]
		loss := g.nll / float64(max(1, g.trained))
		all = append(all, GroupLoss{
			Name: name, Rows: g.rows, Tokens: g.tokens, TrainedTokens: g.trained,
			NLL: g.nll, Loss: loss, StdErr: g.stdErr(), Perplexity: Perplexity(math.Exp(loss)),
		})
	}
	return all
}
