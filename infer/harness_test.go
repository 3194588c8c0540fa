package infer

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

func stories(t testing.TB) *session.Base {
	t.Helper()
	b, err := session.OpenBase(context.Background(), golden.StoriesDir(t), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// network is the base model alone.
func network(t testing.TB, b *session.Base, float kernel.DType) session.Network {
	t.Helper()
	build, err := families.For(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	nw := session.Network{Config: b.Config, Build: build, Float: float}
	nw.Keep(b)
	return nw
}

// bound is a logits step with memory, loaded.
func (l *logitsStep) bound(t testing.TB, b *session.Base, on graph.Machine) *logitsRun {
	t.Helper()
	m, err := session.Hold(on, func(m graph.Store) error {
		return b.Load(context.Background(), l.Net, m, 2)
	}, &l.Program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r, err := l.bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func numbers(x kernel.Tensor) []float64 {
	if x.DType == kernel.F64 {
		return x.F64()
	}
	return golden.Numbers(x.F32())
}

// oneSequence is a step of T tokens of one sequence of at most maxLen, and R rows of logits.
func oneSequence(nw session.Network, T, R, maxLen int, on graph.Machine) (*logitsStep, error) {
	return newLogitsStep(nw, "", logitsShape{tokens: T, pieces: 1, rows: R, slots: 1, maxLen: maxLen}, on)
}

// generateIDs continues token ids to the number that the options say, whatever ends a text.
func (g *Generator) generateIDs(ctx context.Context, prompt []int32, o GenerateOptions) (ids []int32, err error) {
	if err := g.prepare(ctx, len(prompt)+o.MaxTokens); err != nil {
		return nil, err
	}
	if err := g.engine.start(0, -1, prompt, nil, &stopper{}, o); err != nil {
		return nil, err
	}
	return ids, g.engine.each(ctx, func(t Token) { ids = append(ids, t.ID) })
}

// logitsAfter are the logits after ids, all but the last tokens of which are a prompt, and those one by one.
func (g *Generator) logitsAfter(t testing.TB, ids []int32, last int) (rows [][]float32) {
	t.Helper()
	if err := g.prepare(context.Background(), len(ids)); err != nil {
		t.Fatal(err)
	}
	run, at := g.engine.prefill[len(g.engine.prefill)-1], 0
	take := func(run *logitsRun, part []int32) {
		got, err := run.next(piece{start: at, ids: part, adapter: -1})
		if err != nil {
			t.Fatal(err)
		}
		at += len(part)
		rows = append(rows, slices.Clone(got[0]))
	}
	for from := len(ids) - last; at < from; {
		rows = nil
		take(run, ids[at:min(at+run.step.tokens, from)])
	}
	for at < len(ids) {
		take(g.engine.decode[len(g.engine.decode)-1], ids[at:at+1])
	}
	return rows
}

// evaluatorOf evaluates rows of at most longest tokens on the CPU, in float32.
func evaluatorOf(t *testing.T, b *session.Base, longest int) *Evaluator {
	t.Helper()
	on := graph.NewCPU(0)
	step, err := PlanEval(network(t, b, kernel.F32), session.Shape{Tokens: longest, Sequences: 1, MaxLen: longest},
		objective.Of(objective.Default, objective.Config{}), on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error {
		return b.Load(context.Background(), step.Net, m, on.Workers())
	}, &step.Program)
	if err != nil {
		t.Fatal(err)
	}
	v, err := step.Bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// rowLoss is the sum of negative log-likelihoods of a row, padded to longest, and its trained tokens.
func rowLoss(t *testing.T, v *Evaluator, longest int, ids, labels []int32) (nll float64, trained int) {
	t.Helper()
	b := dataset.Batch{IDs: make([]int32, longest), Labels: make([]int32, longest), Positions: make([]int32, longest),
		CuSeqlens: []int32{0, int32(longest)}}
	for k := range b.Labels {
		b.Labels[k], b.Positions[k] = dataset.Ignore, int32(k)
	}
	copy(b.IDs, ids)
	copy(b.Labels, labels)
	v.batch.Fill(b, session.Part{})
	v.data.Scale(1)
	trained = v.data.Fill(b, session.Part{})
	each, err := v.losses()
	if err != nil {
		t.Fatal(err)
	}
	return total(each), trained
}
