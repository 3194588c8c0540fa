package dataset

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/text/chat"
)

// Lay lays rows out as a batch of a Loader of this shape, in its smallest sufficient token budget. rows holds a single
// list if rows lie end to end, else a list for each sequence. pad is the token id of padding. It returns an error if no
// batch of the shape can hold the rows.
func (s Shape) Lay(rows [][]Row, pad int32) (Batch, error) {
	var all Memory
	var sequences [][]int32
	segments, tokens, T := 0, 0, s.T
	for _, list := range rows {
		length, places := 0, []int32{}
		for _, row := range list {
			if len(row.IDs) == 0 || len(row.IDs) != len(row.Labels) {
				return Batch{}, fmt.Errorf("lay out a batch: a row has %d tokens and %d labels", len(row.IDs),
					len(row.Labels))
			}
			if row.Weights != nil && len(row.Weights) != len(row.IDs) {
				return Batch{}, fmt.Errorf("lay out a batch: a row has %d tokens and %d weights", len(row.IDs), len(row.Weights))
			}
			for _, w := range row.Weights {
				if !(w >= 0 && w <= chat.MaxWeight*chat.MaxWeight) {
					return Batch{}, fmt.Errorf("lay out a batch: a weight is %v, want 0 to %d", w, chat.MaxWeight*chat.MaxWeight)
				}
			}
			if row.Rollout != nil {
				answers := row.Sequences()
				if row.Prefix {
					answers--
				}
				if err := row.Rollout.Check(len(row.IDs), answers); err != nil {
					return Batch{}, fmt.Errorf("lay out a batch: %w", err)
				}
			}
			for _, x := range row.Targets {
				if x-x != 0 {
					return Batch{}, fmt.Errorf("lay out a batch: a target is %v, want a finite number", x)
				}
			}
			places = append(places, int32(len(all)))
			all = append(all, row)
			length += len(row.IDs)
			segments += 1 + len(row.Borders)
			if row.Prefix && (!s.Prefixes || len(row.Borders) == 0) {
				return Batch{}, errors.New("lay out a batch: the sequences of a row share a prefix, and the " +
					"batches of this run have none: training.share_prompts was another when the row was written")
			}
			for k := range row.Sequences() {
				from, to := sequenceSpan(row.Borders, k, len(row.IDs))
				if n := to - from; from < 0 || n < 1 || to > len(row.IDs) || row.prefixBefore(k)+n > s.Longest {
					return Batch{}, fmt.Errorf("lay out a batch: a sequence of a row has %d tokens, want 1 to %d", n,
						s.Longest)
				}
			}
		}
		if !s.Flat && length > s.T {
			return Batch{}, fmt.Errorf("lay out a batch: the rows of a sequence have %d tokens, it has room for %d",
				length, s.T)
		}
		sequences, tokens = append(sequences, places), tokens+length
	}
	most := s.Budgets[len(s.Budgets)-1]
	if !s.Flat {
		tokens = most
	}
	if s.Flat && len(rows) != 1 || !s.Flat && len(rows) > s.Sequences || tokens > most {
		return Batch{}, fmt.Errorf("lay out a batch: %d lists of rows of %d tokens, the largest batch has %d "+
			"sequences of %d tokens", len(rows), tokens, s.Sequences, most)
	}
	budget := most
	for i := len(s.Budgets) - 1; i >= 0 && s.Budgets[i] >= tokens; i-- {
		budget = s.Budgets[i]
	}
	if s.Flat {
		T = budget
	}
	padding := budget/T + (budget+s.Longest-1)/s.Longest // the most segments of padding
	b := newBatch(budget, max(s.Borders, segments+padding+1), len(all))
	b.of = all
	b.fill(sequences, T, s.Longest, pad)
	for _, border := range b.CuSeqlens[s.Borders:] {
		if int(border) != budget {
			return Batch{}, fmt.Errorf("lay out a batch: %d segments, the largest batch has %d", segments, s.Borders-1)
		}
	}
	b.CuSeqlens = b.CuSeqlens[:s.Borders]
	if int(b.CuSeqlens[s.Borders-1]) != budget {
		return Batch{}, fmt.Errorf("lay out a batch: %d segments, the largest batch has %d", segments, s.Borders-1)
	}
	return b, nil
}
