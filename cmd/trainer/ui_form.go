package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report/live"
	"github.com/tierlora/tierlora/train"
)

// checkedText checks a configuration as a run would.
func checkedText(text []byte) live.Checked {
	loaded, problems := config.Merge("configuration", text, os.Environ(), nil)
	checked := live.Checked{Notes: loaded.Notes, OutputDir: loaded.Spec.OutputDir, Values: map[string]string{}}
	if hint := config.OtherProgram("FILE", text); len(problems) > 0 && hint != "" {
		checked.Problems = append(checked.Problems, live.Problem{Message: strings.TrimPrefix(hint, "; ")})
	}
	for _, p := range problems {
		key := config.KeyOf(p.Text)
		if found, _ := config.Root.Find(key); found == config.Root {
			key = ""
		}
		checked.Problems = append(checked.Problems, live.Problem{Key: key, Line: p.At.Line, Message: p.Text})
	}
	if len(problems) == 0 {
		checked.Wants = wantsOf(loaded.Spec)
		if err := checkDevice(loaded.Spec); err != nil {
			checked.Problems = append(checked.Problems, live.Problem{Key: "device", Message: err.Error()})
		}
		// the environment's secrets are not known here
		if err := train.CheckTrackers(loaded.Spec); errors.Is(err, atomicfile.ErrNotOurs) {
			checked.Problems = append(checked.Problems, live.Problem{Key: "tracking.metrics_file",
				Message: safetext.Mask(err.Error())})
		}
	}
	if given, err := settingsOf(text); err == nil {
		for _, s := range given {
			checked.Values[s.Key] = s.Value
		}
	}
	return checked
}

// fields lists the keys that a form shows: all keys whose value is one line.
func fields() []live.Field {
	defaults, required := config.Defaults(), config.Required()
	var all []live.Field
	for _, k := range config.Root.Leaves() {
		if k.Kind == config.KindTable || k.Kind == config.KindRows {
			continue
		}
		f := live.Field{Key: k.Path, Kind: "text", About: strings.ReplaceAll(k.About, "`", ""),
			Required: required[k.Path] && k.Instead == ""}
		switch k.Kind {
		case config.KindWhole, config.KindUnsigned, config.KindNumber:
			f.Kind = "number"
		case config.KindTruth:
			f.Choices = []string{"true", "false"}
		case config.KindList:
		default:
			f.Choices = k.Choices
		}
		if v, ok := defaults[k.Path]; ok {
			f.Default = strings.Trim(fmt.Sprint(v), "[]")
		}
		all = append(all, f)
	}
	return all
}

// templates returns the built-in configurations as starting points of a form, first the one that any machine can train.
func templates() []live.Template {
	names := []string{"cpu_stories_quick"}
	for _, name := range append(configs.Examples(), configs.Names()...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var all []live.Template
	for _, name := range names {
		if text, ok := configs.Read(name); ok {
			all = append(all, live.Template{Name: name, About: headline(text),
				Text: string(bytes.TrimSpace(withoutSchemaLine(text))) + "\n"})
		}
	}
	return all
}
