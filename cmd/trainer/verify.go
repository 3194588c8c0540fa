package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

// verifySteps is the default number of replayed steps.
const verifySteps = 20

type verifyOptions struct {
	run     string
	steps   int
	workers int
	device  string
	json    bool
	windows bool
}

func newVerify(c *console) *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify RUN",
		Short: "Replay a run's first steps and compare them bit for bit",
		Long: `Replay the first steps of a finished run from the config.yaml in its output folder, and compare rows and losses with
run_manifest.json bit for bit. verify writes nothing to RUN. It names the first difference, and what differs in program,
kernels, driver, libraries, model, data and tokenizer. It also compares the losses in metrics.jsonl and the SHA-256 of
the adapter and the last checkpoint with the manifest; if all steps are replayed, the adapter too.

--windows trains the batches that the run recorded (training.record_windows) instead of today's data set. If only that
gives equal losses, the data or their order have changed.

Exit code 0: equal; 1: different.`,
		Example: `  trainer verify runs/cpu_stories_quick
  trainer verify runs/gpu_smollm2_quick --steps 100 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := oneArgument("the output folder of a run")(cmd, args); err != nil {
				return err
			}
			o.run = filename.ExpandHome(args[0])
			if o.steps < 1 {
				return usage(fmt.Errorf("--steps %d: at least one", o.steps))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd.Context(), c, o) },
	}
	cmd.Flags().IntVar(&o.steps, "steps", verifySteps, "number of `STEPS` to replay, at most all")
	cmd.Flags().StringVar(&o.device, "device", "", "`DEVICE` to replay on (cpu, cuda); default: the run's")
	cmd.Flags().BoolVar(&o.windows, "windows", false,
		"train the batches that training.record_windows recorded, not those of the data set")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the verdict as JSON")
	workersVar(cmd, &o.workers)
	c.downloadFlag(cmd)
	return cmd
}

func runVerify(ctx context.Context, c *console, o *verifyOptions) error {
	info, err := os.Stat(o.run)
	if err != nil {
		return usage(fmt.Errorf("no run: %w; verify takes the output folder of a run", err))
	}
	if !info.IsDir() {
		return usage(fmt.Errorf("%s: not a folder; verify takes the output folder of a run", o.run))
	}
	was, err := replay.ReadManifest(o.run)
	if errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("%s holds no %s: a run writes it with its last step; finish it first (--resume auto)",
			o.run, replay.ManifestFile))
	}
	if err != nil {
		return usage(fmt.Errorf("%s: %w", o.run, err))
	}
	file := filepath.Join(o.run, train.ConfigFile)
	saved, err := regular.ReadFile(file)
	if err != nil {
		return usage(fmt.Errorf("%s: the run's configuration: %w", o.run, err))
	}
	options := configOptions{config: file}
	if o.device != "" {
		options.sets = append(options.sets, "device="+o.device)
	}
	loaded, opening, err := options.open(ctx, c, o.workers)
	if err != nil {
		return err
	}
	env := train.Env{Env: opening, Config: saved}
	if o.windows {
		env.Windows = filepath.Join(o.run, train.WindowsFile)
	}
	v, err := train.Verify(ctx, loaded.Spec, env, was, min(o.steps, was.Steps))
	if err != nil {
		return err
	}
	if v.Metrics, v.Checked, err = replay.CheckMetrics(filepath.Join(o.run, train.MetricsFile), was); err != nil {
		return err
	}
	if v.Files, err = replay.CheckFiles(o.run, was); err != nil {
		return err
	}
	v.Equal = v.Equal && v.Metrics == nil && len(v.Files.Changed) == 0
	if o.json {
		if err := writeJSON(c.out, v); err != nil {
			return err
		}
	} else {
		printVerdict(c, v)
	}
	if !v.Equal {
		return &exitError{code: exitFailed, err: errors.New("the run differs from its manifest"), silent: true}
	}
	return nil
}

func printVerdict(c *console, v replay.Verdict) {
	fmt.Fprintf(c.out, "steps    %d of %d replayed\n", v.Steps, v.Of)
	for _, x := range []struct {
		name string
		d    *replay.Divergence
	}{{"rows", v.Batches}, {"losses", v.Losses}} {
		if x.d == nil {
			fmt.Fprintf(c.out, "%-8s equal, bit for bit\n", x.name)
		} else {
			fmt.Fprintf(c.out, "%-8s DIFFER, %v\n", x.name, x.d)
		}
	}
	switch {
	case v.Metrics != nil:
		fmt.Fprintf(c.out, "metrics  DIFFER from the manifest's losses, %v: %s was changed after the run\n", v.Metrics,
			train.MetricsFile)
	case v.Checked:
		fmt.Fprintf(c.out, "metrics  all %d losses of %s equal the manifest\n", v.Of, train.MetricsFile)
	default:
		fmt.Fprintf(c.out, "metrics  not compared: %s has no line for each step\n", train.MetricsFile)
	}
	printFiles(c, v)
	for _, d := range v.Changed {
		fmt.Fprintf(c.out, "differs  %s: %s, was %s\n", d.What, d.Now, d.Was)
	}
	if len(v.Changed) == 0 {
		fmt.Fprintln(c.out, "made by  the same program, kernels, driver, libraries, model, data and tokenizer")
	}
}

// printFiles reports whether the run's files are unchanged, and whether the replay produced the same adapter.
func printFiles(c *console, v replay.Verdict) {
	for _, d := range v.Files.Changed {
		if d.Now == "" {
			fmt.Fprintf(c.out, "files    DIFFER from the manifest: %s is gone\n", d.What)
		} else {
			fmt.Fprintf(c.out, "files    DIFFER from the manifest: %s was changed after the run: SHA-256 %s, was %s\n",
				d.What, d.Now, d.Was)
		}
	}
	switch {
	case v.Files.Compared == 0:
		fmt.Fprintln(c.out, "files    not compared: the manifest has no hashes of them")
	case len(v.Files.Changed) == 0:
		fmt.Fprintf(c.out, "files    %d files of the adapter and the last checkpoint have the manifest's SHA-256\n",
			v.Files.Compared)
	}
	if len(v.Files.Gone) > 0 {
		fmt.Fprintf(c.out, "files    not compared, their folder is gone: %s\n", strings.Join(v.Files.Gone, ", "))
	}
	switch {
	case v.Adapter == nil:
	case *v.Adapter:
		fmt.Fprintln(c.out, "adapter  the replay wrote the run's adapter, byte for byte")
	default:
		fmt.Fprintln(c.out, "adapter  DIFFERS: the replay wrote another adapter than the run")
	}
}
