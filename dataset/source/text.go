package source

import (
	"bufio"
	"errors"
	"io"
)

// What makes a row of a text file, as in Hugging Face's text loader.
const (
	TextLine      = "line"
	TextParagraph = "paragraph" // the lines between blank lines
	TextDocument  = "document"  // the whole file
)

// TextUnits lists the values of Options.TextBy.
var TextUnits = []string{TextLine, TextParagraph, TextDocument}

// textRows returns {"text": …} for every unit of a text file. "\r\n" counts as "\n". A line may be empty; a paragraph
// is not empty and has no line end around it.
type textRows struct {
	in    *bufio.Reader
	by    string
	limit int
	line  int
	text  []byte
	data  []byte
	done  bool
}

func newText(in *bufio.Reader, o Options) *textRows {
	by := o.TextBy
	if by == "" {
		by = TextLine
	}
	return &textRows{in: in, by: by, limit: o.Limit, line: 1}
}

func (t *textRows) at() int { return t.line }

func (t *textRows) next() (Row, error) {
	for {
		line, size, err := t.unit()
		if err != nil {
			return Row{}, err
		}
		if t.by == TextParagraph && size == 0 {
			continue
		}
		if size > t.limit {
			return Row{}, tooLong(line, t.limit)
		}
		if err := plainText(t.text); err != nil {
			return Row{}, &RowError{line, textError{err}}
		}
		t.data = append(appendString(append(t.data[:0], `{"text":`...), t.text), '}')
		return Row{Line: line, Data: t.data}, nil
	}
}

type textError struct{ err error }

func (e textError) Error() string { return "the text " + e.err.Error() }

// unit reads one row into text; size also counts bytes beyond the limit.
func (t *textRows) unit() (line, size int, err error) {
	if t.done {
		return 0, 0, io.EOF
	}
	t.text = t.text[:0]
	line = t.line
	begun := false
	for {
		n, ended, err := t.oneLine(&size, begun && t.by == TextParagraph)
		switch {
		case err != nil:
			return 0, 0, err
		case !ended && n == 0 && size == 0 && t.by != TextDocument:
			return 0, 0, io.EOF
		case !ended || t.by == TextLine || t.by == TextParagraph && n == 0 && begun:
			return line, size, nil
		case t.by == TextDocument:
			t.add(&size, '\n')
		case n == 0:
			line = t.line // a blank line before a paragraph
		default:
			begun = true
		}
	}
}

// oneLine appends the next line without its end, after a line end if broken is set; n is its length. ended reports
// whether a line end, and not the end of the file, ended it.
func (t *textRows) oneLine(size *int, broken bool) (n int, ended bool, err error) {
	for {
		part, err := t.in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !full && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
		if ended = err == nil; ended {
			part = part[:len(part)-1]
			if len(part) > 0 && part[len(part)-1] == '\r' {
				part = part[:len(part)-1]
			}
		}
		if broken && len(part) > 0 {
			t.add(size, '\n')
			broken = false
		}
		t.add(size, part...)
		n += len(part)
		switch {
		case tooLongToPass(*size, t.limit):
			return 0, false, endless(t.line, t.limit)
		case ended:
			t.line++
			return n, true, nil
		case !full:
			t.done = true
			return n, false, nil
		}
	}
}

func (t *textRows) add(size *int, b ...byte) {
	if *size <= t.limit {
		t.text = append(t.text, b[:min(len(b), t.limit+1-*size)]...)
	}
	*size += len(b)
}
