package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// drive begins a Windows path.
var drive = regexp.MustCompile(`^[A-Za-z]:`)

// Validate returns every problem of a configuration: of its sections, and of what they say together. Each message
// begins with the key.
func Validate(s train.Spec) []error {
	problems := append(validateModel(s), validatePaths(s)...)
	problems = append(problems, validateEmbeddedRows(s)...)
	if s.OutputDir == "" {
		problems = append(problems, errors.New("output_dir: is missing; name a folder for the run, such as runs/first"))
	}
	problems = append(problems, keys.Check("", s)...)
	if err := s.ValidateDevices(); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, validateVRAM(s)...)
	problems = append(problems, s.Sections.Problems(s.Adapter)...)
	problems = append(problems, s.Tokenizer.Validate()...)
	problems = append(problems, s.Dataset.Validate()...)
	problems = append(problems, s.Training.Validate()...)
	problems = append(problems, objective.Check(s.Training.Objective, s.Objectives)...)
	problems = append(problems, train.CheckRollouts(s)...)
	problems = append(problems, s.ValidateBatches()...)
	if err := s.ValidateReference(); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, s.ValidateTask()...)
	if s.Dataset.Weights {
		if err := objective.CheckWeights(s.Training.Objective, s.Objectives); err != nil {
			problems = append(problems, err)
		}
	}
	problems = append(problems, s.Tracking.Validate()...)
	problems = append(problems, s.Expect.Validate()...)
	problems = append(problems, validateQuantization(s)...)
	problems = append(problems, validateEvaluations(s)...)
	problems = append(problems, validateReference(s)...)
	return append(problems, validateSteps(s)...)
}

// validateModel checks base_model.
func validateModel(s train.Spec) (problems []error) {
	if s.BaseModel == "" {
		problems = append(problems, errors.New("base_model: is missing; name a model folder, "+
			"a hub name such as org/name, or embedded:stories260K"))
	}
	if name, embedded := strings.CutPrefix(s.BaseModel, session.EmbeddedPrefix); embedded {
		if _, err := configs.Model(name); err != nil {
			problems = append(problems, fmt.Errorf("base_model: %w", err))
		}
	}
	return problems
}

// validatePaths finds control characters in paths, which a backslash in double quotes makes.
func validatePaths(s train.Spec) (problems []error) {
	paths := pathsOf(&s)
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		path := paths[key]
		windows := drive.MatchString(*path)
		control := func(r rune) bool { return r >= '\b' && r <= '\r' || windows && unicode.IsControl(r) }
		if at := strings.IndexFunc(*path, control); at >= 0 {
			problems = append(problems, fmt.Errorf("%s: %s has a control character (0x%02x), which no path has: "+
				"a backslash in double quotes begins an escape, so %s", key, strconv.Quote(*path), (*path)[at], asPath))
		}
	}
	return problems
}

// validateEmbeddedRows checks the names of rows that the program has in itself.
func validateEmbeddedRows(s train.Spec) (problems []error) {
	data := s.Dataset
	see := func(key string, d *dataset.Source) error {
		name, embedded := strings.CutPrefix(d.Path, session.EmbeddedPrefix)
		switch {
		case !embedded:
		case strings.HasSuffix(key, "].path"):
			problems = append(problems, fmt.Errorf("%s: embedded rows stand alone: name them in dataset.path", key))
		default:
			if _, err := configs.Data(name); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", key, err))
			}
		}
		return nil
	}
	_ = data.EachSource(see) // it never fails
	return problems
}

// validateVRAM checks the memory limit.
func validateVRAM(s train.Spec) []error {
	n, err := session.ParseBytes(s.VRAM)
	switch {
	case s.VRAM == "":
		return nil
	case err != nil:
		return []error{fmt.Errorf("vram: %w", err)}
	case n == 0:
		return []error{errors.New("vram: no run fits in nothing; leave the key out to use what is free")}
	}
	return nil
}

