package train

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
)

// sampledState is what a checkpoint keeps of windows that are sampled.
type sampledState struct {
	Loader json.RawMessage `json:"loader"`
	Dealt  int             `json:"dealt,omitempty"`
	// Rows are the present answers, where they are dealt again.
	Rows map[int]sampledRow `json:"rows,omitempty"`
	// Windows is how many windows of the loader the present answers took; 0 = one.
	Windows int `json:"windows,omitempty"`
}

// sampledRow is a group of answers in JSON. A number that is not known is null.
type sampledRow struct {
	IDs       []int32      `json:"ids"`
	Labels    []int32      `json:"labels"`
	Borders   []int32      `json:"borders"`
	Prefix    bool         `json:"prefix,omitempty"`
	Old       []*float32   `json:"old"`
	Names     []string     `json:"names"`
	Rewards   [][]*float64 `json:"rewards"`
	Truncated []bool       `json:"truncated"`
}

// State returns the place before the next window. Where answers are dealt again it holds them.
func (w *sampledWindows) State() Place {
	s, at := sampledState{Dealt: w.dealt}, w.loaderWindows.State()
	if w.dealt > 0 {
		at = w.before
		if w.windows > 1 {
			s.Windows = w.windows
		}
		s.Rows = map[int]sampledRow{}
		for row, of := range w.rows {
			s.Rows[row] = saveRow(of)
		}
	}
	s.Loader = at.State
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("a place that JSON cannot hold: %v", err))
	}
	at.State = text
	return at
}

// Restore moves to a place.
func (w *sampledWindows) Restore(state json.RawMessage) error {
	var s sampledState
	if err := jsonerr.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("sampled answers: %w", jsonerr.Unplaced(err))
	}
	if err := w.loaderWindows.Restore(s.Loader); err != nil {
		return err
	}
	w.before = w.loaderWindows.State()
	w.dealt, w.rows, w.step, w.windows = s.Dealt, nil, dataset.Step{}, max(s.Windows, 1)
	if s.Dealt > 0 {
		w.rows = map[int]dataset.Row{}
		for row, of := range s.Rows {
			w.rows[row] = of.row()
		}
	}
	return nil
}

// saveRow returns a group of answers in JSON's types.
func saveRow(row dataset.Row) sampledRow {
	r := row.Rollout
	s := sampledRow{IDs: row.IDs, Labels: row.Labels, Borders: row.Borders, Prefix: row.Prefix, Names: r.Names,
		Truncated: r.Truncated, Rewards: nullable(r.Rewards)}
	for _, x := range r.Old {
		s.Old = append(s.Old, orNull(x))
	}
	return s
}

// row returns the group of answers.
func (s sampledRow) row() dataset.Row {
	r := &dataset.Rollout{Names: s.Names, Truncated: s.Truncated, Rewards: numbered(s.Rewards)}
	for _, x := range s.Old {
		r.Old = append(r.Old, orNaN(x))
	}
	return dataset.Row{IDs: s.IDs, Labels: s.Labels, Borders: s.Borders, Prefix: s.Prefix, Rollout: r}
}

// nullable returns numbers for JSON: nil stands for NaN.
func nullable(all [][]float64) (lists [][]*float64) {
	for _, list := range all {
		own := make([]*float64, len(list))
		for i, x := range list {
			own[i] = orNull(x)
		}
		lists = append(lists, own)
	}
	return lists
}

// numbered returns the numbers of nullable.
func numbered(all [][]*float64) (lists [][]float64) {
	for _, list := range all {
		own := make([]float64, len(list))
		for i, x := range list {
			own[i] = orNaN(x)
		}
		lists = append(lists, own)
	}
	return lists
}

func orNull[F float32 | float64](x F) *F {
	if x != x {
		return nil
	}
	return &x
}

func orNaN[F float32 | float64](x *F) F {
	if x == nil {
		return F(math.NaN())
	}
	return *x
}
