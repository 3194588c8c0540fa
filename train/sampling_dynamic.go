package train

import (
	"context"
	"slices"

	"github.com/tierlora/tierlora/dataset"
)

// resample replaces groups whose answers all have one reward, which teach nothing, by groups of further prompts: it
// samples windows of the loader until none is left, or max_num_gen_batches windows were sampled (DAPO's dynamic
// sampling). A group of a further window that finds no place is dropped. It returns how many groups without a signal
// are left and how many were replaced. All ranks replace the same groups.
func (w *sampledWindows) resample(step *dataset.Step) (still, replaced int, err error) {
	places, err := w.stillPlaces(*step)
	for err == nil && len(places) > 0 && w.windows < w.MaxNumGenBatches {
		var next dataset.Step
		if next, err = w.loaderWindows.Next(); err != nil {
			break
		}
		w.windows++
		var groups []dataset.Row
		if groups, err = w.groups(context.Background(), w.askedIn(next)); err != nil {
			break
		}
		step.Progress = next.Progress
		for _, group := range groups {
			var teaches bool
			if teaches, err = w.Teaches(group.Rollout); err != nil {
				break
			}
			i := slices.IndexFunc(places, func(p groupPlace) bool { return teaches && w.fits(*step, p, group) })
			if i < 0 {
				continue
			}
			w.rows[places[i].row] = group
			places, replaced = slices.Delete(places, i, i+1), replaced+1
		}
	}
	return len(places), replaced, err
}

// groupPlace is the place of a group in a window: the index of its micro-batch and the row of its prompt.
type groupPlace struct{ batch, row int }

// stillPlaces returns the places of a window whose groups teach nothing.
func (w *sampledWindows) stillPlaces(step dataset.Step) (places []groupPlace, err error) {
	for i, b := range step.All {
		for _, row := range b.Rows {
			teaches, err := w.Teaches(w.rows[row].Rollout)
			if err != nil {
				return nil, err
			}
			if !teaches {
				places = append(places, groupPlace{i, row})
			}
		}
	}
	return places, nil
}

// fits reports whether a micro-batch has enough tokens for a group in a place of it.
func (w *sampledWindows) fits(step dataset.Step, at groupPlace, group dataset.Row) bool {
	tokens := len(group.IDs)
	for _, row := range step.All[at.batch].Rows {
		if row != at.row {
			tokens += len(w.rows[row].IDs)
		}
	}
	return tokens <= slices.Max(w.Shape().Budgets)
}

// skipWindows deals the further windows of answers that a checkpoint has, so that the loader stands behind them.
func (w *sampledWindows) skipWindows(step *dataset.Step) error {
	for range w.windows - 1 {
		next, err := w.loaderWindows.Next()
		if err != nil {
			return err
		}
		step.Progress = next.Progress
	}
	return nil
}
