package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// EmbeddedPrefix begins the names of models and data sets that the binary contains: "embedded:stories260K".
const EmbeddedPrefix = "embedded:"

// Base is a checkpoint: a model's configuration, weights and tokenizer.
type Base struct {
	Name      string // name that was asked for: a folder, a hub name, or an embedded model
	Config    model.Config
	Weights   *weights.Set
	Tokenizer *tokenizer.Tokenizer
	Folder    fs.FS  // files that it was read from
	Dir       string // path of Folder; "" = the model is embedded
	Declared  bool   // the folder has no weights; names and shapes follow from the configuration

	// Added are the ids of tokens that AddTokens has added, in their order; nil = it added none.
	Added []int32

	tensors *quantised.Checkpoint // nil = nothing is quantised
	standIn nn.Reader             // reads the weights of a declared model
}

// DeclaredWeights returns the tensors that a model of a configuration has, without their bytes.
func DeclaredWeights(c model.Config) (*weights.Set, error) {
	specs, err := tensorSpecs(c)
	if err != nil {
		return nil, err
	}
	d := weights.BF16
	if named, ok := map[string]weights.DType{"float16": weights.F16, "float32": weights.F32, "float64": weights.F64}[c.DType]; ok {
		d = named
	}
	numbers, codes, err := quantised.Declared(specs, c.Quantization)
	if err != nil {
		return nil, err
	}
	return weights.Declare(numbers, d, codes...), nil
}

// DeclaredCheckpoint returns the checkpoint of the tensors of DeclaredWeights as the configuration describes it: which
// tensors are stored quantised, and how.
func DeclaredCheckpoint(c model.Config, tensors *weights.Set) (*quantised.Checkpoint, error) {
	q := c.Quantization
	switch {
	case q.Dequantised():
		return quantised.Numbers(tensors), nil // what the weights become; their packing shows in the files alone
	case q == nil || q.Method != model.BitsAndBytes:
		return quantised.Open(tensors, q)
	}
	build, err := families.For(c)
	if err != nil {
		return nil, err
	}
	scheme := quantised.Scheme(q)
	n, _, err := Network{Config: c, Build: build, Float: kernel.F32, Scheme: &scheme}.Declared()
	if err != nil {
		return nil, err
	}
	var linear []string
	for _, w := range n.Weights() {
		if w.Quantised() {
			linear = append(linear, w.Name)
		}
	}
	return quantised.Declare(tensors, q, linear), nil
}

// tensorSpecs returns the checkpoint's tensors that a model of a configuration reads.
func tensorSpecs(c model.Config) ([]weights.Spec, error) {
	build, err := families.For(c)
	if err != nil {
		return nil, err
	}
	n, _, err := Network{Config: c, Build: build, Float: kernel.F32}.Declared()
	if err != nil {
		return nil, err
	}
	return specsOf(n), nil
}

func specsOf(n *nn.Net) []weights.Spec {
	var specs []weights.Spec
	listed := map[string]bool{"": true}
	for _, w := range n.Weights() {
		if !listed[w.Name] {
			listed[w.Name], specs = true, append(specs, weights.Spec{Name: w.Name, Shape: w.Shape})
		}
	}
	return specs
}

// Close releases the mapped weights.
func (b *Base) Close() error {
	if b == nil || b.Weights == nil {
		return nil
	}
	return b.Weights.Close()
}

// tensors reads a checkpoint; it is an nn.StoredReader.
type tensors struct{ weights.Source }

// quantisedTensors reads a checkpoint with some quantised weights; it is an nn.PackedReader too.
type quantisedTensors struct {
	tensors
	*quantised.Checkpoint
}

// Names returns the names of the checkpoint's tensors. Like Tensor and Float32s it forwards to the checkpoint.
func (r quantisedTensors) Names() []string { return r.Checkpoint.Names() }

func (r quantisedTensors) Tensor(name string) (weights.Tensor, bool) {
	return r.Checkpoint.Tensor(name)
}

func (r quantisedTensors) Float32s(name string, from int, dst []float32) error {
	return r.Checkpoint.Float32s(name, from, dst)
}

