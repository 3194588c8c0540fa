package adapter

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Fresh is an adapted layer whose trained tensors get their first numbers.
type Fresh struct {
	Layer   string  // the layer's path, or of a parameter of experts the path of what PEFT wraps its module in
	Tensors []Param // the trained tensors, zero: a method's Init fills their Data
	seed    uint64
	weight  weightReader
	inputs  *Inputs       // what was learned of the inputs of layers; nil = nothing
	found   *firstTensors // where Take and Corrected leave what they get; nil = it is not kept
}

// weightReader reads a layer's base weight: as the checkpoint has it, or as the network computes with it. less = what
// the weight loses before it is read; nil = nothing.
type weightReader func(computed bool, less Merger) (matrix, error)

// Uniform returns a stream of numbers in [0,1) that depends on the run's seed and the tensor's name alone.
func (f Fresh) Uniform(tensor string) func() float64 {
	h := sha256.Sum256([]byte(tensor))
	pcg := rand.NewPCG(f.seed, binary.LittleEndian.Uint64(h[:]))
	return func() float64 { return float64(pcg.Uint64()>>11) / (1 << 53) }
}

// Weight reads the layer's base weight as the checkpoint has it, wherever the run keeps it. A weight that the
// checkpoint has quantised is dequantised.
func (f Fresh) Weight() (matrix, error) { return f.weight(false, nil) }

// ComputedWeight reads the layer's base weight as the network computes with it: quantised and dequantised where the run
// stores it quantised.
func (f Fresh) ComputedWeight() (matrix, error) { return f.weight(true, nil) }

// ComputedRest reads the layer's base weight changed by less, as the network would compute with it.
func (f Fresh) ComputedRest(less Merger) (matrix, error) { return f.weight(true, less) }

// Take says that the base weight loses the update of these tensors, in the place of the first numbers' update.
func (f Fresh) Take(taken []Param) {
	if f.found != nil {
		f.found.taken = taken
	}
}

// Corrected keeps the squared norms of a layer's weight and of what the quantised weight is off by, without the start
// and with it.
func (f Fresh) Corrected(weight, without, with float64) {
	if f.found != nil {
		f.found.norms = [3]float64{weight, without, with}
	}
}

// Rebase is what a method needs whose first numbers are part of the base model: the base weight loses the update that
// they make, so that the model computes what it did before, and training changes that part.
type Rebase struct {
	// Needed reports whether a configuration starts so.
	Needed func(c Config) bool
	// Rest makes what takes the update of a layer's first tensors off its base weight.
	Rest func(c Config, layer string, first []Param) (Merger, error)
	// FoldConfig and Fold make the adapter that does to the base model as the checkpoint has it what the trained
	// tensors do to the changed one. The tensors have the order and the names of params.
	FoldConfig func(c Config) Config
	Fold       func(params, first []Param) []Param
	// Unfold undoes Fold.
	Unfold func(folded []Param) (params, first []Param)
}

// Start gives a fresh adapter its first numbers. Where they are part of the base model it changes the base weights
// while they load, and writes adapters that fit the base model as the checkpoint has it. It is safe for concurrent use.
type Start struct {
	method Method
	config Config
	seed   uint64
	inputs *Inputs // see UseInputs; nil = none
	mu     sync.Mutex
	layers map[string]*firstTensors // by the layer's path
}

// firstTensors are a layer's first numbers, which are made once.
type firstTensors struct {
	once    sync.Once
	tensors []Param
	taken   []Param    // what the base weight loses the update of
	norms   [3]float64 // see Fresh.Corrected
	err     error
}

// NewStart returns the start of a run's adapter.
func NewStart(m Method, c Config, seed uint64) *Start {
	return &Start{method: m, config: c, seed: seed, layers: map[string]*firstTensors{}}
}

// Rebases reports whether the base model's weights are changed while they load.
func (s *Start) Rebases() bool {
	return s != nil && s.method.Rebase != nil && s.method.Rebase.Needed(s.config)
}

// of returns the entry of a layer.
func (s *Start) of(layer string) *firstTensors {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layers[layer] == nil {
		s.layers[layer] = &firstTensors{}
	}
	return s.layers[layer]
}

// first makes or returns a layer's first tensors. own has their names and shapes.
func (s *Start) first(layer string, own []Param, weight weightReader) (*firstTensors, error) {
	f := s.of(layer)
	f.once.Do(func() {
		f.tensors = zeroed(own)
		f.err = s.method.Init(s.config, Fresh{layer, f.tensors, s.seed, weight, s.inputs, f})
		if f.taken == nil {
			f.taken = f.tensors
		}
	})
	return f, f.err
}

