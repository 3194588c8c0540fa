package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// configOptions holds the flags of every command that reads a configuration.
type configOptions struct {
	config string
	sets   []string
	vram   string
	device string // value of --devices
	strict bool
}

func (o *configOptions) register(cmd *cobra.Command) {
	pathVar(cmd, &o.config, "config", "c", "configuration `FILE`: a path, a name in configs/, or a built-in one")
	completeConfigs(cmd)
	cmd.Flags().StringArrayVar(&o.sets, "set", nil,
		"set one `KEY=VALUE`, such as training.max_steps=10; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("set", completeSet))
	cmd.Flags().StringVar(&o.vram, "vram", "", "memory limit, a `SIZE` such as 8GiB; short for --set vram=")
}

// devicesFlag adds --devices to a command whose work several devices can share.
func (o *configOptions) devicesFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.device, "devices", "",
		"`DEVICES` to train on: a number, all, or GPUs such as 0,2; short for --set devices=")
}

// strictFlag adds --strict to a command that plans a run.
func (o *configOptions) strictFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.strict, "strict", false, "refuse to run slower than the device could, naming cause, cost "+
		"and cure; short for --set training.strict=true")
}

// argument takes the configuration from the command's single argument, if there is one.
func (o *configOptions) argument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if len(args) > 1 {
		word := args[1]
		if name, value, ok := strings.Cut(strings.TrimLeft(word, "+~"), "="); ok {
			if key := config.KeyMeant(name); key != "" {
				name = key
			}
			return usage(fmt.Errorf("%s takes one configuration; write %s as --set %s", cmd.CommandPath(),
				words.ShellQuote(word), words.ShellQuote(name+"="+value)))
		}
		return usage(fmt.Errorf("%s takes one configuration, got %s and %s", cmd.CommandPath(),
			words.ShellQuote(args[0]), words.ShellQuote(word)))
	}
	if o.config != "" {
		return usage(fmt.Errorf("%s takes one configuration, got --config %s and %s", cmd.CommandPath(),
			words.ShellQuote(o.config), words.ShellQuote(args[0])))
	}
	o.config = filename.ExpandHome(args[0])
	return nil
}

// load reads the configuration and prints its notes.
func (o *configOptions) load(c *console) (config.Loaded, error) {
	loaded, err := o.read()
	c.notes(loaded)
	return loaded, err
}

// open reads the configuration, checks that its device is here, and finds its base model. It returns the environment of
// the work, which uses a number of CPU threads.
func (o *configOptions) open(ctx context.Context, c *console, workers int) (config.Loaded, session.Env, error) {
	loaded, err := o.load(c)
	if err != nil {
		return loaded, session.Env{}, err
	}
	if err := checkDevice(loaded.Spec); err != nil {
		return loaded, session.Env{}, err
	}
	env := environment(c, workers)
	return loaded, env, findBase(ctx, &loaded, c, env)
}

func (c *console) notes(loaded config.Loaded) {
	for _, note := range loaded.Notes {
		c.say("note: %s", note)
	}
}

func (o *configOptions) read() (config.Loaded, error) {
	if o.vram != "" {
		o.sets = append(o.sets, "--vram="+o.vram)
	}
	if o.device != "" {
		o.sets = append(o.sets, "--devices="+deviceList(o.device))
	}
	if o.strict {
		o.sets = append(o.sets, "--strict=true")
	}
	return loadConfig(o.config, o.sets)
}

// deviceList converts 0,2 to a YAML list.
func deviceList(text string) string {
	if strings.Contains(text, ",") && !strings.HasPrefix(text, "[") {
		return "[" + text + "]"
	}
	return text
}

// environment returns what the train package needs from this program.
func environment(c *console, workers int) session.Env {
	return session.Env{
		Version: version(), Commit: built.Commit, Dirty: built.Dirty,
		Workers: workers,
		Hub:     c.hub(),
		Model:   configs.Model,
		Data:    configs.Data,
		Log:     func(line string) { c.say("%s", line) },
		Reading: c.reading(),
	}
}

// oldFlag keeps an earlier name of a flag working without listing it in the help.
func oldFlag(cmd *cobra.Command, old, now string) {
	f := cmd.Flags().Lookup(now)
	cmd.Flags().Var(f.Value, old, "the old name of --"+now)
	must(cmd.Flags().MarkHidden(old))
}

// gpuVar adds the flag --gpu to a command.
func gpuVar(cmd *cobra.Command, to *string, more string) {
	cmd.Flags().StringVar(to, "gpu", "", "plan for another GPU"+more+
		": a `NAME` or compute capability, such as h100, 4090 or 8.6")
}

// quantizationVar adds the flag --quantization to a command, and its old name if the command had one.
func quantizationVar(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "quantization", "", "store the base model's weights as `TYPE`: "+
		strings.Join(quant.Names(), ", ")+"; default: as they are")
}

// workersFlag is the value of --workers.
type workersFlag struct{ to *int }

func (w workersFlag) String() string {
	if w.to == nil {
		return "0"
	}
	return strconv.Itoa(*w.to)
}
func (w workersFlag) Type() string { return "int" }
func (w workersFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("must be a whole number")
	}
	*w.to = n
	return session.CheckWorkers(n)
}

// workersVar adds the flag --workers to a command.
func workersVar(cmd *cobra.Command, to *int) {
	cmd.Flags().Var(workersFlag{to}, "workers", "CPU threads; 0 = one for each core")
}

// downloadFlag adds the flag that lets a command fetch models.
func (c *console) downloadFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.download, "download", false,
		"fetch models and data sets named org/name from the Hugging Face hub if they are not cached")
}

// hub returns the options of the model hub.
func (c *console) hub() hub.Options {
	told := map[string]bool{}
	return hub.Options{Download: c.download, Progress: func(file string, _, total int64) {
		if !told[file] {
			told[file] = true
			c.say("downloading %s, %s", file, session.FormatBytes(total))
		}
	}}
}

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// loadConfig finds a configuration and merges its sources. The program exits with 2 for an invalid configuration.
func loadConfig(name string, sets []string) (config.Loaded, error) {
	loaded, err := config.Load(name, sets)
	return loaded, usage(err)
}
