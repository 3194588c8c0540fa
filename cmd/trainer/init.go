package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// initOptions holds the flags and answers of trainer init.
type initOptions struct {
	model, data, goal, device, vram, chip, out string
	format, asChat, system                     string
	fields                                     map[string]string
	json                                       bool

	lines *bufio.Reader // reads the answers of a user; nil = ask no questions
}

// goals maps each purpose of a model to the row formats that serve it.
var goals = map[string][]string{
	"chat":     {"messages", "sharegpt", "chat_completion"},
	"instruct": {"alpaca", "completion", "segments"},
	"text":     {"text"},
	"tokens":   {"tokenized"},
	goalPairs:  {"preference", "tokenized_preference", "unpaired", "tokenized_unpaired"},

	goalClasses:   {"classification", "tokenized_classification"},
	goalWords:     {"token_classification", "tokenized_token_classification"},
	goalVectors:   {"pairs"},
	goalReranking: {"classification", "tokenized_classification"},
	goalReasoning: {"prompts"},
}

// goalNames lists the goals in display order.
var goalNames = []string{"chat", "instruct", "text", "tokens", goalPairs, goalClasses, goalWords, goalVectors,
	goalReranking, goalReasoning}

// initFile is the default of --out.
const initFile = "run.yaml"

func newInit(c *console) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration that fits your model, data and machine",
		Long: `Write a commented configuration. init reads the rows, the model and the free memory, plans runs until one fits, and
comments why each value was chosen and what changes it. On a terminal it asks for what no flag sets. It never replaces
a file.

Rows of a prompt and an answer become conversations if the model has a chat template; --as-chat no keeps plain text.
--format and --fields describe rows whose keys init does not recognise.

The goals classification, token_classification, embedding and reranking train a head (docs/TASKS.md). init reads the
labels of all rows, and writes their names or their number.

The goal reasoning samples answers to questions and rewards the right ones (docs/RL.md). init chooses the reward by the
column with the right answer.

The model's weights are not needed: config.json and a tokenizer are enough. Without a tokenizer, init plans for rows of
full length.`,
		Example: `  trainer init
  trainer init --model embedded:stories260K --data embedded:gsm8k_300.jsonl --out run.yaml
  trainer init --model ./SmolLM2-135M --data mine.jsonl --goal instruct --vram 8GiB
  trainer init --model ./Qwen3-0.6B --data reviews.csv --goal classification --fields text=Comment,label=Stars
  trainer init --model ./Qwen3-0.6B --data questions.jsonl --goal reasoning
  trainer init --model ./SmolLM2-135M-Instruct --data faq.csv --fields prompt=Frage,completion=Antwort --system "Answer briefly."`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runInit(cmd.Context(), c, o) },
	}
	pathVar(cmd, &o.model, "model", "", "base model: a `FOLDER`, a name such as org/name, or embedded:stories260K")
	pathVar(cmd, &o.data, "data", "", "rows to train on: a `FILE`, folder, pattern, or data set of the hub")
	cmd.Flags().StringVar(&o.goal, "goal", "", "what the rows are for: "+strings.Join(goalNames, ", ")+
		"; default: detected from the rows, but for those that train a head and reasoning")
	cmd.Flags().StringVar(&o.format, "format", "", "format of the rows, such as messages, completion, alpaca or text "+
		"(docs/DATA.md lists all); default: detected from their keys")
	cmd.Flags().StringToStringVar(&o.fields, "fields", nil,
		"which keys of the rows hold the format's fields: `FIELD=KEY,...`, such as prompt=question,completion=answer")
	cmd.Flags().StringVar(&o.asChat, "as-chat", "", "train rows of a prompt and an answer as conversations: "+
		strings.Join(dataset.AsChatChoices, ", ")+"; default: yes if the model has a chat template")
	cmd.Flags().StringVar(&o.system, "system", "", "`TEXT` of the system message of conversations without one")
	cmd.Flags().StringVar(&o.device, "device", "auto", "device: auto, cpu, cuda")
	cmd.Flags().StringVar(&o.vram, "vram", "", "memory limit, a `SIZE` such as 8GiB")
	gpuVar(cmd, &o.chip, "")
	pathVar(cmd, &o.out, "out", "o", "new configuration `FILE` (default "+initFile+")")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the choices as JSON")
	c.downloadFlag(cmd)
	must(cmd.RegisterFlagCompletionFunc("goal", fixedWords(goalNames...)))
	must(cmd.RegisterFlagCompletionFunc("format", fixedWords(formatWords()...)))
	must(cmd.RegisterFlagCompletionFunc("as-chat", fixedWords(dataset.AsChatChoices...)))
	must(cmd.RegisterFlagCompletionFunc("device", fixedWords("auto", "cpu", "cuda")))
	return cmd
}

