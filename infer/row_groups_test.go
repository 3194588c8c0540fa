package infer

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/objective"
)

// TestGroupsLoseAsTheirSequences: the loss of a group is the sum of what its sequences lose by themselves, end to end,
// packed and padded: no sequence attends to another of its group, and each has positions of its own.
func TestGroupsLoseAsTheirSequences(t *testing.T) {
	g := generator(t, golden.StoriesDir(t), "")
	var groups, singles []dataset.Row
	for i := range 12 {
		var group dataset.Row
		for k := range 1 + i%4 {
			if k > 0 {
				group.Borders = append(group.Borders, int32(len(group.IDs)))
			}
			var one dataset.Row
			for at := range 3 + (5*i+7*k)%17 {
				id := int32(3 + (31*i+57*k+13*at)%500)
				one.IDs, one.Labels = append(one.IDs, id), append(one.Labels, id)
			}
			one.Labels[0] = dataset.Ignore
			singles = append(singles, one)
			group.IDs, group.Labels = append(group.IDs, one.IDs...), append(group.Labels, one.Labels...)
		}
		groups = append(groups, group)
	}
	losses := func(rows []dataset.Row, opt dataset.Options) []RowLoss {
		t.Helper()
		loader, err := dataset.NewLoader(dataset.Memory(rows), opt)
		if err != nil {
			t.Fatal(err)
		}
		each := make([]RowLoss, len(rows))
		by := objective.Of(objective.Default, objective.Config{})
		tell := func(row int, of RowLoss) { each[row] = of }
		sum, err := evaluate(context.Background(), g.Session, loader, by, tell, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := sum.Counts(); n.Groups != int64(len(rows)) || n.Sequences != int64(len(singles)) {
			t.Errorf("%d groups of %d sequences, want %d of %d", n.Groups, n.Sequences, len(rows), len(singles))
		}
		return each
	}
	alone := losses(singles, dataset.Options{BatchSize: 1, T: 24})
	for name, opt := range map[string]dataset.Options{
		"end to end": {BatchSize: 3, T: 96, Longest: 24},
		"packed":     {BatchSize: 2, T: 96, Longest: 24, Packing: true},
		"padded":     {BatchSize: 2, T: 96, Longest: 24, Padded: true},
	} {
		left := slices.Clone(alone)
		for i, got := range losses(groups, opt) {
			var want RowLoss
			for _, one := range left[:groups[i].Sequences()] {
				want = RowLoss{want.NLL + one.NLL, want.Tokens + one.Tokens, want.Trained + one.Trained}
			}
			left = left[groups[i].Sequences():]
			if math.Abs(got.NLL-want.NLL) > 1e-7*want.NLL || got.Tokens != want.Tokens || got.Trained != want.Trained {
				t.Errorf("%s: group %d loses %+v, its sequences %+v", name, i, got, want)
			}
		}
	}
}
