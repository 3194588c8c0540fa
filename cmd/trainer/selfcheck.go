package main

import (
	"bufio"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/selfcheck"
	"github.com/tierlora/tierlora/session"
)

func newSelfcheck(c *console) *cobra.Command {
	var asJSON bool
	var workers int
	cmd := &cobra.Command{
		Use:   "selfcheck",
		Short: "Compare every GPU kernel with float64 on this machine's GPU",
		Long: `Run every kernel on the first GPU, in every precision and at odd sizes, and compare it with float64 on the CPU. A kernel
may have twice the error of a plain implementation in the GPU's types. Exit code 1 if a kernel is wrong, 3 without GPU.`,
		Example: `  trainer selfcheck
  trainer selfcheck --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := selfcheck.Run(cmd.Context(), session.Env{Workers: workers})
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(c.out, report)
			} else {
				err = printSelfcheck(c, report)
			}
			if err == nil && report.Failed > 0 {
				err = &exitError{code: exitFailed, err: fmt.Errorf("%d of %d checks failed on %s", report.Failed,
					len(report.Checks), report.Device)}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON, every check")
	workersVar(cmd, &workers)
	return cmd
}

// printSelfcheck prints a line for each precision and kernel, and one for each check that did not pass.
func printSelfcheck(c *console, r selfcheck.Report) error {
	type tally struct {
		count map[string]int
		share float64 // part of its limit that the worst passed check used
	}
	kernels := map[string]*tally{}
	w := bufio.NewWriter(c.out)
	for _, x := range r.Checks {
		name := x.Precision + " " + x.Kernel
		k := kernels[name]
		if k == nil {
			k = &tally{count: map[string]int{}}
			kernels[name] = k
		}
		k.count[x.Status]++
		if x.Status == selfcheck.StatusPass && x.Limit > 0 {
			k.share = max(k.share, x.Error/x.Limit)
		}
		if x.Status != selfcheck.StatusPass {
			fmt.Fprintf(w, "%s  %s %s %s: %s\n", x.Status, x.Precision, x.Kernel, x.Case, x.Reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kernels)) {
		k := kernels[name]
		fmt.Fprintf(w, "%-18s %4d passed %4d failed %4d skipped   largest error %3.0f%% of its limit\n",
			name, k.count[selfcheck.StatusPass], k.count[selfcheck.StatusFail], k.count[selfcheck.StatusSkip],
			100*k.share)
	}
	fmt.Fprintf(w, "%s: %d passed, %d failed, %d skipped in %.1f s\n", r.Device, r.Passed, r.Failed, r.Skipped,
		r.Duration.Seconds())
	return w.Flush()
}
