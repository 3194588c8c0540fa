package adapter

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Methods lists every way of training, beside frozen weights or the weights themselves, by its value of `adapter:` in a
// run's configuration.
var Methods = map[string]Method{
	"lora": {Title: "LoRA", Section: loraSection, Wrap: wrapLoRA, WrapExperts: wrapLoRAExperts,
		WrapParameter: wrapLoRAParameter, Init: initLoRA, Rebase: loraRebase, Merge: mergeLoRA,
		MergeParameter: mergeLoRAParameter, MergeBias: mergeLoRABias, Rate: loraPlusRate, Sums: true, PEFT: loraCodec,
		Trains: savedWeights},
	"full": {Section: fullSection, Trains: func(c Config) func(string) bool { return c.full().trains() }},
	"ia3": {Title: "IA3", Section: ia3Section, Wrap: wrapIA3, Init: initIA3, Merge: mergeIA3, MergeBias: mergeIA3Bias,
		PEFT: ia3Codec},
	"miss": {Title: "MiSS", Section: missSection, Wrap: wrapMiSS, Init: initMiSS, Merge: mergeMiSS, PEFT: missCodec},
	"vera": {Title: "VeRA", Section: veraSection, Wrap: wrapVeRA, Init: initVeRA, Merge: mergeVeRA, PEFT: veraCodec},
	"lokr": {Title: "LoKr", Section: lokrSection, Wrap: wrapLoKr, Init: initLoKr, Merge: mergeLoKr, PEFT: lokrCodec},
	"oft":  {Title: "OFT", Section: oftSection, Wrap: wrapOFT, Init: initOFT, Merge: mergeOFT, PEFT: oftCodec},
	"dora": {Title: "DoRA", Section: loraSection, Check: checkDoRA, Wrap: wrapDoRA, Init: initDoRA, Merge: mergeDoRA,
		Rate: doraRate, PEFT: doraCodec, Trains: savedWeights},
}

// DefaultMethod is the value of `adapter:` where a configuration gives none.
const DefaultMethod = "lora"

// Quantised are the values of `adapter:` that stand for a method over a quantised base model.
var Quantised = map[string]string{"qlora": "lora", "qdora": "dora", "qia3": "ia3", "qmiss": "miss", "qvera": "vera",
	"qlokr": "lokr", "qoft": "oft"}

// Lookup finds the method that a value of `adapter:` stands for, and whether the base model is quantised.
func Lookup(name string) (m Method, quantised bool, err error) {
	method, quantised := Quantised[name]
	if !quantised {
		method = name
	}
	m, ok := Methods[method]
	if !ok {
		return m, false, fmt.Errorf("adapter: %q is not one of %s", name, strings.Join(Names(), ", "))
	}
	return m, quantised, nil
}

// OverQuantised returns the value of `adapter:` for the method of name over a quantised base model; "" = there is none.
func OverQuantised(name string) string {
	for _, quantised := range sortedKeys(Quantised) {
		if quantised == name || Quantised[quantised] == name {
			return quantised
		}
	}
	return ""
}

// Title returns the name for people of the method that a value of `adapter:` stands for, such as QLoRA for qlora; "" =
// the value is unknown, or its method makes no adapter.
func Title(name string) string {
	m, quantised, err := Lookup(name)
	if err != nil || m.Title == "" || !quantised {
		return m.Title
	}
	return "Q" + m.Title
}

// Names are the values of `adapter:`, sorted.
func Names() []string {
	names := append(sortedKeys(Methods), sortedKeys(Quantised)...)
	slices.Sort(names)
	return names
}