func runInit(ctx context.Context, c *console, o *initOptions) error {
	if f, ok := c.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) && isTerminal(c.err) {
		if err := o.ask(ctx, c); err != nil {
			return err
		}
	}
	if err := o.check(); err != nil {
		return err
	}
	env := environment(c, 0)
	if err := checkModel(ctx, o.model, env); err != nil {
		return err
	}
	env.WithoutWeights = true
	goal := o.goal
	found, err := lookAt(ctx, o, env)
	if err != nil {
		return err
	}
	if again, err := found.askForm(c, o); err != nil {
		return err
	} else if again {
		o.goal = goal
		if found, err = lookAt(ctx, o, env); err != nil {
			return err
		}
	}
	chosen, err := found.choose(ctx, c, o, env)
	if err != nil {
		return err
	}
	text := chosen.write(o)
	if _, problems := config.Merge(o.out, text, nil, nil); len(problems) > 0 {
		return fmt.Errorf("the configuration that was chosen is refused, which is a mistake of this program: %w",
			&config.Invalid{Name: o.out, Problems: problems})
	}
	if err := writeNew(o.out, text); err != nil {
		return err
	}
	if o.json {
		return writeJSON(c.out, struct {
			Out    string           `json:"out"`
			Goal   string           `json:"goal"`
			Format string           `json:"format"`
			AsChat bool             `json:"as_chat"`
			Rows   int              `json:"rows"`
			Unread []dataset.Unread `json:"unread_keys,omitempty"`
			Plan   train.PlanReport `json:"plan"`
			Config string           `json:"config"`
		}{o.out, o.goal, found.format, found.asChat, found.rows, found.keys, chosen.plan, string(text)})
	}
	return found.print(c, chosen, o)
}

// ask prompts for everything that no flag sets, and repeats a question whose answer cannot be right.
func (o *initOptions) ask(ctx context.Context, c *console) error {
	o.lines = bufio.NewReader(c.in)
	lines, out := o.lines, c.err
	one := func(question, otherwise string, to *string, wrong func() error) error {
		for *to == "" {
			if otherwise != "" {
				fmt.Fprintf(out, "%s [%s]: ", question, otherwise)
			} else {
				fmt.Fprintf(out, "%s: ", question)
			}
			line, err := lines.ReadString('\n')
			if *to = strings.TrimSpace(line); *to == "" {
				*to = otherwise
			}
			if err != nil && *to == "" {
				fmt.Fprintln(out)
				return usage(errors.New("init: the answers end before a model and data are named"))
			}
			*to = filename.ExpandHome(*to)
			if *to == "" || err != nil {
				continue
			}
			if err := wrong(); err != nil {
				fmt.Fprintf(out, "  %s%s\n", strings.TrimPrefix(err.Error(), "init: "), filename.Nearest(err))
				if *to == otherwise {
					otherwise = ""
				}
				*to = ""
			}
		}
		return nil
	}
	if err := one("Model (a folder, org/name or embedded:stories260K)", "", &o.model, func() error {
		return checkModel(ctx, o.model, environment(c, 0))
	}); err != nil {
		return err
	}
	if err := one("Data (a file, folder, pattern or data set of the hub)", "", &o.data, func() error {
		return dataIsThere(o.data)
	}); err != nil {
		return err
	}
	return one("Configuration to write", initFile, &o.out, o.checkOut)
}

// dataIsThere returns an error for an answer that names no existing file. Patterns, embedded rows and hub data sets are
// checked later.
func dataIsThere(name string) error {
	if strings.ContainsAny(name, "*?[") || strings.HasPrefix(name, session.EmbeddedPrefix) {
		return nil
	}
	_, err := os.Stat(name)
	if parts := strings.Split(name, "/"); err != nil && len(parts) == 2 && parts[0] != "." && parts[0] != ".." &&
		parts[0] != "" && filepath.Ext(name) == "" {
		return nil // org/name
	}
	return err
}

// check returns an error for flags that are wrong whatever the files contain.
func (o *initOptions) check() error {
	switch {
	case o.model == "" && o.data == "":
		return usage(errors.New("init: give --model and --data (on a terminal it asks for them)"))
	case o.model == "":
		return usage(errors.New("init: give --model: a folder, a name such as org/name, or embedded:stories260K"))
	case o.data == "":
		return usage(errors.New("init: give --data: a file, folder, pattern, or data set of the hub"))
	}
	if o.goal != "" && goals[o.goal] == nil {
		return usage(fmt.Errorf("init: --goal %s: must be one of %s", words.ShellQuote(o.goal),
			strings.Join(goalNames, ", ")))
	}
	if err := o.checkRows(); err != nil {
		return err
	}
	if o.vram != "" {
		if n, err := session.ParseBytes(o.vram); err != nil {
			return usage(fmt.Errorf("init: --vram: %w", err))
		} else if n == 0 {
			return usage(errors.New("init: --vram: no run fits in nothing; leave the flag out to use what is free"))
		}
	}
	if o.out == "" {
		o.out = initFile
	}
	if err := o.checkOut(); err != nil {
		return err
	}
	s := train.DefaultSpec()
	s.Device = o.device
	for _, err := range config.Validate(s) {
		if strings.HasPrefix(err.Error(), "device: ") {
			return usage(fmt.Errorf("init: --%w", err))
		}
	}
	if o.chip == "" {
		return checkDevice(s)
	}
	return nil
}

