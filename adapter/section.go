package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/model/nn"
)

// Layers are the keys that the sections of methods other than LoRA's have in common.
type Layers struct {
	// TargetModules selects the linear layers to adapt, as lora.target_modules does: a list of names (the ends of their
	// paths), one regular expression in Python's syntax that must match a whole path, or all-linear. Empty means what
	// the method's documentation names.
	TargetModules Targets `yaml:"target_modules,omitempty" resume:"compared"`
	// InitFrom is the folder of an adapter of this method in PEFT's format to start from, instead of fresh weights.
	InitFrom string `yaml:"init_from,omitempty" form:"path" resume:"free"`
}

// config returns the configuration of a section with these layers; unset means the targets where none are named. rank
// and alpha are those of Shared: 1 where the method has none.
func (l Layers) config(own Settings, unset Targets, rank int, alpha float64) Config {
	targets := l.TargetModules
	if len(targets) == 0 {
		targets = unset
	}
	return Config{Shared: Shared{R: rank, Alpha: alpha, TargetModules: targets, InitFrom: l.InitFrom}, Own: own}
}

// alone is a section without the keys of Shared.
type alone interface {
	// standalone returns the section's problems beside those of single keys.
	standalone() []error
}

// summariser is a section that describes in a line what is trained.
type summariser interface{ summary(c Config) string }

// noScale is the part of Settings of a method whose update has no factor.
type noScale struct{}

func (noScale) scale(float64, float64) float64 { return 1 }

func (noScale) problems(Config) []error { return nil }

// problems returns what is wrong with targets, each error beginning with a key.
func (t Targets) problems(bad func(format string, args ...any)) {
	for _, name := range t {
		if name == AllLinear && len(t) > 1 {
			bad("target_modules: %s stands alone, not in a list with others", AllLinear)
		}
		if name == "" {
			bad("target_modules: an empty name")
		}
	}
	if re, ok := t.expression(); ok {
		if _, err := whole(re); err != nil {
			bad("target_modules: %q is no regular expression: %v", re, err)
		}
	}
}

// targetProblems returns what is wrong with the targets of a section.
func (l Layers) targetProblems(section string) (problems []error) {
	l.TargetModules.problems(func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(section+"."+format, args...))
	})
	return problems
}

// Unused returns a problem for each section that is set and that the method of a value of `adapter:` does not read.
func (s Sections) Unused(name string) (problems []error) {
	m, _, err := Lookup(name)
	if err != nil {
		return nil
	}
	read := m.Section(s).own().section()
	var unset Sections
	keys.SetDefaults(&unset)
	defaults := map[string]reflect.Value{}
	unset.each(func(key string, section reflect.Value) { defaults[key] = section })
	s.each(func(key string, section reflect.Value) {
		switch {
		case key == read || equalSections(section, defaults[key]):
		case key == loraSectionName && m.Whole():
			problems = append(problems, errors.New("lora: does nothing with adapter: full, which trains the base model's "+
				"own weights: remove it, or write adapter: lora"))
		case key == fullSectionName:
			problems = append(problems, errors.New("full.train: does nothing but with adapter: full: remove it"))
		default:
			problems = append(problems, fmt.Errorf("%s: does nothing with adapter: %s, which reads the section %s: remove it",
				key, name, read))
		}
	})
	return problems
}

const (
	loraSectionName = "lora"
	fullSectionName = "full"
)

// equalSections compares two sections as text, in which an empty list is one that is not set.
func equalSections(x, y reflect.Value) bool {
	return fmt.Sprintf("%+v", x.Interface()) == fmt.Sprintf("%+v", y.Interface())
}

// settingsOf returns the settings of the configuration's own section; where that is another one, with nothing set.
func settingsOf[S Settings](c Config) S {
	s, _ := c.Own.(S)
	return s
}

// wrapped is the linear layer that a method changes. It has the size and the weight of its base.
type wrapped struct {
	n    *nn.Net
	base nn.Linear
}

// Size returns the numbers of inputs and outputs.
func (l wrapped) Size() (in, out int) { return l.base.Size() }

// Weight returns the base weight.
func (l wrapped) Weight() *nn.Value { return l.base.Weight() }

// checkRank refuses the rank of a file that is below 1.
func checkRank(r int, bad func(format string, args ...any)) {
	if r < 1 {
		bad("r is %d: it must be at least 1", r)
	}
}

// shaped declares a trained tensor that PEFT keeps in another shape of as many numbers.
func (t *Trained) shaped(n *nn.Net, name string, inFile []int, shape ...int) *nn.Value {
	return t.stack(n, name, []member{{Param: Param{Name: name, Shape: inFile}}}, shape...)
}

// scaleColumns multiplies the columns of x [M,N] by m [N].
func scaleColumns(n *nn.Net, x, m *nn.Value) *nn.Value {
	return nn.ScaleColumns(n, x, m)
}

