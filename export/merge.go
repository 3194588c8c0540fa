// Package export writes what other programs load: models whose weights hold an adapter, adapters in others' formats.
package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// MergeOptions say what Merge writes.
type MergeOptions struct {
	Model       string // a folder, a hub name, or an embedded one
	Adapters    []WeightedAdapter
	Combination string // of several adapters, one of adapter.Combinations; "" = DefaultCombination
	Out         string // the folder
	DType       string // one of DTypes; "" = the type that each tensor of the base has
	ShardSize   int64  // most bytes of a file; 0 = DefaultShardSize
	// Trained is how the run stored the base model's weights that it trained over; nil = as they are.
	Trained *quant.Config
	// Original merges into the weights as the model has them, whatever they were trained as.
	Original  bool
	AllowLoss bool     // writes a model that has lost most of the adapter too
	Check     []string // texts whose logits are compared; nil = DefaultCheck, empty = none
	Own       OwnRows  // rows of the adapter's run, over which the models are compared too
}

// WeightedAdapter is a PEFT folder and the factor that its update counts by.
type WeightedAdapter struct {
	Dir    string
	Weight float64
}

// One is an adapter alone.
func One(dir string) []WeightedAdapter { return []WeightedAdapter{{dir, 1}} }

// The defaults of MergeOptions.
const (
	DefaultShardSize   = 5_000_000_000 // as transformers 4 saves
	DefaultCombination = "cat"
)

// NF4 is the DType of a folder whose linear layers are stored as bitsandbytes does, four bits and scales in eight.
const NF4 = "nf4"

var dtypes = map[string]weights.DType{"bf16": weights.BF16, "fp16": weights.F16, "fp32": weights.F32, NF4: weights.BF16}

// DTypes are the values of MergeOptions.DType.
func DTypes() []string { return []string{"bf16", "fp16", "fp32", NF4} }

// MergeReport is what Merge wrote.
type MergeReport struct {
	Model    string   `json:"model"`
	Adapters []string `json:"adapters"`
	Output   string   `json:"output"`
	Base     string   `json:"base"`   // which numbers the adapter was added to
	DType    string   `json:"dtype"`  // "as the base" where each tensor keeps its own
	Layers   int      `json:"layers"` // that the adapter changed
	Files    int      `json:"files"`  // of weights
	Bytes    int64    `json:"bytes"`  // of the tensors
	Rounding Rounding `json:"rounding"`
	Drift    *Drift   `json:"drift,omitempty"`
	Answers  Answers  `json:"answers"`
	Notes    []string `json:"notes,omitempty"`
}

