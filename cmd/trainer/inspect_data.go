package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// pageRows is the default number of rows on a page, more than in a terminal.
const pageRows = 20

// networkIn returns the network of the model in folder. Without a readable config.json it has no layers, and hidden
// states of 2,048 numbers.
func networkIn(folder fs.FS) session.Network {
	if text, err := regular.ReadFS(folder, "config.json"); err == nil {
		if c, err := families.ParseConfig(text); err == nil {
			if build, err := families.For(c); err == nil {
				return session.Network{Config: c, Build: build, Float: kernel.F32}
			}
		}
	}
	return session.Network{Config: model.Config{HiddenSize: 2048}}
}

func newInspectData(c *console) *cobra.Command {
	var o configOptions
	var count, first int
	var asJSON bool
	var page string
	cmd := &cobra.Command{
		Use:   "data FILE [-n 5]",
		Short: "Show rows as the model sees them: tokens, messages and loss mask",
		Long: `Show rows as the model sees them: each token, the message it belongs to, and whether it is trained.

On a terminal trained tokens are underlined; a pipe, or a terminal with NO_COLOR, gets one line per token. --html writes
a page that works offline, with the images of rows, divided as the model sees them. The answers of a preference pair
stand side by side, and what only one of them has is marked.`,
		Example: `  trainer inspect data --config cpu_stories_quick.yaml
  trainer inspect data run.yaml --html rows.html
  trainer inspect data run.yaml --rows 2 --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || first < 0 {
				return usage(fmt.Errorf("-n %d --first %d: show at least one row, from row 0 on", count, first))
			}
			if cmd.Flags().Changed("html") {
				if asJSON {
					return usage(fmt.Errorf("--html and --json: give one of them"))
				}
				if err := checkPage(page, pageMark); err != nil {
					return usage(fmt.Errorf("--html %s: %w", words.ShellQuote(page), err))
				}
				if !cmd.Flags().Changed("rows") {
					count = pageRows
				}
			}
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			env := environment(c, 0)
			tok, folder, err := openTokenizer(cmd.Context(), loaded.Spec.BaseModel, env)
			if err != nil {
				return err
			}
			set, report, err := openData(cmd.Context(), loaded.Spec, tok, folder, env)
			if err != nil {
				return err
			}
			// else the run says what is wrong
			if batches, err := train.BatchReport(set, loaded.Spec, networkIn(folder)); err == nil {
				report.Batches = batches
			}
			rows := set.Train.Len() + set.Val.Len()
			if first >= rows {
				return usage(fmt.Errorf("--first %d: there are %d rows", first, rows))
			}
			shown, err := set.Look(cmd.Context(), first, count, tok)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, shown)
			}
			images, err := lookAtImages(shown, folder)
			if err != nil {
				return err
			}
			if page != "" {
				return c.writePage(page, dataPage{Title: o.config, Model: loaded.Spec.BaseModel, Report: report,
					Rows: shown, Images: images, First: first, All: rows})
			}
			w := bufio.NewWriter(coloured(c.out))
			fmt.Fprintln(w, plainText(report.String()))
			if err := objective.CheckRows(loaded.Spec.Training.Objective, loaded.Spec.Objective(), report); err != nil {
				fmt.Fprintf(w, "training refuses these rows: %s\n", plainText(err.Error()))
			}
			showRows(w, shown, images, mayColour(c.out), foldWidth(c.out))
			return w.Flush()
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().IntVarP(&count, "rows", "n", 5, fmt.Sprintf("rows to show; %d with --html", pageRows))
	cmd.Flags().IntVar(&first, "first", 0, "index of the first row to show; validation rows follow the training rows")
	pathVar(cmd, &page, "html", "", "write the rows as an HTML page to `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// Escape sequences of a terminal. Trained and masked tokens also differ by underlining and brightness.
const (
	styleTrained = "\x1b[32;4m" // green, underlined
	styleMasked  = "\x1b[2m"    // faint
	styleSpecial = "\x1b[7m"    // reversed
	styleAcross  = "\x1b[35m"   // magenta
	styleHeading = "\x1b[1m"    // bold
	styleOff     = "\x1b[0m"
)

// Marks of tokens in running text, for readers who do not see colours.
const (
	markEnd    = "∎" // after a token that ends a turn
	markOpen   = "⟨" // around a token that straddles the loss mask's boundary
	markClose  = "⟩"
	markNoText = "·" // a token that ends in the middle of a character
)

// showRows writes rows for a terminal, or one token per line without colours.
func showRows(w *bufio.Writer, rows []dataset.Inspected, images []rowImages, colour bool, width int) {
	if colour {
		fmt.Fprintf(w, "\n%strained%s %smasked%s %sspecial token%s  %s ends a turn  %s%s across a border\n",
			styleTrained, styleOff, styleMasked, styleOff, styleSpecial, styleOff, markEnd, markOpen, markClose)
	}
	for i, r := range rows {
		fmt.Fprintf(w, "\n%s\n", plainText(rowHeading(r)))
		for _, m := range images[i] {
			fmt.Fprintf(w, "-- %s\n", plainText(m.caption()))
		}
		if colour && colourPair(w, r, width) {
			continue
		}
		for _, p := range r.Parts {
			if colour {
				colourPart(w, p, r.Tokens)
			} else {
				plainPart(w, p, r.Tokens)
			}
		}
	}
}

// rowHeading returns, for example, "data.jsonl:17 (train): 214 tokens, 96 trained", and for a preference pair
// "data.jsonl:17 (train): a pair of sequences, 214 tokens, 96 trained".
func rowHeading(r dataset.Inspected) string {
	what := ""
	switch {
	case r.Sequences == 2:
		what = "a pair of sequences, "
	case r.Sequences > 0:
		what = fmt.Sprintf("%d sequences, ", r.Sequences)
	case r.Label != "":
		what = "an answer with the label " + r.Label + ", "
	}
	s := fmt.Sprintf("%s (%s): %s%d tokens, %d trained", r.Where, r.Split, what, len(r.Tokens), r.Trained)
	if r.Target != "" {
		s = fmt.Sprintf("%s (%s): %d tokens, %s", r.Where, r.Split, len(r.Tokens), r.Target)
	}
	switch {
	case r.Weights != nil && r.Weights[0] == r.Weights[1]:
		s += fmt.Sprintf(", weight %.6g", r.Weights[0])
	case r.Weights != nil:
		s += fmt.Sprintf(", weights %.6g to %.6g", r.Weights[0], r.Weights[1])
	}
	if r.Cut > 0 {
		s += fmt.Sprintf(", %d cut off at max_length", r.Cut)
	}
	if r.Note != "" {
		s += "; " + r.Note
	}
	return s
}

// partHeading returns, for example, "assistant, message 2: 34 of 37 tokens trained".
func partHeading(p dataset.Part) string {
	s := p.Role
	if p.Message >= 0 {
		s += fmt.Sprintf(", message %d", p.Message)
	}
	return s + ": " + partTokens(p)
}

func partTokens(p dataset.Part) string {
	n := p.To - p.From
	switch p.Trained {
	case 0:
		return fmt.Sprintf("%d tokens, none trained", n)
	case n:
		return fmt.Sprintf("%d tokens, all trained", n)
	}
	return fmt.Sprintf("%d of %d tokens trained", p.Trained, n)
}

// tokenState describes in words what a colour shows.
func tokenState(t dataset.Token) string {
	s := "masked"
	if t.Trained {
		s = "trained"
	}
	if t.Special {
		s += ", special"
	}
	if t.End {
		s += ", ends the turn"
	}
	if t.Across {
		s += ", across a border"
	}
	if t.Differs {
		s += ", differs"
	}
	if t.Image > 0 {
		s += fmt.Sprintf(", image %d", t.Image)
	}
	return s
}

// plainPart writes one token per line.
func plainPart(w *bufio.Writer, p dataset.Part, tokens []dataset.Token) {
	fmt.Fprintf(w, "-- %s\n", partHeading(p))
	for i := p.From; i < p.To; i++ {
		t := tokens[i]
		fmt.Fprintf(w, "%6d  %6d  %-16s  %s\n", i, t.ID, strconv.Quote(t.Piece), tokenState(t))
	}
}

// colourPart writes the tokens as running text.
func colourPart(w *bufio.Writer, p dataset.Part, tokens []dataset.Token) {
	fmt.Fprintf(w, "%s%s%s\n", styleHeading, plainText(partHeading(p)), styleOff)
	on := ""
	use := func(style string) {
		if style != on {
			w.WriteString(styleOff + style)
			on = style
		}
	}
	for i := p.From; i < p.To; i++ {
		text := tokenText(tokens[i])
		if n := imageRun(tokens[i:p.To]); n > 1 {
			text += timesMark(n)
			i += n - 1
		}
		for text != "" {
			line, rest, broken := strings.Cut(text, "\n")
			use(tokenStyle(tokens[i]))
			w.WriteString(plainText(line))
			if broken {
				use("") // reset the style before the line ends
				w.WriteByte('\n')
			}
			text = rest
		}
	}
	use("")
	w.WriteByte('\n')
}

func tokenStyle(t dataset.Token) string {
	style := styleMasked
	if t.Trained {
		style = styleTrained
	}
	if t.Special {
		style += styleSpecial
	}
	if t.Across {
		style += styleAcross
	}
	return style
}

func tokenText(t dataset.Token) string {
	text := safetext.Visible(t.Text)
	if t.Text == "" {
		text = markNoText
	}
	if t.Across {
		text = markOpen + text + markClose
	}
	if t.End {
		text += markEnd
	}
	return text
}

func newInspectSteps(c *console) *cobra.Command {
	var o configOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "steps FILE",
		Short: "Show which rows each step trains, and with what learning rate",
		Long: `Show which rows each step of a run trains, and with what learning rate. Nothing is trained, and no device is opened.

--json prints all that another program needs to train the same: token ids and labels of every step's rows and of the
validation rows, learning rates, the configuration, and the hash of the base weights. scripts/reference_curve.py trains
it with PEFT.`,
		Example: `  trainer inspect steps --config cpu_stories_quick.yaml
  trainer inspect steps gpu_smollm2_convergence.yaml --json > steps.json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			env := train.Env{Env: environment(c, 0)}
			if err := findBase(cmd.Context(), &loaded, c, env.Env); err != nil {
				return err
			}
			recipe, err := train.NewRecipe(cmd.Context(), loaded.Spec, env)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, recipe)
			}
			w := bufio.NewWriter(c.out)
			fmt.Fprintf(w, "base weights  %s\nrows          %s\nvalidation    %s\n\n  step  learning rate   rows  "+
				"tokens  trained\n", recipe.Base, recipe.Rows, recipe.Subject.Validation)
			for i, step := range recipe.Train {
				rows, tokens, trained := step.Count()
				fmt.Fprintf(w, "%6d  %13.6g  %5d  %6d  %7d\n", i+1, step.LearningRate, rows, tokens, trained)
			}
			return w.Flush()
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