// Correction describes what a start that corrects quantised weights gained; "" = it corrects none, or the run resumed.
func (s *Start) Correction() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum [3]float64
	layers := 0
	for _, layer := range sortedKeys(s.layers) {
		if norms := s.layers[layer].norms; norms[0] > 0 {
			layers++
			for i, x := range norms {
				sum[i] += x
			}
		}
	}
	if layers == 0 {
		return ""
	}
	off := func(x float64) float64 { return 100 * math.Sqrt(x/sum[0]) }
	return fmt.Sprintf("%s: the quantised weights of %d layers are off by %.3g%% of their norm at the first step, "+
		"%.3g%% without it", s.config.lora().InitLoRAWeights, layers, off(sum[2]), off(sum[1]))
}

// zeroed returns tensors of the same names and shapes that are zero.
func zeroed(params []Param) []Param {
	zero := slices.Clone(params)
	for i, p := range zero {
		zero[i].Data = make([]float32, kernel.T(kernel.F32, p.Shape...).Elems())
	}
	return zero
}

// Rewrite returns what loads the base weights that lose the first numbers' update, the nn.Options.Rewrite of a network;
// nil where the base model stays as it is.
func (s *Start) Rewrite(n *nn.Net, t *Trained) func(name string) nn.Rewriter {
	if !s.Rebases() {
		return nil
	}
	var once sync.Once
	var owners map[string][]Param
	return func(name string) nn.Rewriter {
		layer, isWeight := strings.CutSuffix(name, weightSuffix)
		var err error
		once.Do(func() { owners, err = t.owners(t.List()) })
		if err != nil {
			return func(nn.Reader, int, []float32) error { return err }
		}
		own := owners[layer]
		if !isWeight || own == nil {
			return nil
		}
		return func(r nn.Reader, from int, dst []float32) error {
			first, err := s.first(layer, own, weightOf(n, r, layer))
			if err != nil {
				return err
			}
			rest, err := s.method.Rebase.Rest(s.config, layer, first.taken)
			if err != nil {
				return err
			}
			return rewritten(r, name, columns(n, name), rest, from, dst)
		}
	}
}

// rewritten reads elements of a weight with so many columns, changed row by row.
func rewritten(r nn.Reader, name string, cols int, change Merger, from int, dst []float32) error {
	row, offset := from/cols, from%cols
	if offset == 0 && len(dst)%cols == 0 {
		if err := r.Float32s(name, from, dst); err != nil {
			return err
		}
		change(dst, row)
		return nil
	}
	whole := make([]float32, (offset+len(dst)+cols-1)/cols*cols)
	if err := r.Float32s(name, row*cols, whole); err != nil {
		return err
	}
	change(whole, row)
	copy(dst, whole[offset:])
	return nil
}

// changed reads a weight with so many columns changed row by row. It gives no packed weight.
type changed struct {
	nn.Reader
	cols   int
	change Merger
}

// Float32s reads elements of the changed weight.
func (c changed) Float32s(name string, from int, dst []float32) error {
	return rewritten(c.Reader, name, c.cols, c.change, from, dst)
}

// columns is the number of inputs of a network's weight.
func columns(n *nn.Net, name string) int {
	w, _ := n.Weight(name)
	return w.Shape[len(w.Shape)-1]
}

// weightOf returns what reads a layer's base weight.
func weightOf(n *nn.Net, r nn.Reader, layer string) weightReader {
	return func(computed bool, less Merger) (matrix, error) {
		w, ok := n.Weight(layer + weightSuffix)
		if !ok || len(w.Shape) != 2 {
			return matrix{}, fmt.Errorf("%s has no weight of its own from which an adapter could start", layer)
		}
		m := matrix{w.Shape[0], w.Shape[1], make([]float32, w.Shape[0]*w.Shape[1])}
		var err error
		switch {
		case computed && less != nil:
			err = w.Computed(changed{r, m.cols, less}, m.data)
		case computed:
			err = w.Computed(r, m.data)
		default:
			err = r.Float32s(w.Name, 0, m.data)
		}
		if err != nil {
			return matrix{}, fmt.Errorf("read %s: %w", w.Name, err)
		}
		if i := slices.IndexFunc(m.data, func(x float32) bool { return x-x != 0 }); i >= 0 {
			return matrix{}, fmt.Errorf("%s is %v at [%d %d]: a base weight must be finite", w.Name, m.data[i], i/m.cols, i%m.cols)
		}
		return m, nil
	}
}

