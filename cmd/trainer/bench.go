package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/bench"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

func newBench(c *console) *cobra.Command {
	o := bench.Options{LoRA: adapter.Default()}
	var asJSON, dense bool
	var chip string
	var targets []string
	cmd := &cobra.Command{
		Use:   "bench --shape NAME",
		Short: "Time training steps of a model's shape on random weights",
		Long: `Time training steps of a model's shape on random weights and tokens: median, fastest and slowest step with the loss read back, the time
of a step where the next one is queued before the loss is read, the memory held, and on a GPU the time of each kernel.

--vram with --checkpointing auto takes the fastest layout that holds no more. --gpu plans for a GPU that is not here and runs nothing.`,
		Example: `  trainer bench --shape smollm2-135m
  trainer bench --shape llama-2-7b --length 2048 --batch 4 --targets all-linear --device cuda --json
  trainer bench --shape qwen3-8b --length 2048 --batch 4 --targets all-linear --checkpointing auto --vram 40GiB --gpu h200`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.LoRA.TargetModules = targets
			if !dense {
				q := quant.Default()
				o.Quantization = &q
			}
			if chip != "" {
				of, err := graph.FindChip(chip)
				if err != nil {
					return usage(fmt.Errorf("--gpu: %w", err))
				}
				o.Chip = &of
			}
			r, err := bench.Run(cmd.Context(), o, environment(c, 0))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, r)
			}
			if o.Chip != nil {
				fmt.Fprintf(c.out, "%s %dx%d on %s: %s; held %s, planned in %.2f s\n", r.Shape, o.Batch, o.Length, r.Device, r.Layout, session.FormatBytes(r.Held), r.Planned)
				for _, p := range r.Parts {
					fmt.Fprintf(c.out, "  %-20s %s\n", p.Name, session.FormatBytes(p.Bytes))
				}
				for _, l := range r.Peak {
					fmt.Fprintf(c.out, "  %10.1f MiB  %5d values  %s\n", float64(l.Bytes)/(1<<20), l.Values, l.Kernel)
				}
				return nil
			}
			fmt.Fprintf(c.out, "%s %dx%d on %s: median %.2f ms (%.2f to %.2f), %.0f tokens/s; pipelined %.2f ms; load %.1f s, first step %.2f s; held %s\n",
				r.Shape, o.Batch, o.Length, r.Device, r.Median, r.Fastest, r.Slowest, r.PerSec, r.Pipelined, r.Load, r.First, session.FormatBytes(r.Held))
			for _, p := range r.Parts {
				fmt.Fprintf(c.out, "  %-20s %s\n", p.Name, session.FormatBytes(p.Bytes))
			}
			for _, l := range r.Profile {
				fmt.Fprintf(c.out, "  %8.3f ms  %5d calls  %s\n", l.Ms, l.Calls, l.Kernel)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Shape, "shape", "", strings.Join(bench.Shapes(), ", "))
	f.IntVar(&o.Batch, "batch", 1, "rows a step")
	f.IntVar(&o.Length, "length", 512, "tokens a row")
	f.IntVar(&o.LoRA.R, "r", o.LoRA.R, "rank")
	f.StringSliceVar(&targets, "targets", o.LoRA.TargetModules, "modules to adapt, or all-linear")
	f.BoolVar(&dense, "dense", false, "keep the base weights unquantised")
	f.IntVar(&o.Warmup, "warmup", 5, "steps before the timed ones")
	f.IntVar(&o.Steps, "steps", 10, "timed steps")
	f.StringVar(&o.Device, "device", "auto", "cpu, cuda or auto")
	f.StringVar(&o.Precision, "precision", "auto", "bf16, fp16, tf32, fp32, or what suits the device")
	f.BoolVar(&o.Dequantised, "dequantised", false, "keep quantised weights dequantised")
	f.BoolVar(&o.Dequantised, "decoded", false, "the old name of --dequantised")
	if err := f.MarkHidden("decoded"); err != nil {
		panic(err) // the flag stands one line above
	}
	f.StringVar(&o.Checkpointing, "checkpointing", "none", "none, selective, full, offload, or auto: the fastest that fits")
	f.StringVar(&o.VRAM, "vram", "", "most memory that the plan may hold, such as 40GiB")
	f.StringVar(&chip, "gpu", "", "plan for a GPU that is not here and run nothing: `NAME` or compute capability, such as h200")
	f.BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
