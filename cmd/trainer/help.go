package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// commandTask is a group of commands in the help.
type commandTask struct {
	id, title string
	commands  []string // in the order in which a newcomer meets them
}

// commandTasks groups all commands by task.
var commandTasks = []commandTask{
	{"train", "Train", []string{"init", "import", "configs", "validate", "plan", "train", "lr-find",
		"sweep", "launch"}},
	{"data", "Look at data and models", []string{"inspect", "download"}},
	{"use", "Use what was trained", []string{"chat", "generate", "eval", "predict", "logprobs", "serve", "merge",
		"export", "push"}},
	{"look", "Look at runs", []string{"ui", "report"}},
	{"operate", "Check and operate", []string{"doctor", "bench", "verify", "gradcheck", "selfcheck", "tier",
		"config-schema", "completion", "man", "version", "help"}},
}

// setHelp groups the root's commands by task and wraps the help of all commands at the width of w.
func setHelp(root *cobra.Command, w io.Writer) {
	root.InitDefaultHelpCmd()
	for _, t := range commandTasks {
		root.AddGroup(&cobra.Group{ID: t.id, Title: t.title + ":"})
		for _, cmd := range root.Commands() {
			if slices.Contains(t.commands, cmd.Name()) {
				cmd.GroupID = t.id
			}
		}
	}
	width := helpWidth(w)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), usageText(cmd, width))
		return err
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		about := cmd.Long
		if about == "" {
			about = cmd.Short
		}
		io.WriteString(cmd.OutOrStdout(), wrapProse(strings.TrimSpace(about), width)+"\n\n"+
			usageText(cmd, width)) //nolint:errcheck // the sink below keeps the error
	})
}

// helpWidth returns the width at which help is wrapped: the terminal's width, or 80 columns if w is not a terminal.
func helpWidth(w io.Writer) int {
	if !isTerminal(w) {
		return 80
	}
	return max(columns(w), 40)
}

// usageText returns a command's help below its description, in lines of at most width columns.
func usageText(cmd *cobra.Command, width int) string {
	var b strings.Builder
	section := func(title string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(title + "\n")
	}
	section("Usage:")
	if cmd.Runnable() {
		b.WriteString("  " + fold(cmd.UseLine(), width, 4) + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " COMMAND\n")
	}
	if len(cmd.Aliases) > 0 {
		section("Aliases:")
		b.WriteString("  " + cmd.NameAndAliases() + "\n")
	}
	if cmd.HasExample() {
		section("Examples:")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(wrapCommand(strings.TrimRight(line, "\n"), width) + "\n")
		}
	}
	pad := 0
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			pad = max(pad, len(sub.Name()))
		}
	}
	line := func(sub *cobra.Command) {
		fmt.Fprintf(&b, "  %-*s  %s\n", pad, sub.Name(), fold(sub.Short, width, pad+4))
	}
	if groups := cmd.Groups(); len(groups) > 0 {
		for _, t := range commandTasks {
			section(t.title + ":")
			for _, name := range t.commands {
				if sub, _, err := cmd.Find([]string{name}); err == nil && sub != cmd {
					line(sub)
				}
			}
		}
	} else if cmd.HasAvailableSubCommands() {
		section("Commands:")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				line(sub)
			}
		}
	}
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		section("Flags:")
		b.WriteString(flagLines(flags.FlagUsages(), width))
	}
	if flags := cmd.InheritedFlags(); flags.HasAvailableFlags() {
		section("Flags of all commands:")
		b.WriteString(flagLines(flags.FlagUsages(), width))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n" + fold(fmt.Sprintf("%s COMMAND --help says more about a command.", cmd.CommandPath()),
			width, 0) + "\n")
	}
	return b.String()
}

// flagLines wraps pflag's list of flags, one flag per line. If the names leave little space, the text starts on the
// next line.
func flagLines(usages string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(usages) {
		m := flagHead.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			b.WriteString(line)
			continue
		}
		name, indent := m[1]+m[2], len(m[1])+len(m[2])
		if width-indent < 32 {
			name, indent = m[1]+"\n          ", 10
		}
		b.WriteString(name + fold(m[3], width, indent) + "\n")
	}
	return b.String()
}

// flagHead matches a flag's names and type, the blanks after them, and the description.
var flagHead = regexp.MustCompile(`^( +(?:-\w, )?--\S+(?: \S+)?)( {2,})(.*)$`)

// wrapProse wraps each paragraph that has a line longer than width. In a paragraph with indented lines, such as a list
// of names and meanings, it wraps each line by itself, indented to the start of its text.
func wrapProse(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		lines := strings.Split(p, "\n")
		if !slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > width }) {
			continue
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, " ") }) {
			paragraphs[i] = fold(strings.Join(lines, " "), width, 0)
			continue
		}
		for j, l := range lines {
			head := listHead.FindString(l)
			lines[j] = head + fold(l[len(head):], width, utf8.RuneCountInString(head))
		}
		paragraphs[i] = strings.Join(lines, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// listHead matches a line's indentation and, if there is one, the name before its text.
var listHead = regexp.MustCompile(`^ +(?:\S+(?: \S+)*  +)?`)

// wrapCommand wraps an example's command line for a shell: quoted words and a flag with its value stay together, and a
// continued line ends with a backslash.
func wrapCommand(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	var b strings.Builder
	at := indent
	b.WriteString(line[:indent])
	for i, word := range withValues(shellWords(line[indent:])) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n+len(" \\") > width:
			b.WriteString(" \\\n" + strings.Repeat(" ", indent+4))
			at = indent + 4
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// shellWords splits a command line at blanks outside of quotes.
func shellWords(line string) (words []string) {
	quote, from := rune(0), 0
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
		case r == '\'' || r == '"':
			quote = r
		case r == ' ':
			words = append(words, line[from:i])
			from = i + 1
		}
	}
	return append(words, line[from:])
}

// withValues joins each flag with the value after it.
func withValues(words []string) (joined []string) {
	for _, word := range words {
		if n := len(joined) - 1; n >= 0 && strings.HasPrefix(joined[n], "--") && !strings.ContainsAny(joined[n],
			"= ") && !strings.HasPrefix(word, "-") {
			joined[n] += " " + word
			continue
		}
		joined = append(joined, word)
	}
	return joined
}
