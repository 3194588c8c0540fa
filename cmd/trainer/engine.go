package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// engineFlags holds the flags of chat and serve that select the model, its adapters and their memory.
type engineFlags struct {
	model, device, quantization, template string
	adapters                              []string
	slots, maxLen, workers                int
	only, images                          bool

	named []infer.NamedAdapter
}

func (o *engineFlags) register(cmd *cobra.Command, c *console) {
	f := cmd.Flags()
	pathVar(cmd, &o.model, "model", "",
		"base model: a `DIR`, hub name, or embedded:NAME; default: the one that the first adapter names")
	f.StringArrayVar(&o.adapters, "adapter", nil,
		"adapter `[NAME=]DIR` in PEFT's format, by default with the folder's name; may be repeated")
	f.BoolVar(&o.only, "adapter-only", false,
		"always answer with the one adapter, never with the base model; needed by adapters of experts")
	f.BoolVar(&o.images, "images", false, "answer about images too, with a model that reads them")
	pathVar(cmd, &o.template, "chat-template", "",
		"chat template: a .jinja `FILE` or a name; default: that of the adapter or model")
	f.IntVar(&o.maxLen, "max-length", 0,
		"limit of tokens of prompt and answer together; 0 = the model's context, or less if memory is short")
	quantizationVar(cmd, &o.quantization)
	f.StringVar(&o.device, "device", "auto", "cpu, cuda, or auto (the GPU if there is one)")
	c.downloadFlag(cmd)
	workersVar(cmd, &o.workers)
}

// check returns an error for bad flags before any work starts.
func (o *engineFlags) check() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.model == "" && len(o.adapters) == 0 {
		bad("name a model: --model DIR, or an adapter that names its base model: --adapter DIR")
	}
	if !slices.Contains(graph.DeviceNames, o.device) {
		bad("--device %s: must be one of %s", o.device, strings.Join(graph.DeviceNames, ", "))
	}
	if o.only && len(o.adapters) != 1 {
		bad("--adapter-only: want one --adapter, got %d", len(o.adapters))
	}
	if o.slots < 0 || o.slots > infer.MaxSlots {
		bad("--slots %d: must lie in 0 to %d", o.slots, infer.MaxSlots)
	}
	if o.maxLen < 0 {
		bad("--max-length %d: must be 0 or more", o.maxLen)
	}
	if o.quantization != "" && quant.Schemes[o.quantization] == nil {
		bad("--quantization %s: must be one of %s", o.quantization, strings.Join(quant.Names(), ", "))
	}
	if err := o.nameAdapters(); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return usage(err)
	}
	for _, a := range o.named {
		if err := checkAdapter(a.Dir); err != nil {
			return err
		}
	}
	return checkDevice(train.Spec{Device: o.device})
}

// nameAdapters splits NAME=DIR. If a folder of the whole text exists, including its =, the text is that folder.
func (o *engineFlags) nameAdapters() error {
	seen := map[string]bool{"none": true}
	for _, text := range o.adapters {
		name, dir, ok := strings.Cut(text, "=")
		if !ok || strings.ContainsAny(name, `/\`) {
			dir = text
			name = filepath.Base(filepath.Clean(filename.ExpandHome(dir)))
		}
		dir = filename.ExpandHome(dir)
		switch {
		case name == "" || dir == "":
			return fmt.Errorf("--adapter %s: want NAME=DIR, or DIR alone", words.ShellQuote(text))
		case seen[name]:
			return fmt.Errorf("--adapter %s: the name %s is taken: give it another, --adapter OTHER=%s",
				words.ShellQuote(text), name, dir)
		}
		seen[name] = true
		o.named = append(o.named, infer.NamedAdapter{Name: name, Dir: dir})
	}
	return nil
}

// open opens the engine.
func (o *engineFlags) open(ctx context.Context, c *console, eo infer.EngineOptions) (*infer.Engine, error) {
	env, so, err := o.opening(ctx, c)
	if err != nil {
		return nil, err
	}
	eo.Slots, eo.MaxLen, eo.Adapters, eo.Only = o.slots, o.maxLen, o.named, o.only
	eo.Images = o.images
	return infer.NewEngine(ctx, so, eo, env)
}

// opening finds the base model and returns how to open it.
func (o *engineFlags) opening(ctx context.Context, c *console) (env session.Env, so session.Options, err error) {
	env = environment(c, o.workers)
	first := ""
	if len(o.named) > 0 {
		first = o.named[0].Dir
	}
	if err := findModel(ctx, c, env, &o.model, first); err != nil {
		return env, so, err
	}
	so = session.Options{Model: o.model, Device: o.device}
	if o.quantization != "" {
		q := quant.DefaultOf(o.quantization)
		so.Quantization = &q
	}
	return env, so, nil
}

// modelName returns the name by which clients select the base model.
func modelName(model string) string {
	if short, ok := strings.CutPrefix(model, session.EmbeddedPrefix); ok {
		return short
	}
	if strings.Count(model, "/") == 1 && !strings.HasPrefix(model, ".") && !strings.HasPrefix(model, "/") &&
		!strings.HasSuffix(model, "/") {
		return model // org/name
	}
	return filepath.Base(filepath.Clean(model))
}

// memoryLines returns planned memory by category, a line for each.
func memoryLines(need graph.Bytes) string {
	var b strings.Builder
	line := func(name string, n int64) {
		if n > 0 {
			fmt.Fprintf(&b, "  %-16s %14d bytes  %s\n", name, n, session.FormatBytes(n))
		}
	}
	line("weights", need.Frozen)
	for _, group := range need.Groups() {
		line(group, need.State[group])
	}
	line("activations", need.Arena)
	line("batch", need.Batch)
	fmt.Fprintf(&b, "  %-16s %14d bytes  %s", "total", need.Total(), session.FormatBytes(need.Total()))
	return b.String()
}

// checkDevice returns an error for a device that this machine or build lacks.
func checkDevice(s train.Spec) error {
	if s.Device != "cuda" {
		return nil
	}
	if n, reason := graph.GPUs(); n == 0 {
		return &exitError{code: exitUnfit, err: errors.New("device: cuda is asked for, but " + reason)}
	}
	return nil
}
