// Command trainer fine-tunes language models with LoRA and QLoRA.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// console is where a command reads and writes. What the user asked for goes to out, everything else to err.
type console struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// say writes a line about what goes on.
func (c *console) say(format string, args ...any) { fmt.Fprintf(c.err, format+"\n", args...) }

// run is the program: its result is the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	c := &console{in, out, errOut}
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(context.Background())
	exit := (*exitError)(nil)
	if err != nil && !(errors.As(err, &exit) && exit.silent) {
		c.say("trainer: %v", err)
	}
	return exitCode(err)
}

func newRoot(c *console) *cobra.Command {
	options := &trainOptions{}
	root := &cobra.Command{
		Use:           "trainer",
		Short:         "Fine-tune language models with LoRA and QLoRA",
		Long:          "trainer fine-tunes language models with LoRA and QLoRA.\n\ntrainer --config FILE is trainer train --config FILE.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if options.config == "" && cmd.Flags().NFlag() == 0 {
				return cmd.Help()
			}
			return runTrain(cmd.Context(), c, options)
		},
	}
	options.register(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newTrain(c), newValidate(c), newPlan(c), newBench(c), newInspect(c), newEval(c), newGenerate(c), newMerge(c),
		newConfigs(c), newConfigSchema(c), newDoctor(c), newSelfcheck(c), newVersion(c),
	)
	return root
}

// noArguments refuses words that are no flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usage(fmt.Errorf("%s takes no argument, got %q", cmd.CommandPath(), args[0]))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := nearest(args[0], names); near != "" {
		return usage(fmt.Errorf("unknown command %q for %s; the nearest is %s", args[0], cmd.CommandPath(), near))
	}
	return usage(fmt.Errorf("unknown command %q for %s; %s --help lists them", args[0], cmd.CommandPath(), cmd.CommandPath()))
}

// oneArgument asks for exactly one word, called what.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(fmt.Errorf("%s takes one argument, %s; got %d", cmd.CommandPath(), what, len(args)))
		}
		return nil
	}
}