// Fill gives the trained tensors of a fresh adapter, which are zero, their first numbers. r reads the checkpoint of the
// network n; both may be nil for a method that does not look at base weights. Trained weights of the base model keep
// what they have.
func (s *Start) Fill(n *nn.Net, r nn.Reader, t *Trained, params []Param) error {
	owners, err := t.owners(params)
	if err != nil {
		return err
	}
	s.fillHead(n, t, params)
	for _, layer := range sortedKeys(owners) {
		own := owners[layer]
		weight := weightOf(n, r, layer)
		if !s.Rebases() { // nothing is kept of the numbers
			if err := s.method.Init(s.config, Fresh{layer, own, s.seed, weight, s.inputs, s.of(layer)}); err != nil {
				return err
			}
			continue
		}
		first, err := s.first(layer, own, weight)
		if err != nil {
			return err
		}
		for i, p := range first.tensors {
			copy(own[i].Data, p.Data)
		}
	}
	return nil
}

// Saved is the adapter as its folder has it: c and params, or where the start is part of the base model, what does the
// same to the base model as the checkpoint has it.
func (s *Start) Saved(c Config, t *Trained, params []Param) (Config, []Param, error) {
	if !s.Rebases() {
		return c, params, nil
	}
	base, own := t.TrainedBase(params)
	first, err := s.firstOf(t, own)
	if err != nil {
		return c, nil, err
	}
	return s.SavedConfig(c), append(base, s.method.Rebase.Fold(own, first)...), nil
}

// SavedConfig is the configuration of a saved adapter.
func (s *Start) SavedConfig(c Config) Config {
	if !s.Rebases() {
		return c
	}
	return s.method.Rebase.FoldConfig(c)
}

// firstOf returns the first numbers of all trained tensors in the order of params.
func (s *Start) firstOf(t *Trained, params []Param) ([]Param, error) {
	owners, err := t.owners(params)
	if err != nil {
		return nil, err
	}
	by := map[string]Param{}
	for layer := range owners {
		for _, p := range s.of(layer).taken {
			by[p.Name] = p
		}
	}
	first := make([]Param, len(params))
	for i, p := range params {
		ok := false
		if first[i], ok = by[p.Name]; !ok {
			return nil, fmt.Errorf("the start of %s is not known: the base model was not loaded with it", p.Name)
		}
	}
	return first, nil
}

// Wrote reports whether a saved adapter is one that a run with this start writes, as far as its configuration tells.
func (s *Start) Wrote(saved *Saved) bool {
	if !s.Rebases() {
		return false
	}
	c := s.SavedConfig(s.config)
	return saved.Config.R == c.R && saved.Config.Alpha == c.Alpha && saved.Config.lora().UseRSLoRA == c.lora().UseRSLoRA
}

// Resume reads an adapter that Saved wrote into params, which are zero, and keeps its first numbers, so that base
// weights load as they were.
func (s *Start) Resume(saved *Saved, t *Trained, params []Param) error {
	if !s.Rebases() {
		return saved.Read(params)
	}
	base, own := t.TrainedBase(params)
	folded := s.method.Rebase.Fold(zeroed(own), zeroed(own))
	if err := saved.Read(append(base, folded...)); err != nil {
		return err
	}
	now, first := s.method.Rebase.Unfold(folded)
	for i, p := range now {
		copy(own[i].Data, p.Data)
	}
	owners, err := t.owners(first)
	if err != nil {
		return err
	}
	for layer, own := range owners {
		f := s.of(layer)
		f.once.Do(func() {})
		f.tensors, f.taken, f.err = own, own, nil
	}
	return nil
}

// owners returns the trained tensors among params by the adapted layer or parameter that they belong to. Trained
// weights of the base model belong to none.
func (t *Trained) owners(params []Param) (map[string][]Param, error) {
	own, known := map[string][]Param{}, map[string]bool{}
	for _, l := range t.Layers {
		known[l] = true
	}
	for _, p := range t.Parameters {
		known[p.Path] = true
	}
	for _, p := range params {
		if slices.Contains(t.base, p.Name) {
			continue
		}
		layer := p.Name
		for !known[layer] {
			i := strings.LastIndexByte(layer, '.')
			if i < 0 {
				return nil, fmt.Errorf("tensor %s is of no adapted layer and can't be merged", p.Name)
			}
			layer = layer[:i]
		}
		own[layer] = append(own[layer], p)
	}
	return own, nil
}
