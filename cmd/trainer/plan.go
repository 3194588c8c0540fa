package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/train"
)

func newPlan(c *console) *cobra.Command {
	var o configOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan --config FILE",
		Short: "Print the memory that a run will hold",
		Long:  "Print the memory that a run will hold, to the byte and by category, without holding it.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.load()
			if err != nil {
				return err
			}
			env := environment(c, 0)
			if err := checkModel(cmd.Context(), config.Spec.BaseModel, env); err != nil {
				return err
			}
			report, err := train.PlanRun(cmd.Context(), config.Spec, env)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, report)
			}
			_, err = fmt.Fprintln(c.out, report)
			return err
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
