package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model/weights"
)

// HeadWeight is the name of the weight of a vocabulary head that is not tied to the embeddings.
const HeadWeight = "lm_head.weight"

// SavedModules are the modules that an adapter trains and saves in whole: modules_to_save and ensure_weight_tying. The
// zero value is none.
type SavedModules struct {
	Names []string
	Tied  bool // embeddings and head of a tied model are trained as one matrix
}

// Saved returns the modules that are trained in whole. Names is nil if none are.
func (c Config) Saved() SavedModules {
	if len(c.lora().ModulesToSave) == 0 {
		return SavedModules{}
	}
	return SavedModules{c.lora().ModulesToSave, c.lora().EnsureWeightTying}
}

// BeyondSettings returns settings in which only what Beyond describes is set.
func BeyondSettings(c Config) LoRASettings {
	s := c.lora()
	return LoRASettings{ModulesToSave: c.Saved().Names, EnsureWeightTying: c.Saved().Tied,
		Bias: s.Bias, LoRABias: s.LoRABias, TrainableTokenIndices: s.TrainableTokenIndices}
}

// weight reports whether the names mean the module of a weight, or a module that holds it. As in PEFT, a name is the end
// of a module's path, whether or not a dot stands before it: norm also means input_layernorm.
func (s SavedModules) weight(name string) bool {
	for path := name; len(s.Names) > 0; {
		at := strings.LastIndexByte(path, '.')
		if at < 0 {
			return false
		}
		path = path[:at]
		if slices.ContainsFunc(s.Names, func(end string) bool { return strings.HasSuffix(path, end) }) {
			return true
		}
	}
	return false
}

// exclude reports whether PEFT adapts no layer of this path because the names mean it, or a module that holds it.
func (s SavedModules) exclude(path string) bool {
	return slices.ContainsFunc(s.Names, func(name string) bool {
		return strings.Contains("."+path+".", "."+name+".")
	})
}

// savedWeights is the Method.Trains of methods whose section has modules_to_save and bias.
func savedWeights(c Config) func(name string) bool {
	s, bias := c.Saved(), c.lora().Bias
	if len(s.Names) == 0 && bias != biasAll && bias != biasAdapted {
		return nil
	}
	return func(name string) bool { return s.weight(name) || trainsBias(c, name) }
}

// TiesHead reports that the embeddings and the head of a tied model are trained as one matrix. embeddings is the name of
// its weight.
func (s SavedModules) TiesHead(embeddings string) bool { return s.Tied && s.end(embeddings) }

// UntiesHead reports that a tied model gets a head with weights of its own: its embeddings are trained, or its head, or
// both apart. embeddings is the name of their weight.
func (s SavedModules) UntiesHead(embeddings string) bool { return !s.Tied && s.end(embeddings) }

// end reports whether the embeddings or the head are among the modules.
func (s SavedModules) end(embeddings string) bool {
	return s.weight(embeddings) || s.weight(HeadWeight)
}

// checkSaved returns what is wrong with modules_to_save and ensure_weight_tying.
func (s LoRASettings) checkSaved(c Config) (problems []error) {
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("lora.modules_to_save: "+format, args...))
	}
	for i, name := range s.ModulesToSave {
		switch {
		case name == "" || slices.Contains(s.ModulesToSave[:i], name):
			bad("%q is empty or stands there twice", name)
		case strings.HasSuffix(name, ".weight") || strings.HasSuffix(name, ".bias"):
			bad("%q is a tensor; name its module, %q", name, name[:strings.LastIndexByte(name, '.')])
		case slices.Contains(c.TargetModules, name):
			bad("%q is in lora.target_modules too: a module is either adapted or trained in whole; leave it out of one of "+
				"the two", name)
		}
	}
	if s.EnsureWeightTying && !slices.ContainsFunc(s.ModulesToSave, ofVocabulary) {
		problems = append(problems, fmt.Errorf("lora.ensure_weight_tying: it ties embeddings and head that are trained, "+
			"and lora.modules_to_save %v names neither embed_tokens nor lm_head", s.ModulesToSave))
	}
	return problems
}

