package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/safetext"
)

// Escape sequences of a terminal. Trained and masked differ by underline and brightness too.
const (
	styleTrained = "\x1b[32;4m" // green, underlined
	styleMasked  = "\x1b[2m"    // faint
	styleSpecial = "\x1b[7m"    // reversed
	styleAcross  = "\x1b[35m"   // magenta
	styleHeading = "\x1b[1m"    // bold
	styleOff     = "\x1b[0m"
)

// Marks of tokens in running text, which no colour carries.
const (
	markEnd    = "∎" // behind a token that ends a turn
	markOpen   = "⟨" // around a token across a border
	markClose  = "⟩"
	markNoText = "·" // a token that ends in the middle of a character
)

// showRows writes rows for a terminal, or a token a line.
func showRows(w *bufio.Writer, rows []dataset.Inspected, colour bool) {
	if colour {
		fmt.Fprintf(w, "\n%strained%s %smasked%s %sspecial token%s  %s ends a turn  %s%s across a border\n",
			styleTrained, styleOff, styleMasked, styleOff, styleSpecial, styleOff, markEnd, markOpen, markClose)
	}
	for _, r := range rows {
		fmt.Fprintf(w, "\n%s\n", plainText(rowHeading(r)))
		for _, p := range r.Parts {
			if colour {
				colourPart(w, p, r.Tokens)
			} else {
				plainPart(w, p, r.Tokens)
			}
		}
	}
}

// rowHeading is "data.jsonl:17 (train): 214 tokens, 96 trained", or of a pair "data.jsonl:17 (train): a pair of
// sequences, 214 tokens, 96 trained".
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
	if r.Cut > 0 {
		s += fmt.Sprintf(", %d cut off at max_length", r.Cut)
	}
	if r.Note != "" {
		s += "; " + r.Note
	}
	return s
}

// partHeading is "assistant, message 2: 34 of 37 tokens trained".
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

// tokenState says in words what a colour shows.
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
	return s
}

// plainPart writes a token a line.
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
		for text != "" {
			line, rest, broken := strings.Cut(text, "\n")
			use(tokenStyle(tokens[i]))
			w.WriteString(plainText(line))
			if broken {
				use("") // a style ends with its line
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
