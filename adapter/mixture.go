package adapter

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ExpertLayer splits the path of a linear layer of one expert, such as model.layers.0.mlp.experts.3.up_proj, into the module of the
// experts, the expert's number and the layer's name.
func ExpertLayer(path string) (module, number, name string, ok bool) {
	rest, name, ok := cutLast(path)
	if !ok {
		return "", "", "", false
	}
	module, number, ok = cutLast(rest)
	if !ok || !strings.HasSuffix(module, ".experts") || number == "" || strings.Trim(number, "0123456789") != "" {
		return "", "", "", false
	}
	return module, number, name, true
}

// cutLast splits a path at its last dot.
func cutLast(path string) (before, last string, ok bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// tensorNames settles by the names of the file's tensors how the adapter takes a mixture of experts, which adapter_config.json leaves
// open.
//   - Experts that have tensors of their own are linear layers. Target parameters of theirs are for PEFT under transformers 5, which
//     stacks the tensors while it loads them, and say nothing here.
//   - A file without a tensor of experts, all of whose target modules have tensors, was written where experts are parameters: PEFT under
//     transformers 5 matches gate_proj with a shared expert and not with the experts.
func (s *Saved) tensorNames() {
	s.oldNames()
	var layers []string
	experts := false
	for _, name := range s.file.Names() {
		layer, isA := strings.CutSuffix(strings.TrimPrefix(name, peftPrefix), suffixA)
		if !isA {
			if layer, isA = strings.CutSuffix(layer, suffixEmbeddingA); !isA {
				continue
			}
		}
		if _, _, _, ok := ExpertLayer(layer); ok {
			experts = true
		}
		layers = append(layers, layer)
	}
	c := &s.Config
	switch {
	case experts && c.TargetParameters != nil:
		c.expertLayers = true
		kept := []string{}
		for _, name := range c.TargetParameters {
			if strings.HasSuffix(name, weightSuffix) {
				kept = append(kept, name)
			}
		}
		c.TargetParameters = kept
	case !experts && len(c.TargetParameters) == 0:
		c.selection.noExperts = c.allHaveTensors(layers)
	}
}

// tensorName is the name in the file of a trained tensor. Transformers 5 has Mixtral's router at another path than the checkpoint, and so
// has an adapter that was saved there.
func (s *Saved) tensorName(own string) string {
	name := peftTensor(s.Config, own)
	if _, there := s.file.Tensor(name); !there {
		for _, renamed := range []string{nameIn5(name), peftPrefix + nameBefore452(own)} {
			if _, there := s.file.Tensor(renamed); there && renamed != name {
				return renamed
			}
		}
	}
	return name
}

// Names of the language model of a folder with images: as transformers has had them since 4.52, and before.
const (
	languageModel          = "model.language_model."
	languageModelBefore452 = "language_model.model."
)

// nameBefore452 is the name that a tensor or layer of a language model beside images had before transformers 4.52.
func nameBefore452(name string) string {
	if rest, ok := strings.CutPrefix(name, languageModel); ok {
		return languageModelBefore452 + rest
	}
	return name
}

// nameSince452 is nameBefore452's inverse.
func nameSince452(name string) string {
	if rest, ok := strings.CutPrefix(name, languageModelBefore452); ok {
		return languageModel + rest
	}
	return name
}

// oldNames settles which layers an adapter with names from before transformers 4.52 adapts. Its tensors say so, by which a target that
// is an expression or a path of those names is replaced.
func (s *Saved) oldNames() {
	var layers []string
	for _, name := range s.file.Names() {
		if layer, isA := strings.CutSuffix(strings.TrimPrefix(name, peftPrefix), suffixA); isA {
			if now := nameSince452(layer); now != layer {
				layers = append(layers, now)
			}
		}
	}
	for _, layer := range layers {
		if !s.Config.Adapts(layer) {
			s.Config.TargetModules, s.Config.selection = layers, selection{}
			return
		}
	}
}

// allHaveTensors tells whether layers, which have tensors in a file, are of every target module.
func (c Config) allHaveTensors(layers []string) bool {
	if _, expression := c.TargetModules.expression(); expression {
		for _, layer := range layers {
			if strings.Contains(layer, ".mlp.") && c.TargetModules.Match(layer) {
				return true
			}
		}
		return false
	}
	for _, name := range c.TargetModules {
		found := false
		for _, layer := range layers {
			found = found || name != AllLinear && Targets{name}.Match(layer)
		}
		if !found {
			return false
		}
	}
	return len(c.TargetModules) > 0
}

// Mixture says how transformers and PEFT take a model's mixture of experts. The zero value is a model without one, or one whose experts
// are parameters in every version.
type Mixture struct {
	// Stacked: experts are linear layers under transformers 4 and parameters under transformers 5.
	Stacked bool
	// Renamed: PEFT under transformers 5 takes gate_proj, up_proj, down_proj (w1, w3, w2) and gate among target_modules for experts and
	// routers, whatever layer they name, and gives gate_up_proj twice the rank.
	Renamed bool
}

// peftForm is what adapter_config.json says in place of a configuration's targets, and before its patterns, so that PEFT adapts the same
// layers under transformers 4 and 5.
type peftForm struct {
	modules, parameters []string
	ranks               patterns[int]
	alphas              patterns[float64]
}

// The parts of an expert, by the names of its linear layers.
const (
	gatePart = iota
	upPart
	downPart
)

var expertParts = map[string]int{"gate_proj": gatePart, "w1": gatePart, "up_proj": upPart, "w3": upPart, "down_proj": downPart, "w2": downPart}

// IsDown tells whether a linear layer of an expert, by its name, is the one behind the other two.
func IsDown(name string) bool {
	part, ok := expertParts[name]
	return ok && part == downPart
}

// expertModule is the experts of one of the model's layers.
type expertModule struct {
	path     string    // in the checkpoint, such as model.layers.0.mlp.experts
	experts  int       // how many there are
	adapted  [3]int    // of each part, how many experts
	first    [3]string // of each part, an adapted layer
	partName [3]string
}

// name is the module's path under transformers 5.
func (m *expertModule) name() string { return nameIn5(m.path) }

func nameIn5(path string) string { return strings.Replace(path, ".block_sparse_moe.", ".mlp.", 1) }

// router is the path of the module's router.
func (m *expertModule) router() string { return strings.TrimSuffix(m.path, "experts") + "gate" }

// ForPEFT returns the configuration with what its adapter_config.json needs so that PEFT loads the adapter of t right under transformers
// 4.57 and under transformers 5, and a sentence for each case that PEFT refuses. PEFT loads no case as another model without an error.
func (c Config) ForPEFT(t *Trained, mixture Mixture) (Config, []string) {
	c.sizes = &t.sizes
	f := formOf{Config: c, mixture: mixture, trained: t, adapted: map[string]bool{}}
	for _, path := range t.Layers {
		f.adapted[path] = true
	}
	var notes []string
	switch {
	case len(t.Parameters) > 0 && mixture.Stacked:
		notes = append(notes, "adapter in PEFT: under transformers 4, where experts are linear layers, PEFT refuses an adapter of target_parameters"+exportForBoth)
	case len(t.Parameters) > 0 && t.Parameters[0].Layers == nil:
		notes = append(notes, "adapter in PEFT: under transformers 4, PEFT 0.19 and later takes the parameters of these experts for transposed; load the adapter under transformers 5, or with PEFT 0.18")
	}
	if !mixture.Stacked {
		if _, expression := c.TargetModules.expression(); expression {
			var layers []string
			for _, path := range t.Layers {
				if !c.parameterMatches(path + weightSuffix) {
					layers = append(layers, path)
				}
			}
			c.named = shortest(layers, t.Linears(), 1)
		}
		return c, notes
	}
	f.findModules()
	problems := f.problems()
	f.build()
	c.form = &f.form
	for _, problem := range problems {
		notes = append(notes, "adapter in PEFT: "+problem+exportForBoth)
	}
	return c, notes
}

const exportForBoth = "; `trainer export --format peft` writes an adapter that loads under both"

// formOf is a peftForm under construction.
type formOf struct {
	Config
	mixture Mixture
	trained *Trained
	adapted map[string]bool // paths of layers
	modules []*expertModule
	form    peftForm
	// wanted are the ranks and alphas that PEFT must find, by the names by which it looks them up.
	wanted []wantedPattern
}

type wantedPattern struct {
	name  string
	rank  int
	alpha float64
}

func (f *formOf) findModules() {
	by := map[string]*expertModule{}
	for _, path := range f.trained.Linears() {
		module, number, name, ok := ExpertLayer(path)
		part, known := expertParts[name]
		if !ok || !known {
			continue
		}
		m := by[module]
		if m == nil {
			m = &expertModule{path: module}
			by[module], f.modules = m, append(f.modules, m)
		}
		if n, err := strconv.Atoi(number); err == nil {
			m.experts = max(m.experts, n+1)
		}
		m.partName[part] = name
		if f.adapted[path] {
			if m.adapted[part] == 0 {
				m.first[part] = path
			}
			m.adapted[part]++
		}
	}
}

// any tells whether a module's experts are adapted.
func (m *expertModule) any() bool { return m.adapted != [3]int{} }

// problems says what PEFT under transformers 5 does not load, the first of each kind.
func (f *formOf) problems() (texts []string) {
	const under = "under transformers 5 PEFT "
	said := map[string]bool{}
	say := func(kind, format string, args ...any) {
		if !said[kind] {
			said[kind] = true
			texts = append(texts, under+fmt.Sprintf(format, args...))
		}
	}
	for _, m := range f.modules {
		gate, up := m.adapted[gatePart], m.adapted[upPart]
		if f.Dropout > 0 && (m.any() || f.adapted[m.router()]) {
			say("dropout", "refuses an adapter of experts or routers with a dropout, here %g", f.Dropout)
		}
		if (gate > 0) != (up > 0) {
			say("halves", "refuses %s and %s of experts unless both are adapted", m.partName[gatePart], m.partName[upPart])
			continue
		}
		for part, n := range m.adapted {
			if n > 0 && n < m.experts {
				say("some", "refuses an adapter of some experts only: %d of %d have one of %s in %s", n, m.experts, m.partName[part], m.path)
			}
		}
		if gate > 0 && !sameScale(f.Scale(m.first[gatePart]), f.Scale(m.first[upPart])) {
			say("scale", "refuses %s and %s of experts with two scales, here %g and %g", m.partName[gatePart], m.partName[upPart],
				f.Scale(m.first[gatePart]), f.Scale(m.first[upPart]))
		}
	}
	if f.Dropout > 0 && len(f.misnamed()) > 0 {
		say("dropout", "takes %s for experts, and refuses them with a dropout, here %g", f.misnamed()[0], f.Dropout)
	}
	return texts
}

func sameScale(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(a) }

// misnamed are the adapted layers beside the experts whose names PEFT takes for those of experts.
func (f *formOf) misnamed() (paths []string) {
	for _, path := range f.trained.Layers {
		_, name, _ := cutLast(path)
		_, _, _, expert := ExpertLayer(path)
		if _, taken := expertParts[name]; f.mixture.Renamed && taken && !expert {
			paths = append(paths, path)
		}
	}
	return paths
}

// build fills the form in.
func (f *formOf) build() {
	asParameter := map[string]bool{} // adapted layers that the file names as parameters
	f.form.parameters = append(f.form.parameters, f.TargetParameters...)
	for _, path := range f.trained.Layers {
		asParameter[path] = f.parameterMatches(path + weightSuffix)
	}
	var weights []string
	if f.Dropout == 0 {
		for _, path := range f.misnamed() {
			if !asParameter[path] {
				asParameter[path], weights = true, append(weights, path)
				f.want(path+weightSuffix, f.Rank(path), f.alpha(path))
			}
		}
	}
	stacks := [2][]string{}
	for _, m := range f.modules {
		f.wantExperts(m)
		if gateUp := m.adapted[gatePart]+m.adapted[upPart] > 0; gateUp || m.adapted[downPart] > 0 {
			if gateUp && !f.mixture.Renamed {
				stacks[0] = append(stacks[0], m.name()+".gate_up_proj")
			}
			if !f.mixture.Renamed || m.adapted[downPart] == 0 { // without it the two parameters' names would move
				stacks[1] = append(stacks[1], m.name()+".down_proj")
			}
		}
		if router := m.router(); f.adapted[router] {
			if !f.mixture.Renamed && f.Dropout == 0 && !asParameter[router] {
				asParameter[router], weights = true, append(weights, router)
			}
			f.want(nameIn5(router)+weightSuffix, f.Rank(router), f.alpha(router))
		}
	}
	var modules []string
	for _, path := range f.trained.Layers {
		if !asParameter[path] {
			modules = append(modules, path)
		}
	}
	all := f.trained.Linears()
	f.form.modules = shortest(modules, all, 1)
	if len(f.trained.Parameters) > 0 {
		// Without a module that it can't adapt, PEFT under transformers 4 would leave the parameters out, which it has not, and load the rest.
		f.form.modules = append(f.form.modules, "experts.0")
		slices.Sort(f.form.modules)
	}
	for _, name := range shortest(weights, all, 2) {
		f.form.parameters = append(f.form.parameters, name+weightSuffix)
	}
	for i, name := range []string{".gate_up_proj", ".down_proj"} {
		var there []string
		for _, m := range f.modules {
			there = append(there, m.name()+name)
		}
		f.form.parameters = append(f.form.parameters, shortest(stacks[i], there, 3)...)
	}
	f.patterns()
}

// want notes the rank and alpha that PEFT must find under a name.
func (f *formOf) want(name string, rank int, alpha float64) {
	f.wanted = append(f.wanted, wantedPattern{name, rank, alpha})
}

// wantExperts notes those of a module's two parameters. The rank of gate_up_proj is the sum of its parts'. Where the parts have two
// scales, for which PEFT has no place, it is one at which PEFT refuses the tensors.
func (f *formOf) wantExperts(m *expertModule) {
	if path := m.first[downPart]; path != "" {
		f.want(m.name()+".down_proj", f.Rank(path), f.alpha(path))
	}
	gate, up := m.first[gatePart], m.first[upPart]
	if gate == "" || up == "" {
		return
	}
	rank := f.Rank(gate) + f.Rank(up)
	alpha := f.alpha(gate) * float64(rank) / float64(f.Rank(gate))
	if f.lora().UseRSLoRA {
		alpha = f.alpha(gate) * math.Sqrt(float64(rank)/float64(f.Rank(gate)))
	}
	if !sameScale(f.Scale(gate), f.Scale(up)) {
		rank = f.Rank(gate)
	}
	f.want(m.name()+".gate_up_proj", rank, alpha)
}

// patterns writes those of the wanted ranks and alphas that PEFT would not find by the configuration's own: one pattern for the
// parameters of one name in all layers, where they are alike.
func (f *formOf) patterns() {
	ends, order := map[string][]wantedPattern{}, []string{}
	for _, w := range f.wanted {
		end := w.name
		if m := afterLayer.FindStringIndex(w.name); m != nil {
			end = w.name[m[1]:]
		}
		if ends[end] == nil {
			order = append(order, end)
		}
		ends[end] = append(ends[end], w)
	}
	for _, end := range order {
		ranks, alphas := map[string]int{}, map[string]float64{}
		differ := [2]bool{}
		for _, w := range ends[end] {
			rank, alpha := f.R, f.Alpha
			if f.mixture.Renamed && strings.HasSuffix(w.name, ".gate_up_proj") {
				rank, alpha = 2*rank, 2*alpha
			}
			ranks[w.name], alphas[w.name] = w.rank, w.alpha
			differ[0] = differ[0] || firstMatch(f.RankPattern, f.rankOrder, w.name, rank) != w.rank
			differ[1] = differ[1] || !sameScale(firstMatch(f.AlphaPattern, f.alphaOrder, w.name, alpha), w.alpha)
		}
		if differ[0] {
			f.form.ranks.addEach(end, ranks)
		}
		if differ[1] {
			f.form.alphas.addEach(end, alphas)
		}
	}
}

// afterLayer ends where a name inside a layer begins.
var afterLayer = regexp.MustCompile(`^.*\.layers\.\d+\.`)

// shortest are the shortest ends, of least parts or more and not from a number on, that match paths and no other of all; a path itself
// where there is none.
func shortest(paths, all []string, least int) []string {
	const most = 3
	end := func(path string, parts int) string {
		at := len(path)
		for range parts {
			if at = strings.LastIndexByte(path[:at], '.'); at < 0 {
				return path
			}
		}
		return path[at+1:]
	}
	in := map[string]bool{}
	for _, path := range paths {
		in[path] = true
	}
	others := map[string]bool{} // ends of the other paths
	for _, path := range all {
		for n := least; n <= most && !in[path]; n++ {
			others[end(path, n)] = true
		}
	}
	ends := []string{}
	for _, path := range paths {
		found := path
		for n := most; n >= least; n-- {
			if e := end(path, n); !others[e] && !strings.ContainsAny(e[:1], "0123456789") {
				found = e
			}
		}
		ends = append(ends, found)
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// Linears are the paths of the model's linear layers, adapted or not, sorted.
func (t *Trained) Linears() []string {
	paths := sortedKeys(t.linears)
	for i, name := range paths {
		paths[i] = strings.TrimSuffix(name, weightSuffix)
	}
	return paths
}