// Method is a way of training: beside frozen weights, or those weights themselves.
type Method struct {
	// Title is the method's name for people; "" = it makes no adapter.
	Title string
	// Section returns the configuration of the section that the method reads.
	Section func(s Sections) Config
	// Check returns an error for each key of the section that the method does not take, though others that read the section
	// may; nil = it takes all.
	Check func(c Config) []error
	// Sums reports that the update of a layer is s B A, which does not depend on the weight: updates of several adapters can
	// be added, and lie side by side over one base model.
	Sums bool
	// Trains returns what reports whether a weight of the base model is trained, by its name; nil, or a function that
	// returns nil = none is.
	Trains func(c Config) func(name string) bool
	// Wrap returns the layer with what is trained beside it; nil = nothing is.
	Wrap func(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear
	// WrapExperts is Wrap for the linear layers of experts, of which some are adapted; nil = it adapts none.
	WrapExperts func(t *Trained, c Config, n *nn.Net, paths []string, adapted []bool, base nn.Experts) nn.Experts
	// WrapParameter is Wrap for experts whose matrices are one parameter; nil = it adapts none.
	WrapParameter func(t *Trained, c Config, n *nn.Net, p Parameter, parts []nn.Experts) []nn.Experts
	// Init gives the tensors of a layer, which are zero, their first numbers.
	Init func(c Config, f Fresh) error
	// Rebase is for first numbers that are part of the base weight; nil = base weights stay as they are.
	Rebase *Rebase
	// Merge makes what adds a layer's update to its weight from the layer's trained tensors.
	Merge func(c Config, layer string, own []Param) (Merger, error)
	// MergeParameter is Merge for a parameter of experts: the updates of the tensors that the checkpoint has it in, by the names of
	// the parameter or of its layers.
	MergeParameter func(c Config, p Parameter, own []Param) (map[string]Merger, error)
	// Rate is a trained tensor's multiplier of the learning rate; nil = 1 for all.
	Rate func(c Config, name string) float64
	// PEFT reads and writes adapter_config.json.
	PEFT Codec
	// MergeBias makes what changes a layer's bias [Out], as one row, by its trained tensors; it returns nil where the bias
	// stays, and is nil where it always does.
	MergeBias func(c Config, layer string, own []Param) (Merger, error)
}

// biasSuffix ends the name of a layer's bias.
const biasSuffix = ".bias"

// Merger adds an update to some rows of a weight [Out,In], or of a parameter [E,In,Out] as E*In rows: rows has them from row
// from on. Calls for different rows may run at the same time.
type Merger func(rows []float32, from int)

// Label is the method's name in messages: DoRA, or PEFT's peft_type.
func (m Method) Label() string {
	if m.PEFT.Flag == doraCodec.Flag {
		return "DoRA"
	}
	return m.PEFT.Type
}

// Update says what an adapter of the method does, after its name, for messages about what takes s B A alone.
func (m Method) Update() string {
	if m.PEFT.Flag == doraCodec.Flag {
		return "scales the rows of the whole weight (DoRA)"
	}
	return fmt.Sprintf("has an update of its own form (%s)", m.PEFT.Type)
}

// MergersOf is Mergers for the trained tensors of a network, whose layers' sizes are known.
func (m Method) MergersOf(c Config, t *Trained, params []Param) (map[string]Merger, error) {
	c.sizes = &t.sizes
	return m.Mergers(c, t.Layers, t.Parameters, params)
}

// Mergers are the updates of an adapter by the layer's path, or the parameter's name where the checkpoint has it. The
// tensors of a classification head are no update.
func (m Method) Mergers(c Config, layers []string, parameters []Parameter, params []Param) (map[string]Merger, error) {
	params = slices.DeleteFunc(slices.Clone(params), ofHead)
	own, err := (&Trained{Layers: layers, Parameters: parameters}).owners(params)
	if err != nil {
		return nil, err
	}
	mergers := map[string]Merger{}
	for _, l := range layers {
		if mergers[l], err = m.Merge(c, l, own[l]); err != nil {
			return nil, err
		}
		if m.MergeBias == nil {
			continue
		}
		switch merge, err := m.MergeBias(c, l, own[l]); {
		case err != nil:
			return nil, err
		case merge != nil:
			mergers[l+biasSuffix] = merge
		}
	}
	for _, p := range parameters {
		all, err := m.MergeParameter(c, p, own[p.Path])
		if err != nil {
			return nil, err
		}
		maps.Copy(mergers, all)
	}
	return mergers, nil
}

// ParamGroup and GradGroup are the state groups of trained tensors and their accumulated gradients: member
// by member at equal offsets.
const (
	ParamGroup = "adapter"
	GradGroup  = "gradients"
)

// NarrowGroup is the state group of trained weights that a GPU stores in bf16 alone.
const NarrowGroup = "weights in bf16"

// ReferenceGroup is the state group of the frozen tensors of a reference's adapter.
const ReferenceGroup = "reference adapter"

// Trained collects what an adapter trains while a network is built.
type Trained struct {
	Params []*nn.Value
	Rates  []float64 // of each of Params, the multiplier of the learning rate
	// Undecayed says of each of Params whether it has no weight decay: base weights that transformers leaves out.
	Undecayed []bool
	Layers    []string // paths of the adapted layers

	Parameters []Parameter // the adapted parameters of experts

	// Reference has the frozen tensors of the adapter of a reference; nil = the reference is the base model.
	Reference *Trained

	// NarrowMatrices stores trained base weights of two dimensions and more in bf16 alone (graph.Value.NarrowBF16).
	NarrowMatrices bool

	frozen  bool                // the tensors are a reference's: nothing trains them
	base    []string            // names of the trained weights of the base model
	members map[string][]member // by a tensor's name, the tensors of PEFT's that it holds; none = itself
	modules map[string]bool     // the names of the model's linear layers: the ends of their paths
	linears map[string]bool     // the names of their weights
	sizes   layerSizes          // of the adapted layers

	parameters []string        // of experts, that the model has
	routers    map[string]bool // the names of routers' weights that are parameters and no linear layers'
	covered    map[string]bool // the names of experts' layers that an adapted parameter has
}

// Updated lists what is adapted as Config.Rank and Config.Scale take it: paths of layers, names of parameters of experts.
func (t *Trained) Updated() []string {
	names := slices.Clone(t.Layers)
	for _, p := range t.Parameters {
		names = append(names, p.Name)
	}
	return names
}

// param declares a trained tensor under PEFT's name without its prefix, such as
// "model.layers.0.self_attn.q_proj.lora_A.weight".
func (t *Trained) param(n *nn.Net, name string, shape ...int) *nn.Value {
	return t.declare(n, name, kernel.T(n.Float(), shape...))
}

// declare adds a trained tensor with the rate 1.
func (t *Trained) declare(n *nn.Net, name string, typ kernel.Type) *nn.Value {
	if t.frozen {
		p := n.State(ReferenceGroup, referencePrefix+name, typ)
		t.Params = append(t.Params, p)
		return p
	}
	p := parameter(n, name, typ, t.NarrowMatrices)
	t.Params, t.Rates, t.Undecayed = append(t.Params, p), append(t.Rates, 1), append(t.Undecayed, false)
	return p
}

// parameter declares a trained tensor. Those in bf16 alone are a group of their own, which has no copy.
func parameter(n *nn.Net, name string, typ kernel.Type, narrow bool) *nn.Value {
	if !narrow || len(typ.Shape) < 2 {
		return n.Param(ParamGroup, name, typ)
	}
	p := n.Param(NarrowGroup, name, typ)
	p.NarrowBF16()
	return p
}

// Train is the nn.Options.Train that collects trained weights of the base model.
func (t *Trained) Train(n *nn.Net, name string, typ kernel.Type) *nn.Value {
	t.base = append(t.base, name)
	p := t.declare(n, name, typ)
	t.Undecayed[len(t.Undecayed)-1] = undecayed.MatchString(name)
	return p
}

// undecayed matches the base weights that transformers' Trainer leaves out of weight decay: norms and biases.
var undecayed = regexp.MustCompile(`(?i)bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)`)

// DropoutCounter is the name of the batch value [seed, step] that dropout masks are made from.
const DropoutCounter = "dropout counter"

// Wrapper is the nn.Options.Wrap of a method: it adapts the layers that the configuration targets.
func (m Method) Wrapper(t *Trained, c Config) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return func(n *nn.Net, path string, base nn.Linear) nn.Linear {
		t.linear(path)
		if !c.Adapts(path) {
			return base
		}
		t.Layers = append(t.Layers, path)
		t.sizes.add(path, base)
		first := len(t.Params)
		l := m.Wrap(t, c, n, path, base)
		t.rate(m, c, first)
		return l
	}
}

