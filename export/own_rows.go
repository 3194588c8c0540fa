package export

import "math"

// OwnRows holds rows that the adapter's run held out, or trained on if it held out none. The zero value has no rows.
type OwnRows struct {
	Data    string    // description of the data set and of these rows
	IDs     [][]int32 // the tokens of each row
	Labels  [][]int32 // the token id where a token is trained, below 0 elsewhere
	Missing string    // why there are no rows; "" = they were not requested
}

// OwnDrift compares the written model with base and adapter on rows of the adapter's run. Losses are means over the
// trained tokens.
type OwnDrift struct {
	Data       string  `json:"data"`
	Rows       int     `json:"rows"`
	Tokens     int     `json:"trained_tokens"`
	Loss       float64 `json:"loss"` // loss of base and adapter
	MergedLoss float64 `json:"merged_loss"`
	BaseLoss   float64 `json:"base_loss"`
	// Agree is the share of tokens for which the written model has the same most likely token as base and adapter.
	Agree     float64 `json:"greedy_agreement"`
	BaseAgree float64 `json:"base_greedy_agreement"` // the same for the base without the adapter
}

// guess is a model's prediction of a trained token.
type guess struct {
	nll    float64
	greedy int32 // most likely token
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

// ownDrift compares three models' predictions for a run's rows; nil = no row has trained tokens.
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

// over returns the mean loss of guesses, and the share that agrees with another model's.
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
