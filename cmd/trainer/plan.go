package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

func newPlan(c *console) *cobra.Command {
	var o configOptions
	var asJSON bool
	var chip string
	var price float64
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Print the memory that a run will need, to the byte",
		Long: `Print the memory that a run will need, to the byte and by category, and how the step is laid out. plan allocates
nothing. A run then takes exactly these bytes and never more.

--gpu plans for a GPU that this machine does not have; any build of the program can do that. Without --vram, plan
assumes that the whole card is free.

For a GPU that the program knows by name, plan estimates the time of a step and of the run from the cost of each call
and the GPU's rates; with --price, also what the run costs.`,
		Example: `  trainer plan --config cpu_stories_quick.yaml
  trainer plan run.yaml --vram 8GiB
  trainer plan run.yaml --set device=cuda --gpu 4090 --json
  trainer plan run.yaml --gpu h100 --price 2.50`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if price < 0 || math.IsNaN(price) || math.IsInf(price, 0) {
				return usage(fmt.Errorf("--price %g: say what one GPU costs for an hour, such as 2.50", price))
			}
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
			if price > 0 && report.Estimate == nil {
				return usage(errors.New("--price: the time of this run is not estimated, so neither is its cost; " +
					"plan estimates training without sampling, in 16 bits, on GPUs known by name, with the " +
					"whole base on each"))
			}
			if asJSON {
				return writeJSON(c.out, report)
			}
			fmt.Fprintln(c.out, report)
			if price > 0 {
				fmt.Fprintf(c.out, "  %s\n", report.Estimate.Price(price))
			}
			return nil
		},
	}
	o.register(cmd)
	o.devicesFlag(cmd)
	o.strictFlag(cmd)
	c.downloadFlag(cmd)
	gpuVar(cmd, &chip, "")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().Float64Var(&price, "price", 0, "price of one GPU for an `HOUR`, in any currency: print the run's cost")
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