// RouterWrapper is the nn.Options.WrapRouter of a method: it adapts the routers whose weights target_parameters name.
func (m Method) RouterWrapper(t *Trained, c Config) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return func(n *nn.Net, path string, base nn.Linear) nn.Linear {
		if t.routers == nil {
			t.routers = map[string]bool{}
		}
		t.routers[path+weightSuffix] = true
		if !c.parameterMatches(path + weightSuffix) {
			return base
		}
		t.Layers = append(t.Layers, path)
		first := len(t.Params)
		l := m.Wrap(t, c, n, path, base)
		t.rate(m, c, first)
		return l
	}
}

// linear notes a linear layer of the model.
func (t *Trained) linear(path string) {
	if t.modules == nil {
		t.modules, t.linears = map[string]bool{}, map[string]bool{}
	}
	t.modules[path[strings.LastIndexByte(path, '.')+1:]], t.linears[path+".weight"] = true, true
}

// rate sets the learning rates of the tensors from first on.
func (t *Trained) rate(m Method, c Config, first int) {
	for i := first; i < len(t.Rates) && m.Rate != nil; i++ {
		t.Rates[i] = m.Rate(c, t.Params[i].Name)
	}
}

// ofVocabulary tells whether a target is one of the layers that PEFT adapts and we do not.
func ofVocabulary(target string) bool {
	return strings.HasSuffix(target, "lm_head") || strings.HasSuffix(target, "embed_tokens")
}

