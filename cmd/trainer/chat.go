package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/lineedit"
	"github.com/tierlora/tierlora/internal/rescue"
)

func newChat(c *console) *cobra.Command {
	var o engineFlags
	t := talk{c: c, options: infer.GenerateOptions{MaxTokens: chatTokens, TopP: 1}}
	cmd := &cobra.Command{
		Use:   "chat --model DIR [--adapter NAME=DIR ...]",
		Short: "Talk with a model in the terminal, and switch between adapters",
		Long: `Talk with a model in the terminal. The chat template is that of the adapter in use, or the model's own. /adapter NAME
switches to another adapter in the middle of a conversation, /adapter none to the base model; /help lists the other
commands. Ctrl-C stops an answer, Ctrl-D quits.

If standard input is a pipe, each line is a message and each answer is one line of standard output, with line breaks
written as \n.`,
		Example: `  trainer chat --model ./SmolLM2-135M-Instruct
  trainer chat --adapter runs/chat --system "Answer in one sentence."
  trainer chat --model ./Qwen3-0.6B --adapter old=runs/first --adapter new=runs/second --temperature 0.7
  printf 'What is a tide?\n' | trainer chat --model ./SmolLM2-135M-Instruct`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.options.Check(1 << 30); err != nil {
				return usage(err)
			}
			if t.options.MaxTokens < 1 {
				return usage(fmt.Errorf("--max-tokens %d: must be at least 1", t.options.MaxTokens))
			}
			if err := o.check(); err != nil {
				return err
			}
			t.systemGiven = cmd.Flags().Changed("system")
			return runChat(cmd.Context(), c, o, &t)
		},
	}
	o.register(cmd, c)
	f := cmd.Flags()
	f.StringVar(&t.system, "system", "",
		"`TEXT` of a system message that comes first; left out, the one that the adapter was trained with, \"\" none")
	f.IntVar(&t.options.MaxTokens, "max-tokens", chatTokens,
		"largest number of tokens of an answer, or what there is room for")
	f.Float64Var(&t.options.Temperature, "temperature", 0, "sampling temperature; 0 takes the likeliest token")
	f.Float64Var(&t.options.TopP, "top-p", 1,
		"nucleus sampling: sample from the likeliest tokens whose probabilities add up to this")
	f.IntVar(&t.options.TopK, "top-k", 0, "sample from this many of the likeliest tokens; 0 = all")
	f.Uint64Var(&t.options.Seed, "seed", 0, "sampling seed")
	f.BoolVar(&t.json, "json", false, "print every answer as JSON, one a line")
	return cmd
}

func runChat(ctx context.Context, c *console, o engineFlags, t *talk) (err error) {
	o.slots = 1
	e, err := o.open(ctx, c, infer.EngineOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	t.engine, t.template, t.images = e, o.template, o.images
	in, isFile := c.in.(*os.File)
	t.terminal = isFile && term.IsTerminal(int(in.Fd())) && isTerminal(c.out) && !t.json
	t.colour = t.terminal && mayColour(c.out)
	if isFile {
		endOnTerm(in, t.terminal)
	}
	if len(o.named) > 0 {
		t.adapter = o.named[0].Name
	}
	if err := t.use(t.adapter); err != nil {
		return usage(err)
	}
	c.say("plan: %s on %s; %d tokens, %d bytes", o.model, e.On.Name(), e.MaxLen(), e.Need().Total())
	if t.terminal {
		c.say("%s", fold(t.name()+" answers; /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends",
			foldWidth(c.err), 0))
		if state, err := term.GetState(int(in.Fd())); err == nil {
			defer func() { _ = term.Restore(int(in.Fd()), state) }()
		}
		defer fmt.Fprint(raw(c.out), "\x1b[?2004l")
		return t.run(ctx, &typed{file: in, out: raw(c.out), bold: t.colour})
	}
	return t.run(ctx, &piped{r: bufio.NewReader(c.in)})
}

// lines yields the messages that a person types or a pipe delivers.
type lines interface {
	// next returns the next message, or io.EOF at the end.
	next() (string, error)
}

// maxMessageBytes is the largest message in bytes.
const maxMessageBytes = 4 << 20

// piped reads one message per line. A line that ends with a backslash continues on the next line.
type piped struct{ r *bufio.Reader }

func (p *piped) next() (string, error) {
	return joined(func() (string, error) {
		line, err := p.r.ReadString('\n')
		if err == io.EOF && line != "" {
			err = nil
		}
		return strings.TrimRight(line, "\r\n"), err
	})
}

// joined reads a message of one or more lines. A line that ends with a backslash continues on the next; lines between
// two lines of """ form one message.
func joined(read func() (string, error)) (string, error) {
	const quotes = `"""`
	var all []string
	size, quoted := 0, false
	for {
		line, err := read()
		if err != nil {
			if err == io.EOF && len(all) > 0 {
				return strings.Join(all, "\n"), nil
			}
			return "", err
		}
		if size += len(line) + 1; size > maxMessageBytes {
			return "", fmt.Errorf("a message has more than %d MB", maxMessageBytes>>20)
		}
		switch {
		case !quoted && len(all) == 0 && strings.HasPrefix(line, quotes):
			quoted = true
			line = line[len(quotes):]
			if before, ok := strings.CutSuffix(line, quotes); ok {
				return before, nil
			}
			if line == "" {
				continue
			}
		case quoted:
			if before, ok := strings.CutSuffix(line, quotes); ok {
				if before != "" {
					all = append(all, before)
				}
				return strings.Join(all, "\n"), nil
			}
		default:
			if before, ok := strings.CutSuffix(line, `\`); ok {
				all = append(all, before)
				continue
			}
			return strings.Join(append(all, line), "\n"), nil
		}
		all = append(all, line)
	}
}

// typed reads messages from a terminal, with editing and history. The terminal is in raw mode only while a line is
// read, so that Ctrl-C raises a signal during an answer.
type typed struct {
	file   *os.File
	out    io.Writer
	bold   bool // draw the prompt in bold
	editor *lineedit.Editor
}

func (t *typed) next() (string, error) {
	state, err := term.MakeRaw(int(t.file.Fd()))
	if err != nil {
		return "", fmt.Errorf("read from the terminal: %w", err)
	}
	defer func() {
		_ = term.Restore(int(t.file.Fd()), state)
		hideTyping(t.file)
	}()
	if t.editor == nil {
		t.editor = &lineedit.Editor{In: t.file, Out: t.out, Size: func() (int, int) {
			width, height, _ := term.GetSize(int(t.file.Fd())) // 0 if the terminal does not report its size
			return width, height
		}}
		fmt.Fprint(t.out, "\x1b[?2004h") // bracketed paste: the terminal marks pasted text
	}
	prompt := "> "
	t.editor.Bold = t.bold
	return joined(func() (string, error) {
		line, err := t.editor.ReadLine(prompt)
		prompt, t.editor.Bold = "... ", false
		return line, err
	})
}

// interruptible runs work with a context that Ctrl-C cancels. The program continues afterwards.
func interruptible(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt)
	defer cancel()
	return work(ctx)
}

// endOnTerm ends the program at SIGTERM, also while it waits for a line, and restores the terminal's mode.
func endOnTerm(in *os.File, terminal bool) {
	var state *term.State
	if terminal {
		state, _ = term.GetState(int(in.Fd()))
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	rescue.Go(func() {
		<-signals
		if state != nil {
			_ = term.Restore(int(in.Fd()), state)
		}
		os.Exit(exitTerminated)
	})
}
