package tier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

// aside is the memory that a GPU's driver takes on the card in addition to the arenas of a run: its context, the
// kernels' code and cuBLASLt's, about 550 MiB on an H200 (docs/internals/lab/2026-11-21-gpu-tiers.md).
const aside = 600 << 20

// attempt is a tier in progress.
type attempt struct {
	*runner
	tier Tier
	Result
	run string // folder of the run
}

func (r *runner) result(t Tier) Result {
	return Result{Tier: t.Name, What: t.What, Config: t.Config, GPU: t.GPU, Folder: t.Name, Status: Pass, Checks: []Check{}, Commands: []Command{}, Base: r.Bases[t.Name], Settings: r.Sets}
}

// check records a check; the first one that does not pass is the tier's reason.
func (a *attempt) check(name string, ok bool, format string, args ...any) bool {
	a.note(Check{Name: name, Status: status(ok), Detail: fmt.Sprintf(format, args...)}, a.Exit.Failed)
	return ok
}

// skip records a check that could not be made.
func (a *attempt) skip(name, why string) {
	a.note(Check{Name: name, Status: Skip, Detail: why}, a.Exit.Skipped)
}

func (a *attempt) note(c Check, code int) {
	c = a.say(c)
	a.Checks = append(a.Checks, c)
	if c.Status == Fail && a.Status != Fail || c.Status == Skip && a.Status == Pass {
		a.Status, a.Reason, a.ExitCode = c.Status, c.Name+": "+c.Detail, code
	}
}

// call runs a command of the tier. ok is false if it failed.
func (a *attempt) call(ctx context.Context, c call, v any) (Command, error) {
	c.dir, c.limit = filepath.Join(a.Dir, a.Folder), a.limit(a.tier)
	done, err := a.runner.run(ctx, c, v)
	a.Commands = append(a.Commands, done)
	return done, err
}

// tier runs one tier and judges it. An error stops the validation.
func (r *runner) tier(ctx context.Context, t Tier) (Result, error) {
	a := &attempt{runner: r, tier: t, Result: r.result(t)}
	a.run = filepath.Join(r.Dir, a.Folder, "run")
	began := r.Now()
	err := a.all(ctx)
	if errors.Is(err, errStopped) {
		a.note(Check{Name: "the run", Status: Fail, Detail: "stopped by a signal"}, r.Exit.Stopped())
	} else if err != nil {
		a.check("the report's folder", false, "%v", err)
	}
	a.Seconds = r.Now().Sub(began).Seconds()
	if a.Status == Pass {
		a.Comparison = compare(r, a.Result)
		if worse := a.Comparison.Regressions; len(worse) > 0 && r.FailOnRegression {
			a.check("no worse than kept reports", false, "%s", strings.Join(worse, "; "))
		}
	}
	return a.Result, err
}

func (a *attempt) all(ctx context.Context) error {
	if a.tier.GPU && a.unfit != nil {
		a.note(*a.unfit, a.code)
		return nil
	}
	if err := os.Mkdir(filepath.Join(a.Dir, a.Folder), 0o755); err != nil {
		return err
	}
	config, err := a.arguments()
	if err != nil {
		a.check("the configuration", false, "%v", err)
		return nil
	}
	if s, err := a.Spec(a.tier.Config, sets(config)); err != nil {
		a.check("the configuration", false, "%v", err)
		return nil
	} else if !a.agrees(s, "the configuration names what the tier runs") {
		return nil
	}
	var plan train.PlanReport
	done, err := a.call(ctx, call{name: "plan", args: append([]string{"plan", "--json"}, config...)}, &plan)
	if err != nil {
		return err
	}
	if done.Problem != "" {
		if code := a.codeOf(done); code == a.Exit.Unfit && a.tier.Base != "" {
			done.Problem += fmt.Sprintf("; --base %s=DIR names the folder of the base model", a.tier.Base)
		}
		a.note(Check{Name: "plan", Status: Fail, Detail: done.Problem}, a.codeOf(done))
		return nil
	}
	a.Plan = &plan
	ok := a.check("plan", plan.Steps == a.tier.Steps, "%d steps, %s, gradient_checkpointing %s", plan.Steps, bytesText(plan.TotalBytes), plan.Checkpointing)
	if a.tier.Limit > 0 {
		ok = a.check("the plan's bytes", plan.TotalBytes > 0 && plan.TotalBytes <= a.tier.Limit, "%s, the tier has %s", bytesText(plan.TotalBytes), bytesText(a.tier.Limit)) && ok
	}
	if !ok || a.CheckVRAM && !a.fits(plan.TotalBytes) {
		return nil
	}
	return a.train(ctx, config)
}

