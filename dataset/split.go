package dataset

import (
	"fmt"
	"math"
)

// split holds out round(part * rows) rows, at least one, chosen by the seed; both sides stay in file order.
func split(rows []Row, part float64, seed uint64) (train, val []Row, err error) {
	n := max(int(math.Round(part*float64(len(rows)))), 1)
	if n >= len(rows) {
		return nil, nil, fmt.Errorf("val_split %v of %d rows leaves no row to train on", part, len(rows))
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	shuffle(newRandom(seed, streamSplit), order)
	held := make([]bool, len(rows))
	for _, i := range order[:n] {
		held[i] = true
	}
	for i, row := range rows {
		if held[i] {
			val = append(val, row)
		} else {
			train = append(train, row)
		}
	}
	return train, val, nil
}
