package infer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
)

// likelihoodTokens are those of a batch whose likelihoods are computed, at least.
const likelihoodTokens = 512

// LogLikelihoods are the sums of log-probabilities over each row's trained tokens. The memory of earlier texts is given
// back first.
func (g *Generator) LogLikelihoods(ctx context.Context, rows []dataset.Row, progress func(done, of int)) ([]float64, error) {
	if err := g.release(); err != nil {
		return nil, err
	}
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.IDs))
	}
	if even := (longest + 7) / 8 * 8; even <= g.Base.Config.MaxPositions {
		longest = even
	}
	T := min(max(longest, likelihoodTokens), max(longest, g.Base.Config.MaxPositions))
	loader, err := dataset.NewLoader(dataset.Memory(rows), dataset.Options{BatchSize: 1, T: T, Longest: longest, Packing: true})
	if err != nil {
		return nil, err
	}
	sums := make([]float64, len(rows))
	if _, err := evaluate(ctx, g.Session, loader, func(row int, of RowLoss) { sums[row] = -of.NLL }, progress); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(sums, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }); i >= 0 {
		return nil, g.BlameNotFinite(ctx, fmt.Errorf("the log-likelihood of row %d is %v: %w", i, sums[i], ErrNotFinite))
	}
	return sums, nil
}

// HasChatTemplate tells whether the adapter or the model has a chat template of its own.
func (g *Generator) HasChatTemplate() (bool, error) {
	sources, err := g.templates()
	if err != nil {
		return false, err
	}
	return len(sources.Templates) > 0, nil
}