// CheckTargets reports target names that adapted no layer, and target parameters that are none of experts. weights are the names
// of the network's tensors.
func (t *Trained) CheckTargets(c Config, weights []string) error {
	if err := c.broken(); err != nil {
		return fmt.Errorf("%s: %w", c.own().section(), err)
	}
	if err := c.full().check(weights); err != nil {
		return err
	}
	if err := t.checkSavedModules(c, weights); err != nil {
		return err
	}
	if err := errors.Join(checkBiases(t, c), t.CheckParameters(c, weights)); err != nil {
		return err
	}
	if len(c.TargetModules) == 0 {
		return nil
	}
	valid := strings.Join(sortedKeys(t.modules), ", ")
	if t.parameters != nil && c.FusedExperts() {
		valid += "; with lora.target_parameters experts and routers are parameters, as in transformers 5: name layers of attention"
	}
	if slices.ContainsFunc(c.TargetModules, ofVocabulary) {
		valid += "; embeddings and the vocabulary's head are not adapted: leave them out"
	}
	_, expression := c.TargetModules.expression()
	if len(t.Layers) == 0 && (expression || !t.coversAll(c.TargetModules)) {
		return fmt.Errorf("%s: %v matches no linear layer of the model; it has %s", c.Key("target_modules"), []string(c.TargetModules), valid)
	}
	if err := t.checkSelected(c); err != nil {
		return err
	}
	if expression || c.TargetModules[0] == AllLinear || selectionOf(c).narrows() {
		return nil
	}
	var missing []string
	for _, name := range c.TargetModules {
		found := t.covered[name]
		for _, l := range t.Layers {
			found = found || Targets{name}.Match(l)
		}
		if !found {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s: %s matches no linear layer of the model; it has %s", c.Key("target_modules"), strings.Join(missing, ", "), valid)
	}
	return nil
}

// Snapshot copies the trained tensors out of memory as float32.
func (t *Trained) Snapshot(m graph.Store) ([]Param, error) {
	if err := m.Get(t.names()...); err != nil {
		return nil, fmt.Errorf("read the adapter: %w", err)
	}
	var params []Param
	var err error
	t.each(func(v *nn.Value, from, n int, p member) {
		x, failed := m.Tensor(v.Name)
		if failed != nil {
			err = fmt.Errorf("read the adapter: %w", failed)
			return
		}
		if p.begins() {
			p.Data = make([]float32, p.elems())
			params = append(params, p.Param)
		}
		p.Data = params[len(params)-1].Data
		if x.DType == kernel.F32 {
			for j, f := range x.F32()[from:][:n] {
				p.Data[p.place(j)] = f
			}
			return
		}
		for j, f := range x.F64()[from:][:n] {
			p.Data[p.place(j)] = float32(f)
		}
	})
	if err != nil {
		return nil, err
	}
	return params, nil
}

// Restore writes trained tensors into memory, in Snapshot's order.
func (t *Trained) Restore(m graph.Store, params []Param) error {
	at, want := 0, 0
	t.each(func(_ *nn.Value, _, _ int, p member) {
		if p.begins() {
			want++
		}
	})
	if len(params) != want {
		return fmt.Errorf("%d tensors for an adapter of %d", len(params), want)
	}
	var err error
	t.each(func(v *nn.Value, from, n int, p member) {
		if p.begins() {
			at++
		}
		got := params[at-1]
		x, failed := m.Tensor(v.Name)
		switch {
		case err != nil:
		case failed != nil:
			err = fmt.Errorf("write the adapter: %w", failed)
		case got.Name != p.Name || len(got.Data) != p.elems():
			err = fmt.Errorf("tensor %s of %d elements does not fit %s of %d", got.Name, len(got.Data), p.Name, p.elems())
		case x.DType == kernel.F32:
			for j := range n {
				x.F32()[from+j] = got.Data[p.place(j)]
			}
		default:
			for j := range n {
				x.F64()[from+j] = float64(got.Data[p.place(j)])
			}
		}
	})
	if err != nil {
		return err
	}
	if err := m.Put(t.names()...); err != nil {
		return fmt.Errorf("write the adapter: %w", err)
	}
	return nil
}

func (t *Trained) names() []string {
	names := make([]string, len(t.Params))
	for i, v := range t.Params {
		names[i] = v.Name
	}
	return names
}