// checkSavedModules refuses names of modules_to_save of which the network has no weight.
func (t *Trained) checkSavedModules(c Config, weights []string) error {
	for _, name := range c.lora().ModulesToSave {
		if slices.ContainsFunc(t.base, SavedModules{Names: []string{name}}.weight) || c.lora().EnsureWeightTying && ofVocabulary(name) {
			continue
		}
		var modules []string
		for _, weight := range weights {
			module, ok := strings.CutSuffix(weight, weightSuffix)
			if end := module[strings.LastIndexByte(module, '.')+1:]; ok && !slices.Contains(modules, end) {
				modules = append(modules, end)
			}
		}
		return fmt.Errorf("lora.modules_to_save: %q is no module of the model, which has %s", name,
			strings.Join(modules, ", "))
	}
	for _, path := range t.Layers {
		if c.Saved().weight(path + weightSuffix) {
			return fmt.Errorf("lora.modules_to_save: %v names %s, which lora.target_modules adapt: a module is either "+
				"adapted or trained in whole; leave it out of one of the two", c.lora().ModulesToSave, path)
		}
	}
	return nil
}

// TrainedBase splits the tensors of an adapter into trained weights of the base model, by their names in the network, and
// the others.
func (t *Trained) TrainedBase(params []Param) (base, others []Param) {
	for _, p := range params {
		if slices.Contains(t.base, p.Name) {
			base = append(base, p)
		} else {
			others = append(others, p)
		}
	}
	return base, others
}

// Replaces returns what sets a base weight [..., columns] to a trained tensor's numbers.
func Replaces(p Param) Merger {
	columns := 1
	if len(p.Shape) > 0 {
		columns = p.Shape[len(p.Shape)-1]
	}
	return func(rows []float32, from int) { copy(rows, p.Data[from*columns:]) }
}

// WithTiedHead returns the tensors of an adapter as PEFT writes them, for a base model whose embeddings and head are tied:
// where they are trained as one, the head stands beside the embeddings with the same numbers.
func (s SavedModules) WithTiedHead(embeddings string, params []Param) []Param {
	i := slices.IndexFunc(params, func(p Param) bool { return p.Name == embeddings })
	if i < 0 || !s.TiesHead(embeddings) {
		return params
	}
	return append(slices.Clone(params), Param{Name: HeadWeight, Shape: params[i].Shape, Data: params[i].Data})
}

// VocabularyRows returns the number of rows of the embeddings or the head that the folder has, 0 if it has those of
// single tokens. embeddings is the name of the former's weight. some is false if it has none of them.
func (s *Saved) VocabularyRows(embeddings string) (rows int, some bool) {
	if TokenRowsOf(s.Config).Any() {
		return 0, true
	}
	for _, name := range []string{embeddings, HeadWeight} {
		if t, ok := s.file.Tensor(s.tensorName(name)); ok && len(t.Shape) == 2 {
			return t.Shape[0], true
		}
	}
	return 0, false
}

// tiedHead returns the name of the tensor in the file that repeats the embeddings, of an adapter that ties the head to
// them; ok is false if the file has none.
func (s *Saved) tiedHead(params []Param) (name string, ok bool) {
	name = s.Config.Task.peftTensor(HeadWeight)
	_, there := s.file.Tensor(name)
	return name, there && s.Config.lora().EnsureWeightTying &&
		!slices.ContainsFunc(params, func(p Param) bool { return p.Name == HeadWeight })
}

// checkTiedHead refuses an adapter that ties the head to the embeddings and has two that differ.
func (s *Saved) checkTiedHead(name string, params []Param) error {
	head, _ := s.file.Tensor(name)
	for _, p := range params {
		if !strings.HasSuffix(p.Name, "embed_tokens.weight") {
			continue
		}
		own := make([]float32, head.Len())
		if err := weights.Float32s(head, own); err != nil {
			return fmt.Errorf("read adapter tensor %s: %w", name, err)
		}
		if !slices.Equal(own, p.Data) {
			return fmt.Errorf("the adapter has ensure_weight_tying, and its %s differs from its %s: set "+
				"ensure_weight_tying to false in %s if both were trained apart", name, s.tensorName(p.Name), ConfigFile)
		}
	}
	return nil
}
