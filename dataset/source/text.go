package source

import (
	"bufio"
	"errors"
	"io"
)

// What a row of a text file is, as in Hugging Face's text loader.
const (
	TextLine      = "line"
	TextParagraph = "paragraph" // what stands between blank lines
	TextDocument  = "document"  // the whole file
)

// TextUnits are the values of Options.TextBy.
var TextUnits = []string{TextLine, TextParagraph, TextDocument}

// textRows gives {"text": …} for every unit of a text file. "\r\n" counts as "\n". A line may be empty, a paragraph is
// not and has no line end around it.
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

// unit reads one row into text; size counts what was too much for it as well.
func (t *textRows) unit() (line, size int, err error) {
	if t.done {
		return 0, 0, io.EOF
	}
	t.text = t.text[:0]
	line = t.line
	add := func(b byte) {
		if size++; size <= t.limit {
			t.text = append(t.text, b)
		}
	}
	breaks := 0 // "\n" in a row that are read and not yet written
	for {
		b, err := t.in.ReadByte()
		if errors.Is(err, io.EOF) {
			t.done = true
			if size == 0 && t.by != TextDocument {
				return 0, 0, io.EOF
			}
			return line, size, nil
		}
		if err != nil {
			return 0, 0, err
		}
		if b == '\r' {
			if next, _ := t.in.Peek(1); len(next) != 1 || next[0] != '\n' {
				b = '\n'
			} else {
				continue
			}
		}
		if b != '\n' {
			for ; breaks > 0; breaks-- {
				add('\n')
			}
			if add(b); tooLongToPass(size, t.limit) {
				return 0, 0, endless(line, t.limit)
			}
			continue
		}
		t.line++
		switch {
		case t.by == TextLine:
			return line, size, nil
		case t.by == TextDocument:
			add(b)
		case size == 0 && breaks == 0:
			line = t.line
		case breaks == 1:
			return line, size, nil
		default:
			breaks++
		}
	}
}
