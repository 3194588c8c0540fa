package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/tier"
	"github.com/tierlora/tierlora/train"
)

// tiersDir is the default of --report: reports that are kept lie beside each other.
const tiersDir = "runs/tiers"

type tierOptions struct {
	bases, sets, compare     []string
	report                   string
	limit                    time.Duration
	list, json, verbose      bool
	checkVRAM, goOn          bool
	allowSkip, failRegressed bool
}

func newTier(c *console) *cobra.Command {
	o := &tierOptions{}
	cmd := &cobra.Command{
		Use:   "tier NAME...",
		Short: "Validate this program on this machine with known runs",
		Long: `Validate this program on this machine. A tier runs doctor, selfcheck, plan and training of a known configuration, and
checks steps, bytes, losses, adapter, checkpoints, memory, time and a replay of the first steps. all means all tiers of
a GPU; trainer tier --list describes each.

Base models come from the Hugging Face cache; --base names others, by size (135m, 1.1b, 7b) or tier. The report
(report.json, report.md, report.html) compares itself with reports beside it of the same GPU and base model.

Exit code 0: all passed; 77: none failed and some were skipped; else the code of the first failure: 1, 3 if the
machine lacks something, such as a GPU, 4 if it does not fit.`,
		Example: `  trainer tier quick
  trainer tier all --check-vram --base 135m=./SmolLM2-135M --base 1.1b=./TinyLlama --base 7b=./llama-2-7b
  trainer tier all --continue-on-error --report runs/nightly/today --fail-on-regression
  trainer tier cpu_stories_quick --json`,
		ValidArgs: append(tier.Names(), tier.All),
		Args: func(_ *cobra.Command, args []string) error {
			if o.list != (len(args) == 0) {
				return usage(fmt.Errorf("name a tier: %s, or %s; --list says what each does", strings.Join(tier.Names(),
					", "), tier.All))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.list {
				return listTiers(c, o.json)
			}
			return runTier(cmd.Context(), c, o, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.list, "list", false, "list the tiers, run nothing")
	f.StringArrayVar(&o.bases, "base", nil, "base model: `DIR`, or SIZE=DIR or TIER=DIR; may be repeated")
	f.StringArrayVar(&o.sets, "set", nil,
		"set one `KEY=VALUE` in every tier's configuration, except keys that the tier fixes")
	f.BoolVar(&o.checkVRAM, "check-vram", false,
		"refuse a tier (exit code 4) that needs more memory than the card has free")
	f.BoolVar(&o.goOn, "continue-on-error", false, "continue with the next tier after a failure")
	f.BoolVar(&o.allowSkip, "allow-skip", false, "do not count skipped tiers and checks as failures")
	pathVar(cmd, &o.report, "report", "", "`DIR` to create for the report, logs and runs (default "+
		tiersDir+"/<UTC time>)")
	f.StringArrayVar(&o.compare, "compare", nil,
		"report to compare with: a `FILE`, or a DIR of reports; default: those beside the report; may be repeated")
	f.BoolVar(&o.failRegressed, "fail-on-regression", false,
		"exit with code 1 if time, loss or memory is worse than in the compared reports")
	f.DurationVar(&o.limit, "time-limit", 0, "`TIME` limit of each command, such as 30m (default: the tier's)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the output of the runs")
	f.BoolVar(&o.json, "json", false, "print the report as JSON, and the checks on stderr")
	return cmd
}

func listTiers(c *console, asJSON bool) error {
	if asJSON {
		return writeJSON(c.out, tier.Table)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIER\tSTEPS\tBASE\tCONFIGURATION\tWHAT")
	for _, t := range tier.Table {
		base := t.Base
		if base == "" {
			base = "-"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", t.Name, t.Steps, base, t.Config, t.What)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	const last = "WHAT"
	at, width := strings.Index(table.String(), last), foldWidth(c.out)
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintf(c.out, "%s%s", line[:at], fold(line[at:], width, at)); err != nil {
			return err
		}
	}
	return nil
}

func runTier(ctx context.Context, c *console, o *tierOptions, names []string) error {
	tiers, err := tier.Find(names...)
	if err != nil {
		return usage(err)
	}
	bases, err := tier.ParseBases(tiers, o.bases)
	if err != nil {
		return usage(err)
	}
	for name, dir := range bases {
		bases[name] = filename.ExpandHome(dir)
	}
	for _, path := range o.compare {
		if _, err := os.Stat(path); err != nil {
			return usage(fmt.Errorf("--compare: %w", err))
		}
	}
	for _, t := range tiers { // a key that no configuration has; an error in the file itself fails its tier
		if _, err := loadConfig(t.Config, nil); err != nil {
			continue
		}
		if _, err := loadConfig(t.Config, o.sets); err != nil {
			return usage(err)
		}
	}
	if o.limit < 0 {
		return usage(fmt.Errorf("--time-limit %v: must be above 0", o.limit))
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	sum, err := hashFile(program)
	if err != nil {
		return fmt.Errorf("hash this program's file: %w", err)
	}
	if o.report == "" {
		o.report = freeName(filepath.Join(tiersDir, tier.FolderName(time.Now())))
	}
	kept := o.compare
	if len(kept) == 0 {
		kept = []string{filepath.Dir(filepath.Clean(o.report))}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stopped stopSignal
	rescue.Go(func() {
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		stopped.set(<-signals)
		c.say("stopping: the run may save first, for half a minute at most")
		cancel()
	})
	w := c.out
	if o.json {
		w = c.err
	}
	paint, width := painter(w), foldWidth(w)
	w = coloured(w)
	options := tier.Options{
		Program: program, Dir: o.report, Tiers: tiers, Bases: bases, Sets: o.sets, Time: o.limit, Kept: kept,
		CheckVRAM: o.checkVRAM, ContinueOnError: o.goOn, AllowSkip: o.allowSkip, FailOnRegression: o.failRegressed,
		Card: readCard,
		Spec: func(config string, sets []string) (train.Spec, error) {
			l, err := loadConfig(config, sets)
			return l.Spec, err
		},
		Reference: func(name string) (*train.Reference, error) {
			return train.OpenReference(name, session.Env{Data: configs.Data})
		},
		OnTier: func(t tier.Tier) { fmt.Fprintf(w, "\n%s: %s\n", t.Name, t.What) },
		OnCheck: func(x tier.Check) {
			fmt.Fprintf(w, "%s  %s\n", paint(x.Status), fold(plainText(x.Name+": "+x.Detail), width, 7))
		},
		Exit: tier.Exit{Failed: exitFailed, Unfit: exitUnfit, DoesNotFit: exitDoesNotFit, Skipped: exitSkipped,
			Stopped: stopped.exitCode},
		Command: append([]string{"trainer"}, os.Args[1:]...),
		About:   tier.Program{Version: version(), Commit: built.Commit, Dirty: built.Dirty, SHA256: sum},
	}
	if o.verbose {
		options.Verbose = c.err
	}
	report, err := tier.Run(ctx, options)
	if report.Schema == "" {
		return usage(fmt.Errorf("--report: %w", err))
	}
	printTiers(w, report, paint, width)
	fmt.Fprintf(w, "report   %s\n", plainText(filepath.Join(o.report, tier.ReportHTML)))
	if o.json {
		err = errors.Join(err, writeJSON(c.out, report))
	}
	if err == nil && report.ExitCode != 0 {
		err = &exitError{code: report.ExitCode, err: errors.New(report.Summary()), silent: true}
	}
	return err
}

// freeName returns path or, if a call in the same second took it, path-2 and so on.
func freeName(path string) string {
	free := path
	for n := 2; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = fmt.Sprintf("%s-%d", path, n)
	}
}

// printTiers prints the summary.
func printTiers(w io.Writer, p tier.Report, paint func(string) string, width int) {
	fmt.Fprintln(w)
	for _, t := range p.Tiers {
		line := t.Reason
		if t.Status == tier.Pass && t.Loss != nil {
			line = fmt.Sprintf("%d steps in %.1f s, loss %.4f to %.4f, %s held", t.Run.Steps, t.Seconds,
				t.Loss.FirstTenth, t.Loss.LastTenth, session.FormatBytes(t.Memory.Held))
		}
		fmt.Fprintf(w, "%s  %-18s %s\n", paint(t.Status), t.Tier, fold(plainText(line), width,
			7+max(18, len(t.Tier))+1))
		if t.Comparison == nil {
			continue
		}
		for _, l := range t.Comparison.Lines {
			if !l.OK {
				continue // the regression reports it
			}
			fmt.Fprintf(w, "       %s: %s, was %s\n", plainText(l.What), tier.Figure(l.Now), tier.Figure(l.Was))
		}
		for _, r := range t.Comparison.Regressions {
			fmt.Fprintf(w, "%s  %s\n", paint("worse"), fold(plainText("regression: "+r), width, 7))
		}
		for _, n := range t.Comparison.Notes {
			fmt.Fprintf(w, "       %s\n", fold(plainText("not compared: "+n), width, 7))
		}
	}
	fmt.Fprintf(w, "%s  %s\n", paint(p.Status), fold(plainText(p.Summary()), width, 7))
}

// painter returns a function that formats a state as a word of five letters, coloured on a terminal.
func painter(w io.Writer) func(state string) string {
	colour := mayColour(w)
	return func(state string) string {
		word, code := state+" ", "33"
		switch state {
		case tier.Pass:
			code = "32"
		case tier.Fail:
			word, code = "FAIL ", "31"
		case tier.Skip:
			word = "skip "
		}
		word = fmt.Sprintf("%-5s", strings.TrimSpace(word))
		if !colour {
			return word
		}
		return "\x1b[" + code + "m" + word + "\x1b[0m"
	}
}

// readCard reads the memory of the GPU that runs use.
func readCard() (tier.Card, bool) {
	cards, err := graph.ReadCards()
	if err != nil {
		return tier.Card{}, false
	}
	card, err := graph.CardOf(cards, 0)
	if err != nil || card.Problem != "" {
		return tier.Card{}, false
	}
	return tier.Card{Used: card.Used, Free: card.Free}, true
}

// hashFile returns the SHA-256 of a file.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
