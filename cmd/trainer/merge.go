package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/session"
)

func newMerge(c *console) *cobra.Command {
	var model, adapterDir, out string
	var workers int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "merge --model DIR --adapter DIR --out DIR",
		Short:   "Write a model whose weights hold an adapter",
		Long:    "Write a model folder whose weights hold an adapter, for programs that know no adapters.",
		Example: `  trainer merge --model ./SmolLM2-135M --adapter runs/first --out merged`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if model == "" || adapterDir == "" || out == "" {
				return usage(errors.New("name the model, the adapter and a new folder: --model DIR --adapter DIR --out DIR"))
			}
			if err := checkAdapter(adapterDir); err != nil {
				return err
			}
			env := environment(c, workers)
			if err := checkModel(cmd.Context(), model, env); err != nil {
				return err
			}
			ctx, end := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // what was half written goes
			defer end()
			report, err := export.Merge(ctx, model, adapterDir, out, env)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, report)
			}
			_, err = fmt.Fprintf(c.out, "%s: %s with the adapter in %d layers, %s\n", report.Output, report.Model, report.Layers, session.FormatBytes(report.Bytes))
			return err
		},
	}
	pathVar(cmd, &model, "model", "", "model `DIR`, hub name, or embedded:NAME")
	pathVar(cmd, &adapterDir, "adapter", "", "adapter `DIR` in PEFT's format")
	pathVar(cmd, &out, "out", "", "new `DIR` for the merged model")
	c.downloadFlag(cmd)
	workersVar(cmd, &workers)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
