package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// Drift measures how far a merged folder, read back, is from base and adapter unmerged. It compares next-token
// distributions on sample text. KL divergences are means over the tokens in nats.
type Drift struct {
	Tokens     int     `json:"tokens"`
	MaxLogit   float64 `json:"max_logit_difference"`
	MeanKL     float64 `json:"mean_kl"`         // KL(base and adapter, merged model)
	AdapterKL  float64 `json:"adapter_mean_kl"` // KL(base and adapter, base alone): the adapter's effect
	Loss       float64 `json:"loss"`            // loss of base and adapter, the mean over predicted tokens
	MergedLoss float64 `json:"merged_loss"`     //
	BaseLoss   float64 `json:"base_loss"`       //
	// Own compares rows of the adapter's run; nil = there are none.
	Own *OwnDrift `json:"own_rows,omitempty"`
	// Trained is set if the adapter was trained on other weights than it was merged into.
	Trained *Far `json:"trained,omitempty"`
}

// Far compares a merged model with the trained one.
type Far struct {
	MaxLogit float64 `json:"max_logit_difference"`
	MeanKL   float64 `json:"mean_kl"`
	Loss     float64 `json:"loss"` // loss of the trained model
}

// DefaultCheck holds the default sample texts.
var DefaultCheck = []string{
	"Once upon a time there was a little girl who lived near the forest. Every morning she walked to the river to " +
		"look for smooth stones.",
	"Water boils at 100 degrees Celsius at sea level. On a high mountain the pressure is lower, so it boils at a " +
		"lower temperature.",
	"Question: A shop sells pencils at 3 for 60 cents. How much do 7 pencils cost? Answer: One pencil costs 20 " +
		"cents, so 7 cost 140 cents.",
	"def mean(values):\n    \"\"\"Return the arithmetic mean.\"\"\"\n    return sum(values) / len(values)\n",
}

// maxCheck is the number of tokens of a text that are compared.
const maxCheck = 256

// leastEffect is the mean KL divergence, in nats, below which an adapter has no effect that a merge could lose.
const leastEffect = 1e-7

