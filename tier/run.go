package tier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// Options is what a validation takes from the program around it.
type Options struct {
	Program string   // path of the program that is validated
	Env     []string // added to the environment of the program
	Dir     string   // folder for the report, every command's output and the runs; created if it is missing
	Tiers   []Tier
	Bases   map[string]string // base model of each tier, a folder or a name; none = the configuration's
	Sets    []string          // KEY=VALUE settings for every tier's configuration
	Time    time.Duration     // time limit of each command in place of the tier's; 0 = the tier's

	CheckVRAM        bool // refuse to start a tier that needs more memory than the card has free
	ContinueOnError  bool // continue with the next tier after a failure
	AllowSkip        bool // skips do not count as failures
	FailOnRegression bool
	Kept             []string // kept reports to compare with: files, or folders that contain some

	Card func() (Card, bool) // returns the memory of the card; nil or false = it can't be read
	// Spec reads a configuration as the program does.
	Spec func(config string, sets []string) (train.Spec, error)
	// Reference reads a reference curve as the program does.
	Reference func(name string) (*train.Reference, error)
	Verbose   io.Writer // receives the log output of the commands; nil = it only goes to their log files
	OnTier    func(Tier)
	OnCheck   func(Check)

	Exit    Exit
	Command []string // command line of this program
	About   Program
	Now     func() time.Time // nil = time.Now
}

// Exit has the exit codes of the program.
type Exit struct {
	Failed, Unfit, DoesNotFit, Skipped int
	Stopped                            func() int // exit code after a signal
}

// runner is a validation in progress.
type runner struct {
	Options
	report Report
	unfit  *Check // why no tier on a GPU can run
	code   int    // exit code for unfit
}

// Run runs the tiers in turn, judges them, and writes the report. The error concerns the report's folder; the report
// has the results of the tiers.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &runner{Options: o}
	began := o.Now()
	if err := r.open(); err != nil {
		return r.report, err
	}
	r.report = Report{Schema: Schema, Time: began.UTC().Format(time.RFC3339), Command: o.Command, Program: o.About, Checks: []Check{}, Commands: []Command{}, Tiers: []Result{}}
	err := r.machine(ctx)
	stop := ""
	for _, t := range o.Tiers {
		if err != nil {
			stop = "the validation was stopped"
		}
		var done Result
		if stop != "" {
			done = r.result(t)
			done.Status, done.Reason, done.ExitCode = Skip, stop, o.Exit.Skipped
		} else {
			if o.OnTier != nil {
				o.OnTier(t)
			}
			done, err = r.tier(ctx, t)
		}
		r.report.Tiers = append(r.report.Tiers, done)
		if done.Status == Fail && !o.ContinueOnError && stop == "" {
			stop = fmt.Sprintf("%s failed before it; --continue-on-error goes on", t.Name)
		}
	}
	r.conclude()
	if errors.Is(err, errStopped) {
		r.report.Status, r.report.ExitCode = Fail, o.Exit.Stopped()
		err = nil
	}
	r.report.Seconds = o.Now().Sub(began).Seconds()
	return r.report, errors.Join(err, r.write())
}

// open creates the report's folder, and refuses a folder that contains a report.
func (r *runner) open() error {
	var err error
	if r.Dir, err = filepath.Abs(r.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	names := []string{ReportJSON, "doctor.json"}
	for _, t := range r.Tiers {
		names = append(names, t.Name)
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(r.Dir, name)); err == nil {
			return fmt.Errorf("%s holds %s of an earlier validation: name another folder", r.Dir, name)
		}
	}
	return nil
}

// limit returns the longest wall time of a tier's command.
func (r *runner) limit(t Tier) time.Duration {
	if r.Time > 0 {
		return r.Time
	}
	return t.Time
}

