package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train"
)

func newValidate(c *console) *cobra.Command {
	var o configOptions
	var asJSON, show bool
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration without running it",
		Long: `Check a configuration without running it, and list every mistake with its line. validate loads no weights and reads no
rows, but it checks that the model's folder, its chat template and the files of rows exist: exit code 3 if they do not.

--show prints every key with its value, as YAML that is a configuration again.`,
		Example: `  trainer validate run.yaml
  trainer validate cpu_stories_quick.yaml --show > run.yaml
  trainer validate run.yaml --set training.max_steps=10 --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				loaded, err := o.read()
				if err == nil {
					err = checkFiles(cmd.Context(), &loaded, c)
				}
				return validateJSON(c, loaded, err)
			}
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			missing := checkFiles(cmd.Context(), &loaded, c)
			if show {
				if missing == nil {
					c.say("ok  %s", loaded.Name)
				} else {
					c.say("note: %v", missing)
					missing = nil // the user asked for the configuration only
				}
				if _, err := c.out.Write(config.Render(config.WithoutSecrets(loaded.Spec))); err != nil {
					return fmt.Errorf("write configuration: %w", err)
				}
			} else if missing == nil {
				fmt.Fprintf(c.out, "ok  %s\n", plainText(loaded.Name))
				summarize(c, loaded.Spec)
			}
			if missing != nil {
				return missing
			}
			if note := train.RateNote(loaded.Spec); note != "" {
				c.say("note: %s", note)
			}
			for _, line := range advice(cmd.Context(), loaded.Spec, c.hub()) {
				c.say("note: %s", line)
			}
			if err := train.CheckTrackers(loaded.Spec); err != nil {
				c.say("note: a run is refused as things are here: %v", err)
			}
			return checkDevice(loaded.Spec)
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the outcome as JSON")
	cmd.Flags().BoolVar(&show, "show", false, "print the effective configuration, every key included")
	return cmd
}

// checkFiles returns an error if the model's folder or files of rows do not exist, with the lines that name them. For a
// hub model that is not in the cache it prints a note: a run can fetch it.
func checkFiles(ctx context.Context, l *config.Loaded, c *console) error {
	hubOptions := c.hub()
	hubOptions.Download = false
	problems, absent := session.CheckData(ctx, l.Spec.Dataset, hubOptions)
	if name := l.Spec.BaseModel; !strings.HasPrefix(name, session.EmbeddedPrefix) {
		_, err := hub.Resolve(ctx, name, hubOptions)
		_, there := os.Stat(name)
		switch {
		case err != nil && there != nil && !hub.IsMissingFile(name):
			absent = append([]error{fmt.Errorf("base_model: %w", err)}, absent...)
		case err != nil:
			problems = append([]error{fmt.Errorf("base_model: %w", err)}, problems...)
		}
	}
	if own := l.Spec.AdapterConfig(); own.InitFrom != "" {
		if err := checkAdapter(own.InitFrom); err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", own.Key("init_from"), strings.TrimPrefix(err.Error(), "--adapter ")))
		}
	}
	for _, err := range absent {
		l.Notes = append(l.Notes, err.Error())
		c.say("note: %v", err)
	}
	template := checkTemplate(ctx, l.Spec, hubOptions)
	if len(problems) == 0 {
		if template == nil {
			return nil
		}
		return usage(l.Invalid([]error{template}, ""))
	}
	for i, err := range problems {
		if near := filename.Nearest(err); near != "" {
			problems[i] = fmt.Errorf("%w%s", err, near)
		}
	}
	if template != nil {
		return unfit(l.Invalid(append(problems, template), ""))
	}
	return unfit(l.Invalid(problems, "; the configuration itself is right"))
}

// checkTemplate returns an error if the configuration trains conversations and neither it nor the model has a chat
// template. It is nil where the model is not on this machine.
func checkTemplate(ctx context.Context, s train.Spec, options hub.Options) error {
	d := s.Dataset
	forms := d.AsChat == dataset.AsChatYes && slices.Contains([]string{"", dataset.FormatAuto, "completion", "alpaca",
		"preference", "unpaired"}, d.Format)
	if d.ChatTemplate != "" || !forms && !slices.Contains([]string{"messages", "sharegpt", "chat_completion"},
		d.Format) {
		return nil
	}
	var folder fs.FS
	if short, embedded := strings.CutPrefix(s.BaseModel, session.EmbeddedPrefix); embedded {
		own, err := configs.Model(short)
		if err != nil {
			return nil //nolint:nilerr // the check of base_model reports it
		}
		folder = own
	} else {
		dir, err := hub.Resolve(ctx, s.BaseModel, options)
		if err != nil {
			return nil //nolint:nilerr // the check of base_model reports it
		}
		folder = os.DirFS(dir)
	}
	sources, err := chat.Find(folder)
	if err == nil {
		_, _, err = sources.Choose("")
	}
	if err == nil {
		return nil
	}
	key := "dataset.format"
	if forms {
		key = "dataset.as_chat"
	}
	return fmt.Errorf("%s: %w", key, err)
}

// advice returns what evidence says against settings of a run on a model of this machine.
func advice(ctx context.Context, s train.Spec, options hub.Options) []string {
	if strings.HasPrefix(s.BaseModel, session.EmbeddedPrefix) {
		return nil
	}
	options.Download = false
	family, hidden := session.SizeOf(ctx, s.BaseModel, options)
	return train.Advice(s, family, hidden)
}

// summarize describes in a few lines what a configuration does.
func summarize(c *console, s train.Spec) {
	t := s.Training
	length := fmt.Sprintf("%g epochs", t.Epochs)
	if t.MaxSteps > 0 {
		length = fmt.Sprintf("%d steps", t.MaxSteps)
	}
	base := "as it is"
	if q := s.Quantization; q != nil {
		base = fmt.Sprintf("in %d bits (%s, blocks of %d, double_quant %v)", q.Bits, q.Type, q.BlockSize, q.DoubleQuant)
		if quant.Schemes[q.Type].BlockSizes() == nil {
			base = fmt.Sprintf("in %d bits (%s, a scale for each row)", q.Bits, q.Type)
		}
	}
	fmt.Fprintf(c.out, "base     %s, %s\n", plainText(s.BaseModel), base)
	fmt.Fprintf(c.out, "adapter  %s, %s\n", s.Adapter, s.AdapterConfig().Summary())
	format := s.Dataset.Format
	if format == "" || format == dataset.FormatAuto {
		format = "detected from the keys of the first row"
	}
	fmt.Fprintf(c.out, "data     %s, format %s, at most %d tokens a row\n", plainText(s.Dataset.Title()), format,
		s.Dataset.MaxLength)
	for _, d := range s.Dataset.Sources {
		fmt.Fprintf(c.out, "         %s, weight %v\n", plainText(d.Title()), d.Weight)
	}
	fmt.Fprintf(c.out, "run      %s, %d x %d rows a step, learning rate %g (%s), seed %d\n", length, t.BatchSize,
		t.GradientAccumulationSteps, t.LearningRate, t.LRScheduler, s.Seed)
	if s.Devices != "1" || t.GlobalBatchSize > 0 {
		rows := "that many on each"
		if t.GlobalBatchSize > 0 {
			rows = fmt.Sprintf("%d rows a step on all of them", t.GlobalBatchSize)
		}
		fmt.Fprintf(c.out, "devices  %s, %s\n", s.Devices, rows)
	}
	fmt.Fprintf(c.out, "output   %s, device %s\n", plainText(s.OutputDir), s.Device)
}

type problemJSON struct {
	Source  string `json:"source"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

func validateJSON(c *console, loaded config.Loaded, err error) error {
	answer := struct {
		OK       bool          `json:"ok"`
		Config   string        `json:"config,omitempty"`
		Notes    []string      `json:"notes,omitempty"`
		Problems []problemJSON `json:"problems"`
	}{OK: err == nil, Config: loaded.Name, Notes: loaded.Notes, Problems: []problemJSON{}}
	if bad := (*config.Invalid)(nil); errors.As(err, &bad) {
		answer.Config = bad.Name
		for _, p := range bad.Problems {
			answer.Problems = append(answer.Problems, problemJSON{p.At.Source, p.At.Line, p.At.Col, p.Text})
		}
	} else if err != nil {
		answer.Problems = append(answer.Problems, problemJSON{Message: err.Error()})
	} else if err = checkDevice(loaded.Spec); err != nil {
		answer.OK = false
		answer.Problems = append(answer.Problems, problemJSON{Source: loaded.Name, Message: err.Error()})
	}
	if werr := writeJSON(c.out, answer); werr != nil {
		return werr
	}
	if err != nil {
		return &exitError{code: exitCode(err), err: err, silent: true}
	}
	return nil
}
