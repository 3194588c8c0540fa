package infer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train/objective"
)

// likelihoodTokens is the least number of tokens of a batch whose likelihoods are computed.
const likelihoodTokens = 512

// LogLikelihoods returns the sum of log-probabilities over each row's trained tokens. It releases the memory of earlier
// texts first. A sampler keeps its own memory and computes token by token, which is slower.
func (g *Generator) LogLikelihoods(ctx context.Context, rows []dataset.Row,
	progress func(done, of int)) ([]float64, error) {
	if g.shared {
		return g.oneByOne(ctx, rows, progress)
	}
	if g.engine != nil {
		if err := g.engine.release(); err != nil {
			return nil, err
		}
	}
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.IDs))
	}
	if even := (longest + 7) / 8 * 8; even <= g.Base.Config.MaxPositions {
		longest = even
	}
	T := min(max(longest, likelihoodTokens), max(longest, g.Base.Config.MaxPositions))
	loader, err := dataset.NewLoader(dataset.Memory(rows), dataset.Options{BatchSize: 1, T: T, Longest: longest,
		Packing: true})
	if err != nil {
		return nil, err
	}
	sums := make([]float64, len(rows))
	by := objective.Of(objective.Default, objective.Config{})
	if _, err := evaluate(ctx, g.Session, loader, by, func(row int, of RowLoss) {
		sums[row] = -of.NLL
	}, progress); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(sums, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }); i >= 0 {
		return nil, g.BlameNotFinite(ctx, fmt.Errorf("the log-likelihood of row %d is %v: %w", i,
			sums[i], ErrNotFinite))
	}
	return sums, nil
}

// oneByOne computes the likelihoods in the memory of generation: it feeds each row token by token, from the first
// trained token on.
func (g *Generator) oneByOne(ctx context.Context, rows []dataset.Row, progress func(done, of int)) ([]float64, error) {
	sums := make([]float64, len(rows))
	for i, r := range rows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		from := slices.IndexFunc(r.Labels, func(l int32) bool { return l != dataset.Ignore })
		if from < 1 || len(r.IDs) > g.engine.MaxLen() {
			return nil, fmt.Errorf("%s: %d tokens, of them trained from %d on, exceed the memory for %d", r.Source,
				len(r.IDs), from, g.engine.MaxLen())
		}
		logits, err := g.engine.readTokens(r.IDs[:from], 0)
		for k := from; err == nil && k < len(r.IDs); k++ {
			if r.Labels[k] != dataset.Ignore {
				sums[i] += logprob(logits, r.IDs[k])
			}
			if k+1 < len(r.IDs) {
				logits, err = g.engine.readTokens(r.IDs[k:k+1], k)
			}
		}
		if err != nil {
			return nil, err
		}
		if math.IsNaN(sums[i]) || math.IsInf(sums[i], 0) {
			return nil, fmt.Errorf("%s: the log-likelihood is %v: %w", r.Source, sums[i], ErrNotFinite)
		}
		if progress != nil {
			progress(i+1, len(rows))
		}
	}
	return sums, nil
}

// HasChatTemplate reports whether the adapter or the model has its own chat template.
func (g *Generator) HasChatTemplate() (bool, error) {
	sources, err := chat.FindFor(g.Base.Folder, g.adapterDir)
	if err != nil {
		return false, err
	}
	return len(sources.Templates) > 0, nil
}
