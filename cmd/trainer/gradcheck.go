package main

import (
	"bufio"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/gradcheck"
)

func newGradcheck(c *console) *cobra.Command {
	var o configOptions
	var check gradcheck.Options
	var workers, show int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gradcheck FILE",
		Short: "Compare gradients on your model, data and device with float64",
		Long: `Compute the gradients of one step with the run's model, device and precision, and compare each trained tensor's with
the same step in float64 on the CPU. Nothing is trained or written.

gradcheck takes the first --layers layers, with the final norm and the vocabulary head, and the first --tokens tokens of
the first batch. Losses of answers, pairs, labels and targets need whole rows: then it takes one row of the data, or two
where the loss compares rows, whatever --tokens says. Tensors that start at zero (B) get small values, since A would
have no gradient otherwise. The limit is a multiple of the error that a plain computation in the run's precision has on
the same model and tokens. gradcheck finds wrong gradients; trainer selfcheck measures how exact each kernel is.

Exit code 0: all tensors are within their limits; 1: some are not.`,
		Example: `  trainer gradcheck --config cpu_stories_quick.yaml
  trainer gradcheck run.yaml --layers 4 --tokens 256 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case check.Layers < 0:
				return usage(fmt.Errorf("--layers %d: 0 for as many as are quick, or how many", check.Layers))
			case show < 0:
				return usage(fmt.Errorf("--show %d: 0 for all tensors, or how many", show))
			case check.Tokens < 2 || check.Tokens > 1<<16:
				return usage(fmt.Errorf("--tokens %d: must lie in 2 to %d", check.Tokens, 1<<16))
			}
			return o.argument(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, env, err := o.open(cmd.Context(), c, workers)
			if err != nil {
				return err
			}
			r, err := train.GradCheck(cmd.Context(), loaded.Spec, train.Env{Env: env}, check)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.out, r)
			} else {
				err = printGradcheck(c, r, show)
			}
			if err == nil && !r.OK {
				err = &exitError{code: exitFailed,
					err: fmt.Errorf(
						"gradients of %d of %d tensors on %s are further from float64 than rounding explains; "+
							"trainer selfcheck tries the GPU's kernels one by one", r.Failed, len(r.Tensors), r.Device)}
			}
			return err
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().IntVar(&check.Layers, "layers", 0,
		"number of `LAYERS`, from the first; 0 = as many as take about a minute")
	cmd.Flags().IntVar(&check.Tokens, "tokens", gradcheck.DefaultTokens, "number of `TOKENS` of the first batch")
	cmd.Flags().IntVar(&show, "show", 10,
		"number of `TENSORS` to print, the worst first; 0 = all, in the model's order")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON, every tensor")
	workersVar(cmd, &workers)
	return cmd
}

// printGradcheck prints the sizes of the comparison, the tensors and the verdict.
func printGradcheck(c *console, r gradcheck.Report, show int) error {
	w := bufio.NewWriter(c.out)
	layers := fmt.Sprintf("all %d layers", r.OfLayers)
	if r.Layers < r.OfLayers {
		layers = fmt.Sprintf("the first %d of %d layers, then the final norm and the head", r.Layers, r.OfLayers)
	}
	fmt.Fprintf(w, "model    %s, %s\n", r.Model, layers)
	fmt.Fprintf(w, "device   %s, %s, compared with float64 on the CPU\n", r.Device, r.Precision)
	fmt.Fprintf(w, "data     %d tokens, %d of them trained, of %s\n", r.Tokens, r.Trained, shortList(r.Rows))
	fmt.Fprintf(w, "loss     %.7f, in float64 %.7f\n", r.Loss, r.LossExact)
	fmt.Fprintf(w, "limit    %s\n\n", r.Rule)
	tensors := slices.Clone(r.Tensors)
	if show > 0 {
		slices.SortStableFunc(tensors, func(a, b gradcheck.Error) int {
			x, y := a.Error/a.Limit, b.Error/b.Limit
			switch {
			case x > y || x != x && y == y:
				return -1
			case x < y || y != y && x == x:
				return 1
			}
			return 0
		})
		tensors = tensors[:min(show, len(tensors))]
	}
	fmt.Fprintf(w, "%10s %10s %10s %10s\n", "error", "limit", "plain", "norm")
	for _, t := range append(tensors, r.All) {
		verdict := ""
		if !t.OK() {
			verdict = "  BEYOND ITS LIMIT"
		}
		fmt.Fprintf(w, "%10.3g %10.3g %10.3g %10.3g  %s%s\n", t.Error, t.Limit, t.Plain, t.Norm, t.Name, verdict)
	}
	if more := len(r.Tensors) - len(tensors); more > 0 {
		fmt.Fprintf(w, "(the worst %d of %d tensors; --show 0 prints all)\n", len(tensors), len(r.Tensors))
	}
	none := 0
	for _, t := range r.Tensors {
		if t.Norm == 0 {
			none++
		}
	}
	if none > 0 {
		fmt.Fprintf(w, "(%d of %d tensors have no gradient here, in float64 either; --show 0 names them)\n", none,
			len(r.Tensors))
	}
	verdict := "all within their limits"
	if !r.OK {
		verdict = fmt.Sprintf("%d of %d BEYOND THEIR LIMITS", r.Failed, len(r.Tensors))
	}
	fmt.Fprintf(w, "verdict  %s\n", verdict)
	if !r.OK && r.Experts {
		fmt.Fprintln(w, "note     rounding may give a token to another expert, which is an error beyond the limits "+
			"and no fault; "+
			"fewer or more --tokens tell which it is")
	}
	return w.Flush()
}

// shortList joins the first few of places and the number of the others.
func shortList(places []string) string {
	switch len(places) {
	case 0:
		return "no row"
	case 1:
		return places[0]
	}
	return fmt.Sprintf("%s and %d more", places[0], len(places)-1)
}