// machine checks what every tier needs.
func (r *runner) machine(ctx context.Context) error {
	var longest Tier
	gpu := false
	for _, t := range r.Tiers {
		gpu = gpu || t.GPU
		if t.Time > longest.Time {
			longest = t
		}
	}
	check := func(name string, code int, ok bool, detail string) {
		c := r.say(Check{Name: name, Status: status(ok), Detail: detail})
		if !ok && gpu && r.unfit == nil {
			r.unfit, r.code = &c, code
		}
		r.report.Checks = append(r.report.Checks, c)
	}
	args := []string{"doctor", "--json"}
	if gpu {
		args = []string{"doctor", "--cuda", "--json"}
	}
	var doctor struct {
		Platform string
		Cores    int
		Driver   string
		GPUs     []struct{ Name string }
	}
	var raw json.RawMessage
	done, err := r.run(ctx, call{name: "doctor", args: args, dir: r.Dir, limit: r.limit(longest)}, &raw)
	r.report.Commands = append(r.report.Commands, done)
	if err != nil {
		return err
	}
	r.report.Environment = raw
	json.Unmarshal(raw, &doctor) //nolint:errcheck // fields of other types stay empty
	r.report.Machine = Machine{Driver: plain(doctor.Driver), Platform: plain(doctor.Platform), Cores: doctor.Cores}
	if len(doctor.GPUs) > 0 {
		r.report.Machine.GPU = plain(doctor.GPUs[0].Name)
	}
	if !gpu {
		return nil
	}
	ok := done.Problem == "" && r.report.Machine.GPU != ""
	detail := r.report.Machine.GPU
	if !ok {
		if detail = done.Problem; detail == "" {
			detail = "doctor names none"
		}
	}
	check("a usable GPU", r.codeOf(done), ok, detail)
	if !ok {
		return nil
	}
	var x Selfcheck
	done, err = r.run(ctx, call{name: "selfcheck", args: []string{"selfcheck", "--json"}, dir: r.Dir, limit: r.limit(longest)}, &x)
	r.report.Commands = append(r.report.Commands, done)
	if err != nil {
		return err
	}
	x.Seconds = done.Seconds
	r.report.Selfcheck = &x
	detail = fmt.Sprintf("%d passed, %d failed, %d skipped in %.1f s", x.Passed, x.Failed, x.Skipped, x.Seconds)
	if done.Problem != "" {
		detail = done.Problem
	}
	check("every kernel against float64", r.codeOf(done), done.Problem == "" && x.Failed == 0 && x.Passed > 0, detail)
	return nil
}

// codeOf returns the exit code of a tier whose command failed: the command's own if it is more specific than a general
// failure.
func (r *runner) codeOf(c Command) int {
	if c.ExitCode == r.Exit.Unfit || c.ExitCode == r.Exit.DoesNotFit {
		return c.ExitCode
	}
	return r.Exit.Failed
}

func (r *runner) say(c Check) Check {
	c.Detail = plain(c.Detail)
	if r.OnCheck != nil {
		r.OnCheck(c)
	}
	return c
}

func status(ok bool) string {
	if ok {
		return Pass
	}
	return Fail
}

// conclude sums up the tiers. The exit code comes from the first failed tier, else from a skip.
func (r *runner) conclude() {
	p := &r.report
	p.Status = Pass
	for _, t := range p.Tiers {
		switch {
		case t.Status == Fail && p.Status != Fail:
			p.Status, p.ExitCode = Fail, t.ExitCode
		case t.Status == Skip && p.Status == Pass && !r.AllowSkip:
			p.Status, p.ExitCode = Skip, r.Exit.Skipped
		}
	}
}

// write writes the report in all its forms.
func (r *runner) write() error {
	data, err := json.MarshalIndent(r.report, "", " ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(r.Dir, ReportJSON), append(data, '\n')); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return writePages(r.Dir, r.report)
}

// bytesText formats a size for people.
func bytesText(n int64) string {
	return fmt.Sprintf("%s (%d bytes)", session.FormatBytes(n), n)
}
