package dataset

import (
	"fmt"
	"math"
	"slices"
)

// split holds out round(part * rows) rows, at least one, chosen by the seed; both sides stay in file order.
func split(rows Rows, part float64, seed uint64) (train, val Rows, err error) {
	n := max(int(math.Round(part*float64(rows.Len()))), 1)
	if n >= rows.Len() {
		return nil, nil, fmt.Errorf("val_split %v of %d rows leaves no row to train on", part, rows.Len())
	}
	order := make([]int32, rows.Len())
	for i := range order {
		order[i] = int32(i)
	}
	shuffle(newRandom(seed, streamSplit), order)
	held := slices.Clone(order[:n])
	slices.Sort(held)
	return subset{Rows: rows, held: held, without: true}, subset{Rows: rows, held: held}, nil
}
