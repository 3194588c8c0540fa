package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// Drift is how far a merged folder, read back, is from base and adapter unmerged, over the next-token distributions of
// sample text. KL divergences are means over the tokens, in nats, of base and adapter from the other.
type Drift struct {
	Tokens     int     `json:"tokens"`
	MaxLogit   float64 `json:"max_logit_difference"`
	MeanKL     float64 `json:"mean_kl"`           // of the merged model
	AdapterKL  float64 `json:"adapter_mean_kl"`   // of the base without the adapter: what the adapter does
	Loss       float64 `json:"loss"`              // of base and adapter, mean over the tokens that have a next one
	MergedLoss float64 `json:"merged_loss"`       //
	BaseLoss   float64 `json:"base_loss"`         //
	Trained    *Far    `json:"trained,omitempty"` // where the adapter was trained over other weights than it was added to
}

// Far is a merged model beside what was trained.
type Far struct {
	MaxLogit float64 `json:"max_logit_difference"`
	MeanKL   float64 `json:"mean_kl"`
	Loss     float64 `json:"loss"` // of what was trained
}

// DefaultCheck are sample texts where a user gives none.
var DefaultCheck = []string{
	"Once upon a time there was a little girl who lived near the forest. Every morning she walked to the river to look for smooth stones.",
	"Water boils at 100 degrees Celsius at sea level. On a high mountain the pressure is lower, so it boils at a lower temperature.",
	"Question: A shop sells pencils at 3 for 60 cents. How much do 7 pencils cost? Answer: One pencil costs 20 cents, so 7 cost 140 cents.",
	"def mean(values):\n    \"\"\"Return the arithmetic mean.\"\"\"\n    return sum(values) / len(values)\n",
}

// maxCheck is how many tokens of a text are compared.
const maxCheck = 256

// leastEffect is the mean KL divergence below which an adapter does nothing that can be lost.
const leastEffect = 1e-7

// measure compares the folder with base and adapter, and refuses it where the adapter is lost.
func (m *merging) measure(ctx context.Context, dir string, env session.Env, report *MergeReport) error {
	if m.s.Base.Tokenizer.OnlyNumbers() && len(m.o.Check) > 0 {
		report.Notes = append(report.Notes, "the logits are not compared: the model's folder has no tokenizer")
		return m.reopen(ctx, dir, env)
	}
	var ids [][]int32
	for _, text := range m.o.Check {
		row := m.s.Base.Tokenizer.IDs(text, true)
		if slices.ContainsFunc(row, func(id int32) bool { return int(id) >= m.s.Base.Config.VocabSize }) {
			report.Notes = append(report.Notes, "the logits are not compared: the tokenizer has ids that the model has no embeddings for")
			return m.reopen(ctx, dir, env)
		}
		if len(row) > 1 {
			ids = append(ids, row[:min(len(row), maxCheck, m.s.Base.Config.MaxPositions)])
		}
	}
	if len(ids) == 0 {
		if len(m.o.Check) > 0 {
			return errors.New("the check text has fewer than two tokens")
		}
		return m.reopen(ctx, dir, env)
	}
	own := m.o.Trained
	if m.o.Original {
		own = nil
	}
	d, err := m.drift(ctx, dir, env, ids, own)
	if errors.Is(err, session.ErrDoesNotFit) {
		why, _, _ := strings.Cut(err.Error(), ";") // what follows is for training
		report.Notes = append(report.Notes, "the logits are not compared: "+why)
		return m.reopen(ctx, dir, env)
	}
	if err != nil {
		return err
	}
	report.Drift = d
	if !m.o.AllowLoss && d.AdapterKL > leastEffect && d.MeanKL > (1-leastKept)*d.AdapterKL {
		return &LossError{DType: m.typeText(), Rounding: report.Rounding, Drift: d}
	}
	return nil
}

// reopen opens the folder as every command does, where nothing is computed with it.
func (m *merging) reopen(ctx context.Context, dir string, env session.Env) error {
	s, err := session.Open(ctx, session.Options{Model: dir, Device: "cpu"}, env)
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	net, _, err := s.Net.Declared()
	if err == nil {
		err = s.Base.Check(net)
	}
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	return nil
}

