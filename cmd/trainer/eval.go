package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/tierlora/tierlora/infer"
)

func newEval(c *console) *cobra.Command {
	var o configOptions
	var adapterDir string
	var workers int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eval FILE [--adapter DIR]",
		Short: "Measure the loss of a model, with or without adapter",
		Long: `Measure the mean negative log-likelihood over the trained tokens of the validation rows, or of all rows where the
configuration holds none out.`,
		Example: `  trainer eval --config cpu_stories_quick.yaml
  trainer eval run.yaml --adapter runs/first --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.load(c)
			if err != nil {
				return err
			}
			if err := checkDevice(config.Spec); err != nil {
				return err
			}
			if err := checkAdapter(adapterDir); err != nil {
				return err
			}
			env := environment(c, workers)
			if err := checkModel(cmd.Context(), config.Spec.BaseModel, env); err != nil {
				return err
			}
			report, err := infer.Evaluate(cmd.Context(), config.Spec.Evaluation(adapterDir), env)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, report)
			}
			adapter := report.Adapter
			if adapter == "" {
				adapter = "none"
			}
			_, err = fmt.Fprintf(c.out, "data        %s, %d rows, %d tokens, %d of them trained\nadapter     %s\nloss        %.6f\nperplexity  %.4f\ntime        %.1f s\n",
				report.Data, report.Rows, report.Tokens, report.TrainedTokens, adapter, report.Loss, report.Perplexity, report.Duration.Seconds())
			return err
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	pathVar(cmd, &adapterDir, "adapter", "", "adapter `DIR` in PEFT's format; none = the base model alone")
	workersVar(cmd, &workers)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
