package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

func newPlan(c *console) *cobra.Command {
	var o configOptions
	var asJSON bool
	var chip string
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Print the memory that a run will need, to the byte",
		Long: `Print the memory that a run will need, to the byte and by category, and how the step is laid out. plan allocates
nothing. A run then takes exactly these bytes and never more.

--gpu plans for a GPU that this machine does not have; any build of the program can do that. Without --vram, plan
assumes that the whole card is free.`,
		Example: `  trainer plan --config cpu_stories_quick.yaml
  trainer plan run.yaml --vram 8GiB
  trainer plan run.yaml --set device=cuda --gpu 4090 --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			env := environment(c, 0)
			if err := findBase(cmd.Context(), &loaded, c, env); err != nil {
				return err
			}
			report, err := planReport(cmd.Context(), c, loaded.Spec, env, chip)
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
	o.devicesFlag(cmd)
	o.strictFlag(cmd)
	c.downloadFlag(cmd)
	gpuVar(cmd, &chip, "")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// planReport plans for the named GPU, for the machine that the run would use, or, if that is a GPU which this machine
// lacks, for graph.DefaultChip.
func planReport(ctx context.Context, c *console, s train.Spec, env session.Env, name string) (train.PlanReport, error) {
	if name == "" {
		n, reason := graph.GPUs()
		if s.Device != "cuda" || n > 0 {
			return train.PlanRun(ctx, s, train.Env{Env: env})
		}
		name = graph.DefaultChip().Name
		if !graph.GPUBuilt {
			reason = "nor GPU kernels in this program"
		}
		c.say("no GPU here (%s); the plan is for %s; --gpu names another", reason, graph.DefaultChip().Full)
	}
	chip, err := graph.FindChip(name)
	if err != nil {
		return train.PlanReport{}, usage(fmt.Errorf("--gpu: %w", err))
	}
	if s.Devices == "all" {
		return train.PlanReport{}, usage(fmt.Errorf("devices: all is every GPU of the machine that trains, and this "+
			"plan is for one that is not here (%s): say how many, such as --devices 4", chip.Full))
	}
	return train.PlanFor(ctx, s, train.Env{Env: env}, chip)
}
