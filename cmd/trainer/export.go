package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/session"
)

func newExport(c *console) *cobra.Command {
	o := export.Options{}
	var workers int
	var base string
	var check checkFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export --format NAME --model DIR [--adapter DIR] --out PATH",
		Short: "Write a model or adapter for llama.cpp, Ollama, vLLM, mlx-lm or PEFT",
		Long:  exportLong(),
		Example: `  trainer export --format gguf --model ./SmolLM2-135M --adapter runs/first --dtype q4_k_m --out smollm2.gguf
  trainer export --format gguf-lora --model ./SmolLM2-135M --adapter runs/first --out first.gguf
  trainer export --format ollama --model ./SmolLM2-135M --out smollm2-ollama`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := export.Check(o); err != nil {
				return usage(err)
			}
			texts, err := check.texts()
			if err != nil {
				return usage(err)
			}
			if export.Formats[o.Format].Out == "FILE" {
				if err := writable(o.Out, "a GGUF file", gguf.Mark); err != nil {
					return usage(fmt.Errorf("--out: %w", err))
				}
			}
			if err := checkAdapter(o.Adapter); err != nil {
				return err
			}
			notes, err := findExportBase(&o, base)
			if err != nil {
				return usage(err)
			}
			env := environment(c, workers)
			if err := findModel(cmd.Context(), c, env, &o.Model, o.Adapter); err != nil {
				return err
			}
			// remove partly written files
			ctx, end := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer end()
			if o.Adapter != "" && export.Formats[o.Format].Merges && !o.Separate {
				if o.Check = texts; texts == nil {
					o.Check = export.DefaultCheck
				}
				o.Own = check.ownRows(ctx, env, o.Model, o.Adapter)
			}
			report, err := export.Export(ctx, o, env)
			if err != nil {
				return err
			}
			report.Notes = append(notes, report.Notes...)
			if asJSON {
				return writeJSON(c.out, report)
			}
			for _, note := range report.Notes {
				c.say("note: %s", note)
			}
			return printExport(c, report)
		},
	}
	cmd.Flags().StringVar(&o.Format, "format", "", "`NAME` of the format: "+strings.Join(export.Names(), ", "))
	pathVar(cmd, &o.Model, "model", "",
		"base model: a `DIR`, hub name, or embedded:NAME; default: the one that the adapter names")
	pathVar(cmd, &o.Adapter, "adapter", "",
		"adapter `DIR` in PEFT's format: merged into the weights, or exported alone")
	pathVar(cmd, &o.Out, "out", "", "file or folder to write: a `PATH`")
	cmd.Flags().StringVar(&o.DType, "dtype", "",
		"`TYPE` of the weights: f32, f16 (the default), bf16, q8_0, q4_0 or q4_k_m")
	cmd.Flags().BoolVar(&o.Overwrite, "overwrite", false, "replace an existing file")
	cmd.Flags().BoolVar(&o.Separate, "separate-adapter", false,
		"ollama: keep the adapter in a separate file that the Modelfile names")
	check.register(cmd)
	cmd.Flags().StringVar(&base, "base", baseAuto, "gguf, ollama: base weights to merge into: "+bases)
	c.downloadFlag(cmd)
	workersVar(cmd, &workers)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// findExportBase determines the weights to which an exported adapter is added.
func findExportBase(o *export.Options, base string) (notes []string, err error) {
	if o.Adapter == "" || !export.Formats[o.Format].Merges || o.Separate {
		if base != baseAuto {
			return nil, errors.New("--base is of an adapter that becomes part of the weights: --format gguf or " +
				"ollama, with --adapter and without --separate-adapter")
		}
		return nil, nil
	}
	var original bool
	if o.Trained, original, notes, err = findTrained(base, export.One(o.Adapter)); original {
		o.Trained = nil
	}
	return notes, err
}

// exportLong describes the formats for the help text.
func exportLong() string {
	var b strings.Builder
	b.WriteString(
		"Write a model or an adapter for another program. What is written is read back and compared.\n\nFormats:\n")
	for _, name := range export.Names() {
		f := export.Formats[name]
		fmt.Fprintf(&b, "  %-10s for %s\n", name, f.For)
	}
	return b.String()
}

func printExport(c *console, r export.Report) error {
	with := ""
	if r.Adapter != "" {
		with = " with " + r.Adapter
	}
	_, err := fmt.Fprintf(c.out, "%s: %s%s as %s, %d tensors, %s, read back and compared\n", r.Output, r.Model, with,
		r.Format, r.Tensors, session.FormatBytes(r.Bytes))
	for _, t := range r.Types {
		if err == nil {
			_, err = fmt.Fprintf(c.out, "  %-5s %4d tensors, %9s, error %.3g%%\n", t.Type, t.Tensors,
				session.FormatBytes(t.Bytes), 100*t.Error)
		}
	}
	if x := r.Rounding; x != nil && err == nil {
		worst := x.Worst(1)[0]
		_, err = fmt.Fprintf(c.out, "  update   %s, rounding noise %s of the update; least kept: %s, %s\n",
			kept(x.Kept), percent(x.Noise), worst.Layer, percent(worst.Kept))
	}
	for _, l := range driftLines(r.Drift) {
		if err == nil {
			_, err = fmt.Fprintf(c.out, "  %-8s %s\n", l[0], plainText(l[1]))
		}
	}
	for _, f := range r.Files {
		if err == nil {
			_, err = fmt.Fprintf(c.out, "  %s\n", f)
		}
	}
	return err
}
