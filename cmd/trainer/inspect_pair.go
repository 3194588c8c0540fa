package main

import (
	"bufio"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/dataset"
)

// styleDiffers marks a token that the other answer of a pair doesn't have.
const styleDiffers = "\x1b[1m" // bold

// leastColumn is the least width of an answer that is shown beside the other one.
const leastColumn = 24

// answersOf returns the parts of a pair: those of the prompt as the first sequence has them, and both answers; ok is
// false for a row that is not a pair of answers.
func answersOf(r dataset.Inspected) (prompt []dataset.Part, answers [2]dataset.Part, ok bool) {
	if r.Sequences != 2 {
		return nil, answers, false
	}
	found := 0
	for i, p := range r.Parts {
		if i+1 < len(r.Parts) && r.Parts[i+1].Sequence == p.Sequence {
			if p.Sequence == 0 {
				prompt = append(prompt, p)
			}
			continue
		}
		if p.Sequence > 1 {
			return nil, answers, false
		}
		answers[p.Sequence] = p
		found++
	}
	return prompt, answers, found == 2
}

// colourPair writes the prompt of a pair, and both answers side by side. Tokens that one of them lacks are bold.
func colourPair(w *bufio.Writer, r dataset.Inspected, width int) bool {
	prompt, answers, ok := answersOf(r)
	column := (width - 3) / 2
	if !ok || column < leastColumn {
		return false
	}
	for _, p := range prompt {
		colourPart(w, p, r.Tokens)
	}
	var cells [2][]string
	for side, p := range answers {
		heading := plainText(partHeading(p))
		if n := utf8.RuneCountInString(heading); n > column {
			heading = string([]rune(heading)[:column])
		}
		cells[side] = append([]string{padded(styleHeading+heading+styleOff, utf8.RuneCountInString(heading), column)},
			answerLines(r.Tokens[p.From:p.To], column)...)
	}
	for i := range max(len(cells[0]), len(cells[1])) {
		line := [2]string{strings.Repeat(" ", column), ""}
		for side := range cells {
			if i < len(cells[side]) {
				line[side] = cells[side][i]
			}
		}
		fmt.Fprintf(w, "%s │ %s\n", line[0], strings.TrimRight(line[1], " "))
	}
	return true
}

// answerLines returns the lines of an answer in a column, each filled with blanks up to its width.
func answerLines(tokens []dataset.Token, column int) (lines []string) {
	var line strings.Builder
	used := 0
	end := func() {
		lines = append(lines, padded(line.String(), used, column))
		line.Reset()
		used = 0
	}
	for _, t := range tokens {
		style := tokenStyle(t)
		if t.Differs {
			style += styleDiffers
		}
		for _, r := range plainText(strings.ReplaceAll(tokenText(t), "\t", " ")) {
			if r == '\n' {
				end()
				continue
			}
			if used == column {
				end()
			}
			line.WriteString(style + string(r) + styleOff)
			used++
		}
	}
	if used > 0 || len(lines) == 0 {
		end()
	}
	return lines
}

// padded fills a text of a width with blanks.
func padded(text string, width, column int) string {
	return text + strings.Repeat(" ", max(0, column-width))
}
