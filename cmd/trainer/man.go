package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

func newMan(c *console) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print a manual page, or write all of them",
		Long: `Print the manual page of the program or of a command, in the format that man reads. --dir writes all pages into a
folder; man finds them in ~/.local/share/man/man1.`,
		Example: `  trainer man train
  trainer man --dir ~/.local/share/man/man1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if dir == "" {
				found, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 || found == root && len(args) > 0 {
					return noArguments(root, args)
				}
				_, err = c.out.Write(manPage(found))
				return err
			}
			if len(args) > 0 {
				return usage(fmt.Errorf("%s --dir writes the pages of all commands; leave out %q",
					cmd.CommandPath(), args[0]))
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return usage(fmt.Errorf("--dir: %w", err))
			}
			n := 0
			var err error
			eachAvailable(root, func(cmd *cobra.Command) {
				if err == nil {
					n++
					path := filepath.Join(dir, manName(cmd)+".1")
					if err = atomicfile.CheckOwn(path, "a manual page", ".TH "); err == nil {
						err = atomicfile.Write(path, manPage(cmd))
					}
				}
			})
			if err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			fmt.Fprintf(c.out, "%d pages in %s\n", n, dir)
			return nil
		},
	}
	pathVar(cmd, &dir, "dir", "", "write the pages of all commands to `FOLDER`")
	return cmd
}

// eachAvailable visits a command and all commands below it that help lists, in order.
func eachAvailable(cmd *cobra.Command, see func(*cobra.Command)) {
	see(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			eachAvailable(sub, see)
		}
	}
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a command's manual page in the macros of man(7).
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	date := ""
	if !built.At.IsZero() {
		date = built.At.UTC().Format("2006-01-02")
	}
	fmt.Fprintf(&b, ".TH %q 1 %q %q %q\n", roff(strings.ToUpper(manName(cmd))), date,
		roff("tierlora "+version()), "tierlora")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(cmd.CommandPath()),
		roff(strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath()))))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		for line := range strings.Lines(paragraph) {
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
	manFlags(&b, "OPTIONS", cmd.NonInheritedFlags().FlagUsagesWrapped(72))
	manFlags(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags().FlagUsagesWrapped(72))
	var subs []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			subs = append(subs, fmt.Sprintf(".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short)))
		}
	}
	if subs != nil {
		b.WriteString(".SH COMMANDS\n" + strings.Join(subs, ""))
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
		b.WriteString(".fi\n")
	}
	if !cmd.HasParent() {
		b.WriteString(".SH EXIT STATUS\n")
		for _, e := range exits {
			fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.code, roff(e.means))
		}
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			also = append(also, manName(sub))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, name := range also {
		comma := ","
		if i == len(also)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), comma)
	}
	return b.Bytes()
}

// exits lists the exit codes with their meanings.
var exits = []struct {
	code  int
	means string
}{
	{exitDone, "done"}, {exitFailed, "the run, a criterion or a check failed; the device failed"},
	{exitUsage, "bad command line or configuration, before any work"},
	{exitUnfit, "the machine lacks something: GPU, driver, model, data"},
	{exitDoesNotFit, "the plan does not fit in memory"},
	{exitLost, "of a process of trainer launch: another rank failed first"}, {exitSkipped, "tiers were skipped"},
	{exitHangup, "stopped by SIGHUP after saving"}, {exitInterrupt, "stopped by SIGINT after saving"},
	{exitTerminated, "stopped by SIGTERM after saving"},
}

// manFlags writes flags as help lists them.
func manFlags(b *bytes.Buffer, title, usages string) {
	if usages == "" {
		return
	}
	b.WriteString(".SH " + title + "\n.nf\n")
	for line := range strings.Lines(usages) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff escapes a line of text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
