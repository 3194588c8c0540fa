package config

import (
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
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s.BaseModel == "" {
		bad("base_model: is missing; name a model folder, a hub name such as org/name, or embedded:stories260K")
	}
	if name, embedded := strings.CutPrefix(s.BaseModel, session.EmbeddedPrefix); embedded {
		if _, err := configs.Model(name); err != nil {
			bad("base_model: %w", err)
		}
	}
	paths := pathsOf(&s)
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		path := paths[key]
		if at := strings.IndexFunc(*path, func(r rune) bool {
			return r >= '\b' && r <= '\r' || drive.MatchString(*path) && unicode.IsControl(r)
		}); at >= 0 {
			bad("%s: %s has a control character (0x%02x), which no path has: a backslash in double quotes begins an "+
				"escape, so %s", key, strconv.Quote(*path), (*path)[at], asPath)
		}
	}
	data := s.Dataset
	see := func(key string, d *dataset.Source) error {
		name, embedded := strings.CutPrefix(d.Path, session.EmbeddedPrefix)
		switch {
		case !embedded:
		case strings.HasSuffix(key, "].path"):
			bad("%s: embedded rows stand alone: name them in dataset.path", key)
		default:
			if _, err := configs.Data(name); err != nil {
				bad("%s: %w", key, err)
			}
		}
		return nil
	}
	_ = data.EachSource(see) // it never fails
	if s.OutputDir == "" {
		bad("output_dir: is missing; name a folder for the run, such as runs/first")
	}
	problems = append(problems, keys.Check("", s)...)
	_, quantised, err := adapter.Lookup(s.Adapter)
	if err := s.ValidateDevices(); err != nil {
		problems = append(problems, err)
	}
	if n, err := session.ParseBytes(s.VRAM); s.VRAM != "" && err != nil {
		bad("vram: %w", err)
	} else if s.VRAM != "" && n == 0 {
		bad("vram: no run fits in nothing; leave the key out to use what is free")
	}
	problems = append(problems, s.AdapterConfig().Validate()...)
	problems = append(problems, s.Dataset.Validate()...)
	problems = append(problems, s.Training.Validate()...)
	problems = append(problems, objective.Check(s.Training.Objective, s.Objectives)...)
	problems = append(problems, s.Tracking.Validate()...)
	problems = append(problems, s.Expect.Validate()...)
	if s.Quantization != nil {
		problems = append(problems, s.Quantization.Validate()...)
		if err == nil && !quantised {
			bad("quantization: adapter %s keeps the base weights as they are; write adapter: qlora, or remove the "+
				"section", s.Adapter)
		}
	}
	hasVal := s.Dataset.ValSplit > 0 || (s.Dataset.ValPath != "" || len(s.Dataset.ValSources) > 0)
	if s.Training.EvalSteps+s.Training.EvalsPerEpoch > 0 && !hasVal && len(s.Training.SamplePrompts)+
		len(s.Training.EvalTasks) == 0 {
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
	if strings.HasPrefix(s.Expect.Reference, session.EmbeddedPrefix) {
		if _, err := train.OpenReference(s.Expect.Reference, session.Env{Data: configs.Data}); err != nil {
			problems = append(problems, err)
		}
	}
	if s.Dataset.Streaming && s.Expect.Reference != "" {
		bad("expect.reference: the rows of a stream are not known before they are read; remove dataset.streaming")
	}
	if s.Dataset.Streaming && s.Training.MaxSteps == 0 {
		bad("%s", train.NeedsMaxSteps)
	}
	if s.Training.MaxSteps > 0 && s.Training.WarmupSteps > s.Training.MaxSteps {
		bad("training.warmup_steps: %d are more than the run's %d steps", s.Training.WarmupSteps, s.Training.MaxSteps)
	}
	return problems
}

// pathsOf are the values of a configuration that name a file or folder, by their keys.
func pathsOf(s *train.Spec) map[string]*string {
	paths := map[string]*string{}
	root := reflect.ValueOf(s).Elem()
	for _, k := range Root.Leaves() {
		if k.form().path {
			paths[k.Path] = root.FieldByIndex(k.index).Addr().Interface().(*string)
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
