// Command trainer fine-tunes language models with LoRA, QLoRA and other adapters, or all of their weights.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/tokenizer"
)

//go:generate go test -run ^TestReferenceIsFresh$ ../../config -update
//go:generate go test -run ^TestCommandReferenceIsFresh$ . -update

func main() {
	rescue.Fatal = func(err error) { // for a background goroutine
		c := &console{err: safetext.NewMaskingWriter(os.Stderr)}
		c.say("trainer: %s", shortened(err.Error()))
		if last := unreturned.Swap(nil); last != nil {
			atMost(time.Second, func() { (*last)(err) })
		}
		os.Exit(exitFailed)
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// console holds a command's streams. Results go to out, everything else to err. Both escape control characters, and err
// masks secrets; raw returns the stream below for the program's own escape sequences.
type console struct {
	in       io.Reader
	out      io.Writer
	err      io.Writer
	also     io.Writer // receives the lines of say too, for a run's journal; nil = no copy
	download bool      // fetch models that are not in the cache
}

// say prints a line that is not part of the result.
func (c *console) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	sayLine(c.err, line)
	if c.also != nil {
		fmt.Fprintln(c.also, line)
	}
}

// run executes the program and returns its exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	result := &sink{w: out}
	c := &console{in: in, out: safetext.NewWriter(result), err: safetext.NewMaskingWriter(errOut)}
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := graph.Diagnose(rescue.Do(func() error { return execute(root) }))
	if err == nil && result.err != nil {
		err = fmt.Errorf("write the result: %w", result.err)
	}
	exit := (*exitError)(nil)
	if err != nil && !(errors.As(err, &exit) && exit.silent) {
		c.say("trainer: %s%s", shortened(err.Error()), filename.Nearest(err))
	}
	if o, ok := raw(c.err).(*outlet); ok {
		o.flush(outletWait)
	}
	return exitCode(err)
}

// execute runs a command. It returns an error if a tokenizer needs excessive time or memory for a text.
func execute(root *cobra.Command) (err error) {
	defer tokenizer.Caught(&err)
	return root.ExecuteContext(context.Background())
}

// longestLine is the most bytes of an error's line that are printed: a user's value in it may be of any size.
const longestLine = 2000

// shortened removes the middle of lines that are too long.
func shortened(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if len(l) > longestLine {
			lines[i] = strings.ToValidUTF8(l[:longestLine*3/4], "") + fmt.Sprintf(" … (%d bytes are left out) … ",
				len(l)-longestLine) + strings.ToValidUTF8(l[len(l)-longestLine/4:], "")
		}
	}
	return strings.Join(lines, "\n")
}

// sink remembers the first failed write, so that a command whose result was not written fails.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

func newRoot(c *console) *cobra.Command {
	options := &trainOptions{}
	root := &cobra.Command{
		Use:   "trainer [FILE.yaml]",
		Short: "Fine-tune language models",
		Long: `trainer fine-tunes language models with LoRA, QLoRA and other adapters, or all
of their weights: on answers (SFT), preferences (DPO, KTO and others), rewards
(GRPO, RLOO), labels, pairs of texts, or a teacher's predictions.

trainer FILE.yaml and trainer --config FILE are trainer train FILE.`,
		Example: `  trainer --config cpu_stories_quick.yaml
  trainer validate run.yaml
  trainer run.yaml --set training.max_steps=10
  trainer run.yaml --resume auto`,
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (strings.HasSuffix(args[0], ".yaml") || strings.HasSuffix(args[0], ".yml")) {
				return options.argument(cmd, args)
			}
			return noArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if options.config == "" {
				switch only := cmd.Flags().NFlag(); {
				case only == 0:
					return cmd.Help()
				case only == 1 && options.verbose: // trainer -v alone asks for the version, as with other programs
					fmt.Fprintln(c.out, versionLine())
					return nil
				}
			}
			return runTrain(cmd.Context(), c, options)
		},
	}
	options.register(root, c)
	root.Flags().BoolVarP(&options.verbose, "verbose", "v", false, verboseText)
	root.Flags().Bool("version", false, "print the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(nearFlag(cmd, err)) })
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		newInit(c), newTrain(c), newLaunch(c), newSweep(c), newValidate(c), newPlan(c), newBench(c), newInspect(c),
		newEval(c), newPredict(c), newLogprobs(c), newGenerate(c), newChat(c), newServe(c),
		newMerge(c), newExport(c), newPush(c), newDownload(c), newConfigs(c), newImport(c), newConfigSchema(c),
		newVerify(c), newGradcheck(c), newLRFind(c), newReport(c),
		newUI(c), newDoctor(c), newSelfcheck(c), newTier(c), newMan(c), newVersion(c),
	)
	addCompletion(root)
	setHelp(root, c.out)
	return root
}

// noArguments refuses arguments that are not flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usage(fmt.Errorf("%s takes no argument, got %q%s", cmd.CommandPath(), args[0], wordMeant(cmd, args[0])))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := words.Nearest(args[0], names); near != "" {
		return usage(fmt.Errorf("unknown command %q for %s; the nearest is %s", args[0], cmd.CommandPath(), near))
	}
	return usage(fmt.Errorf("unknown command %q for %s; %s --help lists them", args[0], cmd.CommandPath(),
		cmd.CommandPath()))
}

// oneArgument requires exactly one argument, called what.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(fmt.Errorf("%s takes one argument, %s; got %d", cmd.CommandPath(), what, len(args)))
		}
		return nil
	}
}

// nearFlag adds the most similar flag of the command to the error for an unknown flag.
func nearFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	lists := fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
	if unknown.GetSpecifiedShortnames() != "" {
		return lists
	}
	if key := config.KeyMeant(unknown.GetSpecifiedName()); key != "" && cmd.Flags().Lookup("set") != nil {
		return fmt.Errorf("%w; a key of the configuration is set by --set %s=VALUE", err, key)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := words.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; the nearest is --%s", err, near)
	}
	return lists
}

// wordMeant names the flag that takes a word which was given without a flag.
func wordMeant(cmd *cobra.Command, word string) string {
	has := func(flag string) bool { return cmd.Flags().Lookup(flag) != nil }
	_, err := os.Stat(word)
	switch {
	case has("prompt") && err != nil:
		return "; write a text as --prompt TEXT"
	case has("adapter") && has("model"):
		return "; name an adapter by --adapter DIR, a model by --model DIR"
	case has("model"):
		return "; name a model by --model DIR"
	}
	return ""
}
