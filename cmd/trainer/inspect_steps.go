package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/train"
)

func newInspectSteps(c *console) *cobra.Command {
	var o configOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "steps FILE",
		Short: "Show which rows each step of a run trains, with its learning rate, without training",
		Long: `Show which rows each step of a run trains, with its learning rate, without training and without a device.

--json prints all that another program needs to train the same: the token ids and labels of every step's rows and of the
validation rows, learning rates, the configuration, and the hash of the base weights. scripts/reference_curve.py trains
it with PEFT.`,
		Example: `  trainer inspect steps --config cpu_stories_quick.yaml
  trainer inspect steps gpu_smollm2_convergence.yaml --json > steps.json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			env := train.Env{Env: environment(c, 0)}
			if err := findBase(cmd.Context(), &loaded, c, env.Env); err != nil {
				return err
			}
			recipe, err := train.NewRecipe(cmd.Context(), loaded.Spec, env)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, recipe)
			}
			w := bufio.NewWriter(c.out)
			fmt.Fprintf(w, "base weights  %s\nrows          %s\nvalidation    %s\n\n  step  learning rate   rows  tokens  trained\n", recipe.Base, recipe.Rows, recipe.Subject.Validation)
			for i, step := range recipe.Train {
				rows, tokens, trained := step.Count()
				fmt.Fprintf(w, "%6d  %13.6g  %5d  %6d  %7d\n", i+1, step.LearningRate, rows, tokens, trained)
			}
			return w.Flush()
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