// checkRows checks the flags about rows as the dataset section of a configuration is checked.
func (o *initOptions) checkRows() error {
	c := dataset.Default()
	c.Path = o.data
	o.rows(&c)
	if o.format == "" && o.asChat == "" { // the rows decide how a system message is used
		c.System = ""
	}
	for _, err := range c.Validate() {
		text := err.Error()
		for _, flag := range []string{"format", "fields", "as_chat", "system"} {
			if name := "dataset." + flag; strings.HasPrefix(text, name) {
				return usage(fmt.Errorf("init: --%s%s", strings.ReplaceAll(flag, "_", "-"),
					strings.TrimPrefix(text, name)))
			}
		}
	}
	return nil
}

// rows copies the flags about rows to a dataset section.
func (o *initOptions) rows(c *dataset.Config) {
	c.Format, c.Fields, c.AsChat, c.System = o.format, o.fields, o.asChat, o.system
	if c.Format == "" {
		c.Format = dataset.FormatAuto
	}
	if c.AsChat == "" { // as_chat is asked for, and the written file records the outcome
		c.AsChat = dataset.AsChatAuto
	}
}

// formatWords returns the values of --format.
func formatWords() []string { return slices.Sorted(maps.Keys(dataset.Formats)) }

// checkOut returns an error for a name at which no new configuration can be written.
func (o *initOptions) checkOut() error {
	if ext := filepath.Ext(o.out); ext != ".yaml" && ext != ".yml" {
		return usage(fmt.Errorf("init: --out %s: a configuration's name ends in .yaml", words.ShellQuote(o.out)))
	}
	if _, err := os.Lstat(o.out); err == nil {
		return usage(fmt.Errorf("init: %s is there already; name another file with --out", o.out))
	}
	if err := writable(o.out, "a configuration"); err != nil {
		return usage(fmt.Errorf("init: --out: %w", err))
	}
	return nil
}

// print describes the model, the data and the chosen configuration.
func (f *looked) print(c *console, chosen *choice, o *initOptions) error {
	w := bufio.NewWriter(c.out)
	width := foldWidth(c.out)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-8s %s\n", name, fold(fmt.Sprintf(format, args...), width, 9))
	}
	line("model", "%s", f.modelLine())
	line("data", "%s", f.dataLine())
	if f.unread != "" {
		line("", "keys not read: %s", safetext.OneLine(f.unread))
	}
	if f.hasForms {
		line("form", "%s", f.formLine(o))
	}
	line("goal", "%s: %s", o.goal, f.trained)
	if len(f.shown) > 0 {
		fmt.Fprintf(w, "\nas they are trained:\n")
		for _, row := range f.shown {
			fmt.Fprintf(w, "%s\n", rowHeading(row))
			for _, p := range row.Parts {
				fmt.Fprintf(w, "  %s\n", fold(partHeading(p)+": "+partText(row.Tokens[p.From:p.To]), width, 2))
			}
		}
		fmt.Fprintln(w)
	}
	for _, note := range chosen.notes {
		line("note", "%s", safetext.OneLine(note))
	}
	s := chosen.spec
	line("chosen", "%s, %d x %d rows a step, at most %d tokens a row; %s%d steps", s.Adapter, s.Training.BatchSize,
		s.Training.GradientAccumulationSteps, s.Dataset.MaxLength, chosen.about, chosen.steps)
	line("memory", "%s of %s on %s", session.FormatBytes(chosen.plan.TotalBytes), limitText(chosen.plan.Limit),
		chosen.plan.Device)
	fmt.Fprintf(w, "written  %s\nnext     trainer train %s\n", o.out, words.ShellQuote(o.out))
	return w.Flush()
}

// partText returns the beginning of a part's text on one line.
func partText(tokens []dataset.Token) string {
	const most = 160
	var b strings.Builder
	for _, t := range tokens {
		if b.WriteString(t.Text); b.Len() > 4*most {
			break
		}
	}
	text := []rune(safetext.OneLine(b.String()))
	if len(text) > most {
		return string(text[:most-3]) + "..."
	}
	return string(text)
}

func limitText(n int64) string {
	if n <= 0 {
		return "what is free"
	}
	return session.FormatBytes(n)
}