// Stored reads a tensor in the type of the file, or a weight that is dequantised in the type of its numbers; ok is
// false for a weight that stays quantised, which has no such type.
func (r quantisedTensors) Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool) {
	if r.Config(name) != nil {
		return 0, nil, false
	}
	if r.IsDequantised(name) {
		t, _ := r.Checkpoint.Tensor(name)
		d, ok = storedTypes[t.DType]
		return d, func(dst []byte, from int) error {
			numbers := make([]float32, len(dst)/t.DType.Size())
			if err := r.Checkpoint.Float32s(name, from, numbers); err != nil {
				return err
			}
			_, err := weights.AppendFloat32s(dst[:0], t.DType, numbers)
			return err
		}, ok
	}
	return r.tensors.Stored(name)
}

// Reader returns a reader of a checkpoint's tensors.
func Reader(s weights.Source) nn.StoredReader { return tensors{s} }

// Float32s reads a range of a tensor's elements.
func (r tensors) Float32s(name string, from int, dst []float32) error {
	t, ok := r.Tensor(name)
	if !ok {
		return fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	return weights.Float32Range(t, from, from+len(dst), dst)
}

// storedTypes maps the element types of checkpoints that memory may use unchanged.
var storedTypes = map[weights.DType]kernel.DType{weights.F32: kernel.F32, weights.BF16: kernel.BF16, weights.F16: kernel.F16}

// Stored reads a tensor in the type of the file.
func (r tensors) Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool) {
	t, ok := r.Tensor(name)
	if ok {
		d, ok = storedTypes[t.DType]
	}
	return d, func(dst []byte, from int) error { return weights.Raw(t, from, dst) }, ok
}

// WholeExperts returns the checkpoint's tensors that hold all experts of a layer, if other programs only read such
// tensors. Most models have none.
func (b *Base) WholeExperts() map[string]weights.Whole {
	if !families.Table[b.Config.ModelType].WholeExperts {
		return nil
	}
	return b.Weights.Wholes()
}

// Tensors returns Weights under the names and shapes that the model knows; a quantised weight is one tensor.
func (b *Base) Tensors() *quantised.Checkpoint {
	if b.tensors == nil {
		return quantised.Numbers(b.Weights)
	}
	return b.tensors
}

// StorageOf returns how bitsandbytes has quantised the weights of a model; nil if no weight is quantised, or the model
// can't be read.
func StorageOf(ctx context.Context, name string, env Env) *quant.Config {
	if strings.HasPrefix(name, EmbeddedPrefix) {
		return nil
	}
	dir, err := hub.Resolve(ctx, name, env.Hub)
	if err != nil {
		return nil
	}
	c, err := families.LoadConfig(dir)
	if err != nil || c.Quantization == nil || c.Quantization.Method != model.BitsAndBytes {
		return nil
	}
	scheme := quantised.Scheme(c.Quantization)
	return &scheme
}

// SizeOf returns the model_type and the width of a model that is on this machine, from its config.json; "" and 0 if it
// cannot be read.
func SizeOf(ctx context.Context, name string, options hub.Options) (modelType string, hidden int) {
	dir, err := hub.Resolve(ctx, name, options)
	if err != nil {
		return "", 0
	}
	c, err := families.LoadConfig(dir)
	if err != nil {
		return "", 0
	}
	return c.ModelType, c.HiddenSize
}

// StoredAs describes how many weights are quantised already, and how; "" if none is.
func (b *Base) StoredAs() string {
	n := b.Tensors().Quantised()
	if n == 0 {
		return ""
	}
	s := quantised.Scheme(b.Config.Quantization)
	return fmt.Sprintf("%d weights are quantised (%d bits, type %s, double_quant %v)", n, s.Bits, s.Type, s.DoubleQuant)
}