// Merge writes a model folder whose weights hold the adapter, added in float64 and rounded through float32 to the type
// asked for. It is written under another name, read back and compared, and gets its name when it is whole: a merge that
// fails or is cut short leaves nothing that stands in the way of the next. A merge whose rounding loses most of the
// adapter fails with a *LossError unless that is allowed. The folder must not hold a model already. One tensor at a
// time is read, in pieces.
func Merge(ctx context.Context, o MergeOptions, env session.Env) (report MergeReport, err error) {
	if err := o.check(); err != nil {
		return report, err
	}
	saved, err := o.openAdapter()
	if err != nil {
		return report, err
	}
	s, err := session.Open(ctx, session.Options{Model: o.Model, Device: "cpu"}, env)
	if err != nil {
		return report, errors.Join(err, saved.Close())
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.UseSaved(saved)
	if err := errors.Join(s.Base.CheckTied(ctx), ownLayout(s)); err != nil {
		return report, fmt.Errorf("merge: %w", err)
	}
	m, err := newMerging(s, o)
	if err != nil {
		return report, fmt.Errorf("merge %s: %w", o.Adapters[0].Dir, err)
	}
	if report, err = m.write(ctx, env); err != nil {
		return MergeReport{}, fmt.Errorf("merge into %s: %w", o.Out, err)
	}
	return report, nil
}

func (o *MergeOptions) check() error {
	if len(o.Adapters) == 0 || o.Adapters[0].Dir == "" {
		return errors.New("merge: name an adapter folder")
	}
	if _, ok := dtypes[o.DType]; !ok && o.DType != "" {
		return fmt.Errorf("merge: the type %q is not one of %v", o.DType, DTypes())
	}
	if o.ShardSize == 0 {
		o.ShardSize = DefaultShardSize
	}
	if o.ShardSize < 0 {
		return fmt.Errorf("merge: a shard size of %d bytes", o.ShardSize)
	}
	if o.Combination == "" {
		o.Combination = DefaultCombination
	}
	if o.Check == nil {
		o.Check = DefaultCheck
	}
	// beside an adapter, readers would apply it again
	for _, name := range []string{weights.SingleFile, weights.IndexFile, adapter.ConfigFile} {
		if _, err := os.Lstat(filepath.Join(o.Out, name)); err == nil {
			return fmt.Errorf("merge into %s: it holds %s already; name another folder", o.Out, name)
		}
	}
	return nil
}

// openAdapter reads the adapter, or makes one of several.
func (o *MergeOptions) openAdapter() (*adapter.Saved, error) {
	var parts []adapter.Weighted
	defer func() {
		if len(parts) > 1 || len(parts) == 1 && parts[0].Weight != 1 {
			for _, p := range parts {
				p.Close() //nolint:errcheck // it was only read
			}
		}
	}()
	for _, a := range o.Adapters {
		saved, err := adapter.Open(a.Dir)
		if err != nil {
			return nil, err
		}
		parts = append(parts, adapter.Weighted{Saved: saved, Name: a.Dir, Weight: a.Weight})
	}
	if len(parts) == 1 && parts[0].Weight == 1 {
		return parts[0].Saved, nil
	}
	combined, err := adapter.Combine(parts, o.Combination)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	return combined, nil
}

// merging is a merge under way.
type merging struct {
	s       *session.Session
	o       MergeOptions
	cpu     *kernel.CPU
	updates map[string]adapter.Merger
	trained map[string]bool          // weights that were trained over quantised, by their names
	stored  map[string]bool          // weights that are written quantised
	names   map[string]string        // the model's, by those in the file
	parts   map[string][]byte        // tensors that were made already, by their names in the file
	wholes  map[string]weights.Whole // the tensors that are written as one, by their names in the file
	sums    map[string][32]byte      // SHA-256 of what was written, by the names in the file
	lost    map[string]*layerCounts  // of the adapted weights, by the layers
	bytes   int64

	quantiser, plain, again quant.Quantiser
	packed                  string       // the tensor that again has packed
	base4                   quant.Packed // it
	base, merged, was, then []float32
	raw                     []byte
}

func newMerging(s *session.Session, o MergeOptions) (*merging, error) {
	m := &merging{s: s, o: o, cpu: kernel.NewCPU(s.Workers), names: map[string]string{}, parts: map[string][]byte{},
		sums: map[string][32]byte{}, lost: map[string]*layerCounts{}}
	m.quantiser.Spread, m.plain.Spread, m.again.Spread = m.spread, m.spread, m.spread
	var err error
	if m.updates, err = s.Mergers(); err != nil {
		return nil, err
	}
	if o.Trained != nil && !o.Original {
		if m.trained, err = quantisedBy(s, *o.Trained); err != nil {
			return nil, err
		}
	}
	if o.DType == NF4 {
		m.stored, err = quantisedBy(s, quant.Default())
	}
	m.wholes = s.Base.WholeExperts()
	for _, whole := range m.wholes {
		for _, part := range whole.Parts { // bitsandbytes quantises linear layers, which these are not
			delete(m.stored, part)
		}
	}
	return m, err
}

// quantisedBy are the matrices that a model's network computes with quantised under a scheme.
func quantisedBy(s *session.Session, c quant.Config) (map[string]bool, error) {
	if bad := c.Validate(); bad != nil {
		return nil, errors.Join(bad...)
	}
	nw := s.Net
	nw.Scheme, nw.Stored = &c, nil
	net, _, err := nw.Declared()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, w := range net.Weights() {
		if w.Quantised() && len(w.Shape) == 2 {
			names[w.Name] = true
		}
	}
	return names, nil
}

// baseText says which numbers the adapter is added to.
func (m *merging) baseText() string {
	here := m.s.Base.Tensors().Quantised() > 0
	switch t := m.o.Trained; {
	case here:
		return "the stored weights, dequantised"
	case m.trained != nil:
		return trainedText(*t)
	case t != nil:
		return fmt.Sprintf("original, though %s was trained over", t.Type)
	}
	return "as stored"
}

// trainedText says how weights were stored that an adapter was trained over.
func trainedText(c quant.Config) string {
	if c.DoubleQuant {
		return fmt.Sprintf("trained: %s with double quantisation, dequantised", c.Type)
	}
	return fmt.Sprintf("trained: %s, dequantised", c.Type)
}

// ParseAdapter reads DIR or DIR=WEIGHT. A folder whose name has a = is meant where it is there.
func ParseAdapter(text string) (WeightedAdapter, error) {
	if _, err := os.Stat(text); err == nil {
		return WeightedAdapter{text, 1}, nil
	}
	for i := len(text) - 1; i > 0; i-- {
		if text[i] != '=' {
			continue
		}
		w, err := strconv.ParseFloat(text[i+1:], 64)
		if err != nil {
			return WeightedAdapter{}, fmt.Errorf("%q: the weight after = is %q, which is no number", text, text[i+1:])
		}
		return WeightedAdapter{text[:i], w}, nil
	}
	return WeightedAdapter{text, 1}, nil
}

// modules are the modules of two-dimensional weights that are not written quantised, for readers that would quantise
// them.
func (m *merging) modules() []string {
	skip, partOf := []string{"lm_head"}, m.partOf()
	for _, name := range m.s.Base.Tensors().Names() {
		if partOf[name] != "" {
			continue
		}
		t, _ := m.s.Base.Tensors().Tensor(name)
		if module, ok := cutWeight(t.Name); ok && len(t.Shape) == 2 && !m.stored[name] && module != "lm_head" &&
			!isEmbedding(module) {
			skip = append(skip, module)
		}
	}
	slices.Sort(skip)
	return skip
}