// validateQuantization checks the section, and that the adapter's method quantises at all.
func validateQuantization(s train.Spec) []error {
	if s.Quantization == nil {
		return nil
	}
	problems := s.Quantization.Validate()
	switch m, quantised, err := adapter.Lookup(s.Adapter); {
	case err == nil && m.Whole():
		problems = append(problems, errors.New("quantization: adapter full trains the base weights, which must be "+
			"kept as numbers; write adapter: qlora, or remove the section"))
	case err == nil && !quantised:
		problems = append(problems, fmt.Errorf("quantization: adapter %s keeps the base weights as they are; "+
			"write adapter: %s, or remove the section", s.Adapter, adapter.OverQuantised(s.Adapter)))
	}
	return problems
}

// validateEvaluations checks that there are rows to evaluate and numbers to judge by wherever a key asks for them.
func validateEvaluations(s train.Spec) (problems []error) {
	bad := func(text string) { problems = append(problems, errors.New(text)) }
	hasVal := s.Dataset.ValSplit > 0 || s.Dataset.ValPath != "" || len(s.Dataset.ValSources) > 0
	asks := len(s.Training.SamplePrompts)+len(s.Training.EvalTasks) > 0
	if s.Training.EvalSteps+s.Training.EvalsPerEpoch > 0 && !hasVal && !asks {
		bad("training.eval_steps: there is nothing to evaluate; set dataset.val_split or dataset.val_path")
	}
	if s.Training.EvalOnStart && !hasVal {
		bad("training.eval_on_start: there is nothing to evaluate; set dataset.val_split or dataset.val_path")
	}
	if s.Expect.EvalLossDecrease > 0 && !s.Training.EvalOnStart {
		bad("expect.eval_loss_decrease: there is nothing to compare with; set training.eval_on_start: true")
	}
	if s.Expect.EvalLossMax > 0 && !hasVal {
		bad("expect.eval_loss_max: there is nothing to evaluate; set dataset.val_split or dataset.val_path")
	}
	return append(problems, s.ValidateNumbers(hasVal)...)
}

// validateReference checks the curve that a run is compared with.
func validateReference(s train.Spec) (problems []error) {
	if strings.HasPrefix(s.Expect.Reference, session.EmbeddedPrefix) {
		if _, err := train.OpenReference(s.Expect.Reference, session.Env{Data: configs.Data}); err != nil {
			problems = append(problems, err)
		}
	}
	if s.Dataset.Streaming && s.Expect.Reference != "" {
		problems = append(problems, errors.New("expect.reference: the rows of a stream are not known "+
			"before they are read; remove dataset.streaming"))
	}
	return problems
}

// validateSteps checks that the number of steps is known and that the warm-up lies within them.
func validateSteps(s train.Spec) (problems []error) {
	if s.Dataset.Streaming && s.Training.MaxSteps == 0 {
		problems = append(problems, errors.New(train.NeedsMaxSteps))
	}
	if s.Training.MaxSteps > 0 && s.Training.WarmupSteps > s.Training.MaxSteps {
		problems = append(problems, fmt.Errorf("training.warmup_steps: %d are more than the run's %d steps",
			s.Training.WarmupSteps, s.Training.MaxSteps))
	}
	return problems
}

// pathsOf are the values of a configuration that name a file or folder, by their keys.
func pathsOf(s *train.Spec) map[string]*string {
	paths := map[string]*string{}
	root := reflect.ValueOf(s).Elem()
	for _, k := range Root.Leaves() {
		if k.form().path {
			if v, err := root.FieldByIndexErr(k.index); err == nil { // a section that is left out has no values
				paths[k.Path] = v.Addr().Interface().(*string)
			}
		}
		for _, c := range k.Keys {
			if !c.form().path {
				continue
			}
			for i := range root.FieldByIndex(k.index).Len() {
				row := root.FieldByIndex(k.index).Index(i)
				paths[fmt.Sprintf("%s[%d].%s", k.Path, i, c.Name)] = row.FieldByIndex(c.index).Addr().
					Interface().(*string)
			}
		}
	}
	return paths
}
