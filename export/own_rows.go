package export

import "math"

// OwnRows are rows that the adapter's run held out, or trained on where it held out none. Its zero value has no rows.
type OwnRows struct {
	Data    string    // the data set, and which of its rows these are
	IDs     [][]int32 // the tokens of each row
	Labels  [][]int32 // for each token itself where it is trained, below 0 where it is not
	Missing string    // why there are no rows; "" = nobody asked for them
}

// OwnDrift is how far what was written is from base and adapter over rows of the adapter's run. Losses are means over
// the trained tokens.
type OwnDrift struct {
	Data       string  `json:"data"`
	Rows       int     `json:"rows"`
	Tokens     int     `json:"trained_tokens"`
	Loss       float64 `json:"loss"` // of base and adapter
	MergedLoss float64 `json:"merged_loss"`
	BaseLoss   float64 `json:"base_loss"`
	// Agree is the share of the tokens for which the most likely token is the one of base and adapter.
	Agree     float64 `json:"greedy_agreement"`
	BaseAgree float64 `json:"base_greedy_agreement"` // likewise of the base without the adapter
}

// guess is what a model makes of a trained token.
type guess struct {
	nll    float64
	greedy int32 // the token that it finds most likely
}

func guessOf(x []float32, label int32) guess {
	most := 0
	for i, v := range x {
		if v > x[most] {
			most = i
		}
	}
	return guess{logSum(x) - float64(x[label]), int32(most)}
}

// ownDrift compares what three models make of a run's rows; nil = there are no rows with trained tokens.
func ownDrift(rows OwnRows, with, merged, base []guess) *OwnDrift {
	if len(with) == 0 {
		return nil
	}
	d := &OwnDrift{Data: rows.Data, Rows: len(rows.IDs), Tokens: len(with)}
	d.Loss, _ = over(with, with)
	d.MergedLoss, d.Agree = over(merged, with)
	d.BaseLoss, d.BaseAgree = over(base, with)
	return d
}

// over are the mean loss of guesses, and the share of them that is as another model's.
func over(g, other []guess) (loss, agree float64) {
	same := 0
	for i := range g {
		loss += g[i].nll
		if g[i].greedy == other[i].greedy {
			same++
		}
	}
	n := math.Max(1, float64(len(g)))
	return loss / n, float64(same) / n
}