// Task returns what a checkpoint with another head than the vocabulary's is for; the zero value for one that writes
// text.
func (b *Base) Task() (t adapter.Task) {
	switch b.Config.Head {
	case model.SequenceHead:
		t.Type = adapter.SequenceClassification
	case model.TokenHead:
		t.Type = adapter.TokenClassification
	case model.NoHead:
		t.Type = adapter.FeatureExtraction
	}
	if head, ok := b.Tensors().Tensor(adapter.ScoreWeight); ok && t.HasScores() && len(head.Shape) == 2 {
		t.Labels = head.Shape[0]
	}
	return t
}

// ScoreBias reads the bias of a checkpoint's classification head; nil = it has none.
func ScoreBias(b *Base) ([]float32, error) {
	t, ok := b.Tensors().Tensor(adapter.ScoreBias)
	if !ok || b.Config.Head != model.TokenHead {
		return nil, nil
	}
	bias := make([]float32, t.Len())
	if err := b.Tensors().Float32s(adapter.ScoreBias, 0, bias); err != nil {
		return nil, fmt.Errorf("base model %q: %w", b.Name, err)
	}
	return bias, nil
}

// Check compares the checkpoint's tensors with those a network reads.
func (b *Base) Check(n *nn.Net) error {
	allowed := append([]string{"*.rotary_emb.inv_freq"}, families.Unused(b.Config)...)
	if _, reads := n.Weight(head); !reads { // tied to the embeddings, or another head takes its place
		allowed = append(allowed, head)
	}
	if b.Config.Head == model.TokenHead {
		allowed = append(allowed, adapter.ScoreBias) // ScoreBias reads it
	}
	if err := b.checkVocabulary(); err != nil {
		return fmt.Errorf("base model %q: %w", b.Name, err)
	}
	if err := weights.Check(b.Tensors(), specsOf(n), allowed...); err != nil {
		return fmt.Errorf("base model %q: %w", b.Name, err)
	}
	return nil
}

// Reader reads the checkpoint's tensors by the names that the network has for them. It is an nn.StoredReader, an
// nn.PackedReader and an nn.MXFP4Reader.
func (b *Base) Reader() nn.Reader { return quantisedTensors{tensors{b.Weights}, b.Tensors()} }

// Load fills the frozen weights of a network, workers at a time.
func (b *Base) Load(ctx context.Context, n *nn.Net, m graph.Store, workers int) error {
	if b.Declared {
		if b.standIn == nil || b.mxfp4() {
			return fmt.Errorf("base model %q: its folder holds no weights", b.Name)
		}
		return n.Load(ctx, b.standIn, m, workers)
	}
	if err := b.CheckTied(ctx); err != nil {
		return err
	}
	if err := n.Load(ctx, b.Reader(), m, workers); err != nil {
		return fmt.Errorf("base model %q: %w", b.Name, err)
	}
	if err := b.Weights.Unchanged(); err != nil {
		return fmt.Errorf("base model %q: %w", b.Name, err)
	}
	return nil
}

// Fingerprint identifies base weights without reading all of them: by every tensor's name, type, shape and first and
// last bytes.
func (b *Base) Fingerprint() string {
	const edge = 256
	h := sha256.New()
	for _, name := range b.Weights.Names() {
		t, _ := b.Weights.Tensor(name)
		fmt.Fprintf(h, "%s %v %v\n", name, t.DType, t.Shape)
		h.Write(t.Data[:min(edge, len(t.Data))])
		h.Write(t.Data[max(0, len(t.Data)-edge):])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Digest returns a SHA-256 over every tensor's name, type, shape and SHA-256, which workers compute in parallel.
func (b *Base) Digest(ctx context.Context, workers int) (string, error) {
	names := b.Weights.Names()
	sums := make([][sha256.Size]byte, len(names))
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Add(1)
		rescue.Go(func() {
			defer wg.Done()
			for i := range next {
				t, _ := b.Weights.Tensor(names[i])
				sums[i] = sha256.Sum256(t.Data)
			}
		})
	}
	for i := range names {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	h := sha256.New()
	for i, name := range names {
		t, _ := b.Weights.Tensor(name)
		fmt.Fprintf(h, "%s %v %v %x\n", name, t.DType, t.Shape, sums[i])
	}
	return hex.EncodeToString(h.Sum(nil)), ctx.Err()
}
