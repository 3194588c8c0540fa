package train

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
)

// Evaluate is the loss of a spec's base model, with the adapter of a folder unless that is empty, over the
// validation rows of the spec's data, or all rows where it has none.
func Evaluate(ctx context.Context, s Spec, adapterDir string, env Env) (EvalReport, error) {
	on, err := openMachine(s.Device, s.Training.Precision, env)
	if err != nil {
		return EvalReport{}, err
	}
	defer on.Close() //nolint:errcheck // the report is what matters
	b, err := openBase(ctx, s.BaseModel, env)
	if err != nil {
		return EvalReport{}, err
	}
	defer b.close() //nolint:errcheck // read only
	nw, err := networkOf(s, b)
	if err != nil {
		return EvalReport{}, err
	}
	saved, err := nw.withAdapter(adapterDir)
	if err != nil {
		return EvalReport{}, err
	}
	if saved != nil {
		defer saved.Close() //nolint:errcheck // read only
	}
	set, _, err := loadData(ctx, s.Dataset, s.Seed, b, env)
	if err != nil {
		return EvalReport{}, err
	}
	if err := checkIDs(set, b.config.VocabSize); err != nil {
		return EvalReport{}, err
	}
	if len(set.Val) == 0 {
		set.Val = set.Train
	}
	loader, err := set.ValLoader(s.Training.BatchSize)
	if err != nil {
		return EvalReport{}, err
	}
	report := EvalReport{Data: s.Dataset.Path, Adapter: adapterDir, Rows: loader.Len()}
	began := time.Now()
	if err := evaluate(ctx, b, nw, saved, loader, on, &report); err != nil {
		return EvalReport{}, err
	}
	report.Loss = report.NLL / float64(report.TrainedTokens)
	report.Perplexity, report.Duration = math.Exp(report.Loss), time.Since(began)
	return report, nil
}

// withAdapter makes the network carry the adapter of a PEFT folder, or none where dir is empty.
func (nw *network) withAdapter(dir string) (*adapter.Saved, error) {
	nw.Adapted = dir != ""
	if !nw.Adapted {
		return nil, nil
	}
	saved, err := adapter.Open(dir)
	if err != nil {
		return nil, err
	}
	nw.Method, nw.Adapter = saved.Method, saved.Config
	nw.Adapter.Dropout = 0 // of training only
	return saved, nil
}

// loadAdapter reads saved into memory; nothing where it is nil.
func loadAdapter(saved *adapter.Saved, t *adapter.Trained, m graph.Store) error {
	if saved == nil {
		return nil
	}
	params, err := t.Snapshot(m)
	if err != nil {
		return err
	}
	if err := saved.Read(params); err != nil {
		return err
	}
	return t.Restore(m, params)
}

func evaluate(ctx context.Context, b *base, nw network, saved *adapter.Saved, loader *dataset.Loader, on graph.Machine, report *EvalReport) error {
	B, T, borders := loader.Shape()
	if T > b.config.MaxPositions {
		return fmt.Errorf("dataset.max_length: sequences of %d tokens are longer than the model's %d positions", T, b.config.MaxPositions)
	}
	step, err := newEvalStep(nw, shape{B * T, borders - 1, T}, on)
	if err != nil {
		return err
	}
	if err := b.check(step.net); err != nil {
		return err
	}
	need, err := graph.Need(step.plan)
	if err != nil {
		return err
	}
	if err := checkRoom(on, need.Total()); err != nil {
		return err
	}
	m, err := on.NewStore(step.plan)
	if err != nil {
		return err
	}
	if err := b.load(ctx, step.net, m, on.Workers()); err != nil {
		return err
	}
	if err := loadAdapter(saved, step.trained, m); err != nil {
		return err
	}
	run, err := on.Bind(step.plan, m)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // the report is what matters
	in, err := bindBatch(m, evalPrefix)
	if err != nil {
		return err
	}
	for batch := range loader.Epoch(0) {
		if err := ctx.Err(); err != nil {
			return err
		}
		in.scale[0] = 1
		report.TrainedTokens += int64(in.fill(batch))
		report.Tokens += int64(batch.Tokens)
		nll, err := in.evaluate(run, step)
		if err != nil {
			return err
		}
		report.NLL += nll
	}
	return nil
}