// arguments returns the program's arguments for the tier's configuration. They set that every step's loss is in
// metrics.jsonl.
func (a *attempt) arguments() ([]string, error) {
	args := []string{"--config", a.tier.Config}
	add := func(key, value string) { args = append(args, "--set", key+"="+value) }
	if a.Base != "" {
		if info, err := os.Stat(a.Base); err == nil && info.IsDir() {
			if a.Base, err = filepath.Abs(a.Base); err != nil {
				return nil, err
			}
		}
		add("base_model", a.Base)
	}
	for _, s := range a.Sets {
		args = append(args, "--set", s)
	}
	add("training.logging_steps", "1")
	add("output_dir", a.run)
	return args, nil
}

// sets returns the values of --set among arguments.
func sets(args []string) []string {
	var values []string
	for i := 0; i+1 < len(args); i++ {
		if args[i] == "--set" {
			values = append(values, args[i+1])
			i++
		}
	}
	return values
}

// fits compares the plan's memory with the card's free memory, before the run starts.
func (a *attempt) fits(needs int64) bool {
	if !a.tier.GPU {
		return true // on the CPU the program itself refuses a plan that exceeds the available memory
	}
	var card Card
	known := false
	if a.Card != nil {
		card, known = a.Card()
	}
	if !known {
		a.note(Check{Name: "free memory of the card", Status: Fail, Detail: "it can't be read; without --check-vram the run's own check decides"}, a.Exit.Unfit)
		return false
	}
	needs += aside
	c := Check{Name: "free memory of the card", Status: status(needs <= card.Free),
		Detail: fmt.Sprintf("%s needed, %d MiB of it for the driver; %s free", bytesText(needs), int64(aside>>20), bytesText(card.Free))}
	if needs > card.Free {
		c.Detail += fmt.Sprintf(": %s too little; end what else uses the card, or use another", bytesText(needs-card.Free))
	}
	a.note(c, a.Exit.DoesNotFit)
	return c.Status == Pass
}

// train runs the tier's run and judges it.
func (a *attempt) train(ctx context.Context, config []string) error {
	watch := newSampler(a.Card, filepath.Join(a.run, train.MetricsFile))
	if !a.tier.GPU {
		watch.known = false
	}
	var result train.Result
	done, err := a.call(ctx, call{name: "train", args: append([]string{"train", "--json"}, config...), watch: watch.watch}, &result)
	a.Memory = &Memory{Planned: a.Plan.TotalBytes, Limit: a.tier.Limit, CardKnown: watch.known, CardUsed: watch.before.Used, CardFree: watch.before.Free,
		CardGrown: watch.grown, HostPeak: done.HostPeak, Samples: watch.samples}
	if err != nil {
		return err
	}
	if done.Problem != "" {
		a.note(Check{Name: "the run", Status: Fail, Detail: done.Problem}, a.codeOf(done))
	} else {
		a.check("the run", true, "exit code 0 after %.1f s", done.Seconds)
	}
	if result.MaxSteps == 0 {
		return nil // the check above records the missing result
	}
	a.Run, a.Memory.Held = &result, result.HeldBytes
	a.judge()
	if a.Status == Fail {
		return nil
	}
	return a.replay(ctx)
}

// replay runs the first steps again and lets verify compare them bit for bit.
func (a *attempt) replay(ctx context.Context) error {
	var v replay.Verdict
	began := time.Now()
	done, err := a.call(ctx, call{name: "verify", args: []string{"verify", a.run, "--steps", strconv.Itoa(replaySteps), "--json"}}, &v)
	switch {
	case err != nil:
		return err
	case done.Problem != "":
		a.note(Check{Name: "replay", Status: Fail, Detail: done.Problem}, a.codeOf(done))
	default:
		a.check("replay", v.Equal && v.Steps == min(replaySteps, a.tier.Steps), "%d steps again, losses and rows equal bit for bit: %v, in %.1f s", v.Steps, v.Equal, time.Since(began).Seconds())
	}
	return nil
}