// tensorOf returns the trained tensor of a layer with a suffix.
func tensorOf(layer, suffix string, own []Param) (Param, error) {
	i := slices.IndexFunc(own, func(p Param) bool { return p.Name == layer+suffix })
	if i < 0 {
		return Param{}, fmt.Errorf("layer %s lacks %s", layer, suffix[1:])
	}
	return own[i], nil
}

// methodFile is what adapter_config.json of every method has.
type methodFile struct {
	BaseModel     string   `json:"base_model_name_or_path"`
	Bias          string   `json:"bias"`
	FanInFanOut   bool     `json:"fan_in_fan_out"`
	ModulesToSave []string `json:"modules_to_save"`
	Revision      string   `json:"revision"`
	TargetModules any      `json:"target_modules"`
	TaskType      string   `json:"task_type"`
}

// parseMethod reads adapter_config.json of a method other than LoRA's. own receives the method's own keys, whose names
// are known; only lists those that must have the value beside them or be absent. finish makes the section of own.
func parseMethod(raw []byte, all map[string]json.RawMessage, own any, only map[string]string,
	finish func(l Layers, bad func(format string, args ...any)) Config) (Config, string, error) {
	var p methodFile
	if err := errors.Join(jsonerr.Unmarshal(raw, &p), jsonerr.Unmarshal(raw, own)); err != nil {
		return Config{}, "", err
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if p.Bias != "none" && p.Bias != "" {
		bad("bias %q: only adapters that train no bias are supported", p.Bias)
	}
	if p.FanInFanOut {
		bad("fan_in_fan_out is true: no model here stores its weights that way")
	}
	known := append(jsonNames(p), jsonNames(own)...)
	known = append(append(known, "peft_type"), slices.Concat(harmless, selectionKeys)...)
	for _, k := range sortedKeys(all) {
		value := strings.TrimSpace(string(all[k]))
		if want, ok := only[k]; ok && value != want && !isOff(all[k]) {
			bad("%s is %s: only %s is supported", k, value, want)
		} else if !ok && !slices.Contains(known, k) && !isOff(all[k]) {
			bad("%s is %s: tierlora does not know whether it changes the adapter", k, value)
		}
	}
	task, saved := readTask(p.TaskType, p.ModulesToSave, bad)
	if saved != nil {
		bad("modules_to_save %v: whole trained modules are not supported", saved)
	}
	targets := readTargets(p.TargetModules, bad)
	if p.TargetModules == nil {
		bad("target_modules is missing")
	}
	c := finish(Layers{TargetModules: targets}, bad)
	c.Task = task
	_, expression := p.TargetModules.(string)
	c.selection = readSelection(all, expression, bad)
	if len(problems) == 0 {
		problems = c.Validate()
	}
	return c, withRevision(p.BaseModel, p.Revision), errors.Join(problems...)
}

// readTargets reads target_modules of adapter_config.json.
func readTargets(value any, bad func(format string, args ...any)) (targets Targets) {
	switch t := value.(type) {
	case string:
		return Targets{t}
	case []any:
		for _, m := range t {
			name, ok := m.(string)
			if !ok {
				bad("target_modules holds %v, which is no name", m)
			}
			targets = append(targets, name)
		}
		sort.Strings(targets)
	case nil:
	default:
		bad("target_modules is %v: no name and no list of names", t)
	}
	return targets
}

// jsonNames lists the keys that a struct reads.
func jsonNames(of any) (names []string) {
	t := reflect.TypeOf(of)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// formatMethod writes adapter_config.json of a method other than LoRA's, keys in PEFT's alphabetical order.
func formatMethod(c Config, base string, layers []string, peftType string, own map[string]any) ([]byte, error) {
	file := map[string]any{
		"auto_mapping": nil, "base_model_name_or_path": base, "inference_mode": true,
		"modules_to_save": c.Task.modulesToSave(), "peft_type": peftType, "revision": nil,
		"target_modules": c.fileTargets(layers), "task_type": c.Task.taskType(),
	}
	if m := hubName.FindStringSubmatch(base); m != nil { // PEFT has the revision in a key of its own
		file["base_model_name_or_path"], file["revision"] = m[1], m[2]
	}
	for k, v := range own {
		file[k] = v
	}
	return json.MarshalIndent(file, "", "  ")
}

// layerSizes are the numbers of inputs and outputs of adapted layers, by path, and the largest of each.
type layerSizes struct {
	inputs, outputs map[string]int
	in, out         int
}

// add notes the size of a layer.
func (s *layerSizes) add(path string, base nn.Linear) {
	if s.inputs == nil {
		s.inputs, s.outputs = map[string]int{}, map[string]int{}
	}
	in, out := base.Size()
	s.inputs[path], s.outputs[path] = in, out
	s.in, s.out = max(s.in, in), max(s.out, out)
}

// width returns the number of inputs of a layer.
func (c Config) width(layer string) (int, error) {
	if c.sizes == nil || c.sizes.inputs[layer] == 0 {
		return 0, fmt.Errorf("the number of inputs of %s is not known", layer)
	}
	return c.sizes.inputs[layer], nil
}