func (m *merging) drift(ctx context.Context, dir string, env session.Env, ids [][]int32, own *quant.Config) (*Drift, error) {
	with, err := m.logits(ctx, m.o.Model, own, true, env, ids)
	if err != nil {
		return nil, err
	}
	merged, err := m.logits(ctx, dir, nil, false, env, ids)
	if err != nil {
		return nil, fmt.Errorf("read back what was written: %w", err)
	}
	d := &Drift{Tokens: with.tokens(), Loss: with.loss(ids), MergedLoss: merged.loss(ids)}
	d.MaxLogit, d.MeanKL = with.far(merged)
	if t := m.o.Trained; t != nil && m.o.Original {
		trained, err := m.logits(ctx, m.o.Model, t, true, env, ids)
		if err != nil {
			return nil, err
		}
		f := &Far{Loss: trained.loss(ids)}
		f.MaxLogit, f.MeanKL = trained.far(merged)
		d.Trained = f
	}
	merged = nil
	without, err := m.logits(ctx, m.o.Model, own, false, env, ids)
	if err != nil {
		return nil, err
	}
	_, d.AdapterKL = with.far(without)
	d.BaseLoss = without.loss(ids)
	return d, nil
}

// logits are the scores of every next token, row by row of the texts.
type logits [][]float32

// logits computes with a model, its linear layers stored under a scheme, with the adapter or without.
func (m *merging) logits(ctx context.Context, name string, scheme *quant.Config, adapted bool, env session.Env, ids [][]int32) (out logits, err error) {
	env.Log, env.WithoutWeights = nil, false
	s, err := session.Open(ctx, session.Options{Model: name, Device: "cpu"}, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if scheme != nil && s.Base.Tensors().Quantised() == 0 {
		s.Net.Scheme = scheme
	}
	if adapted {
		saved, err := m.o.openAdapter()
		if err != nil {
			return nil, err
		}
		s.UseSaved(saved)
	}
	longest := 0
	for _, row := range ids {
		longest = max(longest, len(row))
	}
	n, trained, in := s.Net.Declare("", session.Shape{Tokens: longest, Sequences: 1, MaxLen: longest})
	// One row is computed at a time.
	in.Real = nil
	score := n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, s.Net.Hidden(n, in), s.Net.Head(n)) // [T,C] [V,C]ᵀ -> [T,V]
	if cap := s.Net.Config.LogitCap; cap > 0 {
		score = n.Apply(kernel.SoftCap{Cap: cap}, score)
	}
	plan, err := s.On.Compile(n.Builder, score)
	if err != nil {
		return nil, fmt.Errorf("plan the comparison of logits: %w", err)
	}
	p := &session.Program{Net: n, Trained: trained, Plan: plan}
	if err := s.CheckFits(p); err != nil {
		return nil, err
	}
	memory, err := s.Hold(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, memory.Close())
		debug.FreeOSMemory() // before the next model is loaded
	}()
	batch, err := session.BindBatch(memory, "")
	if err != nil {
		return nil, err
	}
	for _, row := range ids {
		clear(batch.IDs)
		copy(batch.IDs, row)
		for i := range batch.Positions {
			batch.Positions[i] = int32(min(i, len(row)-1))
		}
		batch.Cu[0], batch.Cu[1] = 0, int32(len(row))
		if err := batch.Put(); err != nil {
			return nil, err
		}
		if err := memory.Runs[0].Run("main"); err != nil {
			return nil, err
		}
		got, err := memory.Runs[0].Read(score)
		if err != nil {
			return nil, err
		}
		width := got.Shape[1]
		for t := range row {
			out = append(out, append([]float32(nil), got.F32()[t*width:(t+1)*width]...))
		}
	}
	return out, ctx.Err()
}

func (l logits) tokens() int { return len(l) }

// far compares two models' logits: the largest difference, and the mean KL divergence of l from o.
func (l logits) far(o logits) (most, kl float64) {
	for t := range l {
		a, b := logSum(l[t]), logSum(o[t])
		for v := range l[t] {
			x, y := float64(l[t][v]), float64(o[t][v])
			most = math.Max(most, math.Abs(x-y))
			kl += math.Exp(x-a) * ((x - a) - (y - b))
		}
	}
	return most, math.Max(0, kl/float64(len(l)))
}

// loss is the mean negative log-likelihood of the texts' next tokens.
func (l logits) loss(ids [][]int32) float64 {
	var sum float64
	at, n := 0, 0
	for _, row := range ids {
		for t := range len(row) - 1 {
			sum += logSum(l[at+t]) - float64(l[at+t][row[t+1]])
			n++
		}
		at += len(row)
	}
	return sum / float64(n)
}

func logSum(x []float32) float64 {
	most := math.Inf(-1)
	for _, v := range x {
		most = math.Max(most, float64(v))
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum)
}