// measure compares the folder with base and adapter, and returns an error if the adapter is lost.
func (m *merging) measure(ctx context.Context, dir string, env session.Env, report *MergeReport) error {
	if m.head != nil {
		return measureHead(ctx, m, dir, env, report)
	}
	rows, notes, err := samplesFor(m.s, m.o.Check, m.o.Own)
	if err != nil {
		return err
	}
	report.Notes = append(report.Notes, notes...)
	if rows.empty() {
		return m.reopen(ctx, dir, env)
	}
	own := m.o.Trained
	if m.o.Original {
		own = nil
	}
	c := comparison{rows: rows, env: env, with: variant{name: m.o.Model, scheme: own, adapter: m.o.openAdapter},
		merged: variant{name: dir}}
	if t := m.o.Trained; t != nil && m.o.Original {
		c.trained = &variant{name: m.o.Model, scheme: t, adapter: m.o.openAdapter}
	}
	d, err := c.drift(ctx)
	if errors.Is(err, session.ErrDoesNotFit) {
		report.Notes = append(report.Notes, doesNotFit(err))
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

func doesNotFit(err error) string {
	why, _, _ := strings.Cut(err.Error(), ";") // the rest concerns training
	return "the logits are not compared: " + why
}

// reopen opens the folder as every command does, for folders that are not compared by computing.
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

// samples are the inputs of a comparison: texts, of which all predicted tokens count, and rows of a run, of which the
// trained tokens count.
type samples struct {
	texts [][]int32
	own   OwnRows
}

func (r samples) empty() bool { return len(r.texts) == 0 && len(r.own.IDs) == 0 }

// samplesFor makes the samples from texts and a run's rows.
func samplesFor(s *session.Session, texts []string, own OwnRows) (rows samples, notes []string, err error) {
	vocab := s.Base.Config.VocabSize
	unknown := func(id int32) bool { return int(id) >= vocab }
	rows.own = own
	if own.Missing != "" && len(texts) > 0 {
		notes = append(notes, "the run's own rows are not compared: "+own.Missing)
	}
	if s.Base.Tokenizer.OnlyNumbers() && len(texts) > 0 {
		return rows, append(notes, "the logits of texts are not compared: the model's folder has no tokenizer"), nil
	}
	for _, text := range texts {
		row := s.Base.Tokenizer.IDs(text, true)
		if slices.ContainsFunc(row, unknown) {
			rows.texts = nil
			return rows,
				append(notes, "the logits of texts are not compared: the tokenizer has ids that the model has no "+
					"embeddings for"), nil
		}
		if len(row) > 1 {
			rows.texts = append(rows.texts, row[:min(len(row), maxCheck, s.Base.Config.MaxPositions)])
		}
	}
	if len(texts) > 0 && len(rows.texts) == 0 {
		return rows, notes, errors.New("the check text has fewer than two tokens")
	}
	return rows, notes, nil
}

// variant is a model to compare.
type variant struct {
	name    string
	scheme  *quant.Config                  // how its linear layers are quantised; nil = as the folder has them
	adapter func() (*adapter.Saved, error) // the adapter; nil = none
	reader  weightReader                   // replaces the folder's numbers; nil = the folder's
	// tokens is the adapter whose tokens the model has; nil = those of adapter.
	tokens func() (*adapter.Saved, error)
}

// weightReader reads elements of the model's tensors by the model's names.
type weightReader interface {
	Float32s(name string, from int, dst []float32) error
}

// comparison compares base and adapter with the written model and with the base alone.
type comparison struct {
	rows         samples
	env          session.Env
	with, merged variant
	trained      *variant // the trained model if it differs from with; nil = it is with
}

func (c comparison) drift(ctx context.Context) (*Drift, error) {
	with, err := c.scores(ctx, c.with)
	if err != nil {
		return nil, err
	}
	merged, err := c.scores(ctx, c.merged)
	if err != nil {
		return nil, fmt.Errorf("read back what was written: %w", err)
	}
	d := &Drift{Tokens: len(with.texts), Loss: with.texts.loss(c.rows.texts),
		MergedLoss: merged.texts.loss(c.rows.texts)}
	d.MaxLogit, d.MeanKL = with.texts.far(merged.texts)
	if c.trained != nil {
		trained, err := c.scores(ctx, *c.trained)
		if err != nil {
			return nil, err
		}
		f := &Far{Loss: trained.texts.loss(c.rows.texts)}
		f.MaxLogit, f.MeanKL = trained.texts.far(merged.texts)
		d.Trained = f
	}
	merged.texts = nil
	base := c.with
	base.adapter, base.tokens = nil, c.with.adapter
	without, err := c.scores(ctx, base)
	if err != nil {
		return nil, err
	}
	_, d.AdapterKL = with.texts.far(without.texts)
	d.BaseLoss = without.texts.loss(c.rows.texts)
	d.Own = ownDrift(c.rows.own, with.own, merged.own, without.own)
	return d, nil
}

// scored holds a model's results: the logits of every predicted token of the texts, and its guesses for the trained
// tokens of a run's rows.
type scored struct {
	texts logits
	own   []guess
}

// logits holds the logits of every predicted token, row by row of the texts.
type logits [][]float32

// scores computes the samples with a model.
func (c comparison) scores(ctx context.Context, v variant) (out scored, err error) {
	env := c.env
	env.Log, env.WithoutWeights = nil, false
	s, err := session.Open(ctx, session.Options{Model: v.name, Device: "cpu"}, env)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if v.reader != nil {
		s.Net.Scheme, s.Net.Stored = nil, nil
	}
	if v.scheme != nil && s.Base.Tensors().Quantised() == 0 {
		s.Net.Scheme = v.scheme
	}
	if v.tokens != nil {
		saved, err := v.tokens()
		if err == nil {
			err = errors.Join(session.UseTokens(s, saved), saved.Close())
		}
		if err != nil {
			return out, err
		}
	}
	if v.adapter != nil {
		saved, err := v.adapter()
		if err != nil {
			return out, err
		}
		if err := s.UseSaved(saved); err != nil {
			return out, err
		}
	}
	longest := 0
	for _, row := range append(slices.Clone(c.rows.texts), c.rows.own.IDs...) {
		longest = max(longest, len(row))
	}
	n, trained, in := s.Net.Declare("", session.Shape{Tokens: longest, Sequences: 1, MaxLen: longest})
	// Rows are computed one at a time.
	in.Real = nil
	// [T,C] [V,C]ᵀ -> [T,V]
	score := n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, s.Net.Hidden(n, in), s.Net.Head(n))
	if cap := s.Net.Config.LogitCap; cap > 0 {
		score = n.Apply(kernel.SoftCap{Cap: cap}, score)
	}
	plan, err := s.On.Compile(n.Builder, score)
	if err != nil {
		return out, fmt.Errorf("plan the comparison of logits: %w", err)
	}
	p := &session.Program{Net: n, Trained: trained, Plan: plan}
	if err := s.CheckFits(p); err != nil {
		return out, err
	}
	memory, err := hold(ctx, s, p, v.reader)
	if err != nil {
		return out, err
	}
	defer func() {
		err = errors.Join(err, memory.Close())
		debug.FreeOSMemory() // frees memory before the next model is loaded
	}()
	batch, err := session.BindBatch(memory, "")
	if err != nil {
		return out, err
	}
	run := func(row []int32, see func(t int, x []float32)) error {
		clear(batch.IDs)
		copy(batch.IDs, row)
		for i := range batch.Positions {
			batch.Positions[i] = int32(min(i, len(row)-1))
		}
		batch.Cu[0], batch.Cu[1] = 0, int32(len(row))
		if err := batch.Put(); err != nil {
			return err
		}
		if err := memory.Runs[0].Run("main"); err != nil {
			return err
		}
		got, err := memory.Runs[0].Read(score)
		if err != nil {
			return err
		}
		width := got.Shape[1]
		for t := range row {
			see(t, got.F32()[t*width:(t+1)*width])
		}
		return ctx.Err()
	}
	for _, row := range c.rows.texts {
		if err := run(row, func(_ int, x []float32) { out.texts = append(out.texts, slices.Clone(x)) }); err != nil {
			return out, err
		}
	}
	for i, row := range c.rows.own.IDs {
		labels := c.rows.own.Labels[i]
		err := run(row, func(t int, x []float32) {
			if t+1 < len(row) && labels[t+1] >= 0 {
				out.own = append(out.own, guessOf(x, labels[t+1]))
			}
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// hold allocates a program's memory and loads a model, with its adapter, from its folder or from a reader.
func hold(ctx context.Context, s *session.Session, p *session.Program, r weightReader) (*session.Memory, error) {
	if r == nil {
		return s.Hold(ctx, p)
	}
	return session.Hold(s.On, func(m graph.Store) error { return p.Net.Load(ctx, r, m, s.On.Workers()) }, p)
}

// far compares two models' logits and returns the largest difference and the mean KL divergence of l from o.
func (l logits) far(o logits) (most, kl float64) {
	for t := range l {
		a, b := logSum(l[t]), logSum(o[t])
		for v := range l[t] {
			x, y := float64(l[t][v]), float64(o[t][v])
			most = math.Max(most, math.Abs(x-y))
			kl += math.Exp(x-a) * ((x - a) - (y - b))
		}
	}
	return most, math.Max(0, kl/float64(max(1, len(l))))
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
	return sum / float64(max(1, n))
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
