// Package export writes models and adapters for other programs: merged models, and adapters in other formats.
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

// MergeOptions configures Merge.
type MergeOptions struct {
	Model       string // a folder, a hub name, or an embedded model
	Adapters    []WeightedAdapter
	Combination string // how several adapters are combined, one of adapter.Combinations; "" = DefaultCombination
	Out         string // the folder to write
	DType       string // one of DTypes; "" = each tensor keeps the base's type
	ShardSize   int64  // most bytes of a file; 0 = DefaultShardSize
	// Trained is the quantisation of the base weights during training; nil = none.
	Trained *quant.Config
	// Original merges into the model's own weights, even if training used quantised ones.
	Original  bool
	AllowLoss bool     // write the model even if it has lost most of the adapter
	Check     []string // texts whose logits are compared; nil = DefaultCheck, empty = none
	Own       OwnRows  // rows of the adapter's run, which are compared too
}

// WeightedAdapter is a PEFT folder and the factor of its update.
type WeightedAdapter struct {
	Dir    string
	Weight float64
}

// One returns a list of one adapter with factor 1.
func One(dir string) []WeightedAdapter { return []WeightedAdapter{{dir, 1}} }

// The defaults of MergeOptions.
const (
	DefaultShardSize   = 5_000_000_000 // transformers 4's default
	DefaultCombination = "cat"
)

// NF4 is the DType of a folder whose linear layers are stored in bitsandbytes' 4 bits with 8-bit scales.
const NF4 = "nf4"

var dtypes = map[string]weights.DType{"bf16": weights.BF16, "fp16": weights.F16, "fp32": weights.F32, NF4: weights.BF16}

// DTypes returns the values of MergeOptions.DType.
func DTypes() []string { return []string{"bf16", "fp16", "fp32", NF4} }

// MergeReport describes what Merge wrote.
type MergeReport struct {
	Model    string   `json:"model"`
	Adapters []string `json:"adapters"`
	Output   string   `json:"output"`
	Base     string   `json:"base"`   // the weights to which the adapter was added
	DType    string   `json:"dtype"`  // "as the base" if each tensor keeps its own type
	Layers   int      `json:"layers"` // layers that the adapter changed
	Files    int      `json:"files"`  // weight files
	Bytes    int64    `json:"bytes"`  // bytes of the tensors
	Rounding Rounding `json:"rounding"`
	Drift    *Drift   `json:"drift,omitempty"`
	Answers  Answers  `json:"answers"`
	// Head is the head of a model that gives scores or vectors of texts; nil = the model writes text.
	Head  *HeadReport `json:"head,omitempty"`
	Notes []string    `json:"notes,omitempty"`
}

// Merge writes a model folder with the adapter merged into its weights: the sum is computed in float64 and rounded
// through float32 to the requested type. Merge writes under a temporary name, reads the folder back, compares it and
// then renames it, so that a failed or interrupted merge leaves nothing that blocks the next one. It returns a
// *LossError if rounding would lose most of the adapter, unless AllowLoss is set. The folder must not contain a model
// already. It reads one tensor at a time, in pieces.
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
	if err := s.UseSaved(saved); err != nil {
		return report, fmt.Errorf("merge: %w", err)
	}
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
	// readers would apply an adapter beside the model again
	for _, name := range []string{weights.SingleFile, weights.IndexFile, adapter.ConfigFile} {
		if _, err := os.Lstat(filepath.Join(o.Out, name)); err == nil {
			return fmt.Errorf("merge into %s: it holds %s already; name another folder", o.Out, name)
		}
	}
	return nil
}

// openAdapter reads the adapter, or combines several into one.
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

// merging is the state of a merge.
type merging struct {
	s       *session.Session
	o       MergeOptions
	cpu     *kernel.CPU
	updates map[string]adapter.Merger
	trained map[string]bool          // names of weights that were trained quantised
	stored  map[string]bool          // weights that are written quantised
	names   map[string]string        // names in the model by names in the file
	parts   map[string][]byte        // finished tensors by their names in the file
	wholes  map[string]weights.Whole // tensors that are written as one, by their names in the file
	sums    map[string][32]byte      // SHA-256 of the written data, by names in the file
	lost    map[string]*layerCounts  // rounding losses of the adapted weights, by layer
	head    *head                    // nil = the vocabulary's
	bytes   int64

	quantiser, plain, again quant.Quantiser
	packed                  string       // name of the tensor in base4 and again
	base4                   quant.Packed // that tensor of the base, packed
	base, merged, was, then []float32
	raw                     []byte
}

func newMerging(s *session.Session, o MergeOptions) (*merging, error) {
	m := &merging{s: s, o: o, cpu: kernel.NewCPU(s.Workers), names: map[string]string{}, parts: map[string][]byte{},
		sums: map[string][32]byte{}, lost: map[string]*layerCounts{}}
	m.quantiser.Spread, m.plain.Spread, m.again.Spread = m.spread, m.spread, m.spread
	var err error
	if m.head, err = newHead(s, o.Adapters[0].Dir); err != nil {
		return nil, err
	}
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
		for _, part := range whole.Parts { // bitsandbytes quantises the linear layers in it
			delete(m.stored, part)
		}
	}
	return m, err
}

// quantisedBy returns the matrices that a model's network uses in quantised form under a scheme.
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

// baseText describes the weights to which the adapter is added.
func (m *merging) baseText() string {
	here := m.s.Base.Tensors().Quantised() > 0
	switch t := m.o.Trained; {
	case here:
		return "the stored weights, dequantised"
	case m.trained != nil:
		return trainedText(*t)
	case t != nil:
		return fmt.Sprintf("original, though %s was trained over", t.Type)
	case m.s.Base.Tensors().Dequantised() > 0:
		return "the stored weights, dequantised"
	}
	return "as stored"
}

// trainedText describes the weights on which an adapter was trained.
func trainedText(c quant.Config) string {
	if c.DoubleQuant {
		return fmt.Sprintf("trained: %s with double quantisation, dequantised", c.Type)
	}
	return fmt.Sprintf("trained: %s, dequantised", c.Type)
}

// ParseAdapter parses DIR or DIR=WEIGHT. If a folder exists whose name contains the =, the text names that folder.
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

// modules returns the modules with two-dimensional weights that are not written quantised, for readers that would
// otherwise quantise them.
func (m *merging) modules() []string {
	skip, partOf := []string{"lm_head"}, m.partOf()
	if m.head != nil {
		skip = []string{"score"}
	}
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
