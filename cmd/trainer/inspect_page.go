package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/safetext"
)

//go:embed inspect_page.css
var pageStyle string

// Bounds of a page: a browser can show a hundred thousand tokens at once, but not millions.
const (
	pageTokens  = 300_000 // tokens of all rows
	blockTokens = 2_000   // a longer message is laid out piece by piece while the user scrolls
)

// pageMark begins every page. Only a file that begins with it is overwritten.
const pageMark = "<!doctype html>\n<html lang=\"en\">\n<meta name=\"generator\" content=\"tierlora inspect data\">\n"

// pageLegend names every state of a token by more than its colour.
const pageLegend = `<section class="legend" aria-label="Legend"><h2>How to read it</h2><ul>
<li><span class="t"><b>trained</b></span> underlined: the model learns to write it</li>
<li><span class="t"><i>masked</i></span> not underlined: context only</li>
<li><span class="t"><i class="s">special</i></span> framed: a special token, not text</li>
<li><span class="t"><b class="s e">end</b></span> with ` + markEnd + `: ends a turn or an answer</li>
<li><span class="t"><b class="x">across</b></span> in ` + markOpen + markClose + `: straddles the loss mask's boundary</li>
<li><span class="t"><b class="d">differs</b></span> bold, between lines: the pair's other answer doesn't have it</li>
<li><span class="t"><i class="n">` + markNoText + `</i></span> ends in the middle of a character</li>
<li><span class="t"><i class="s">image×9</i></span> stands for 9 equal tokens of an image</li>
</ul><p>Point at a token to see its number, id and piece.</p></section>
`

// dataPage is the content of a page.
type dataPage struct {
	Title, Model string
	Report       *dataset.Report
	Rows         []dataset.Inspected
	Images       []rowImages // of Rows
	First, All   int         // number of the first row, and of all rows
}

// checkPage returns an error if writing a page at path would lose another file. mark is the beginning of pages that may
// be overwritten.
func checkPage(path, mark string) error {
	if path == "" {
		return errors.New("name a file")
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writable(path, "a page")
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("this is a folder: name a file in it")
	}
	if err := atomicfile.Check(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(mark))
	if n, _ := f.Read(head); n > 0 && !bytes.Equal(head[:n], []byte(mark)) {
		return errors.New("there is a file that this command did not write: name another one")
	}
	return nil
}

func (c *console) writePage(path string, p dataPage) error {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	p.write(w)
	if err := w.Flush(); err != nil {
		return err
	}
	if err := atomicfile.Write(path, b.Bytes()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	fmt.Fprintf(c.out, "%s: %d rows\n", path, len(p.Rows))
	return nil
}

func (p dataPage) write(w *bufio.Writer) {
	sum := sha256.Sum256([]byte(pageStyle))
	fmt.Fprint(w, pageMark)
	fmt.Fprintf(w, "<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "+
		"'none'; style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	fmt.Fprintf(w, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "+
		"name=\"color-scheme\" content=\"light dark\">\n<title>Training data: %s</title>\n<style>%s</style>\n",
		pageText(p.Title), pageStyle)
	fmt.Fprintf(w, "<header>\n<h1>Training data</h1>\n<p>Configuration <b>%s</b>, as the tokenizer of <b>%s</b> "+
		"reads it.</p>\n</header>\n<main>\n",
		pageText(p.Title), pageText(p.Model))
	p.writeReport(w)
	fmt.Fprint(w, pageLegend)
	left := pageTokens
	for n, r := range p.Rows {
		p.writeRow(w, p.First+n, r, &left)
	}
	fmt.Fprintf(w, "</main>\n<footer><p>Rows %d to %d of %d, counted from 0. Written by <b>trainer inspect data "+
		"--html</b>.</p></footer>\n</html>\n",
		p.First, p.First+len(p.Rows)-1, p.All)
}

// writeReport writes the report's lines as a list of terms and descriptions.
func (p dataPage) writeReport(w *bufio.Writer) {
	fmt.Fprint(w, "<section class=\"report\" aria-label=\"Report\"><h2>Report</h2><dl>\n")
	for _, line := range strings.Split(p.Report.String(), "\n") {
		term, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		fmt.Fprintf(w, "<div><dt>%s</dt><dd>%s</dd></div>\n", pageText(term), pageText(text))
	}
	fmt.Fprint(w, "</dl></section>\n")
}

func (p dataPage) writeRow(w *bufio.Writer, n int, r dataset.Inspected, left *int) {
	fmt.Fprintf(w, "<article id=\"row%d\"><h2>Row %d <small>%s</small></h2>\n", n, n, pageText(rowHeading(r)))
	if p.Images != nil {
		p.Images[n-p.First].write(w, n)
	}
	_, _, pair := answersOf(r)
	if pair {
		fmt.Fprint(w, "<div class=\"pair\"><div>\n")
	}
	for i, part := range r.Parts {
		if pair && i > 0 && part.Sequence != r.Parts[i-1].Sequence {
			fmt.Fprint(w, "</div><div>\n")
		}
		if *left <= 0 {
			fmt.Fprintf(w, "<p class=\"note\">The page has %d tokens; the rest of this row is left out.</p>\n",
				pageTokens)
			break
		}
		role := part.Role
		if part.Message >= 0 {
			role = fmt.Sprintf("%s <small>message %d</small>", pageText(part.Role), part.Message)
		} else {
			role = pageText(role)
		}
		class := "masked"
		if part.Trained > 0 {
			class = "trained"
		}
		fmt.Fprintf(w, "<section class=\"%s\"><h3>%s <small>%s</small></h3>\n", class, role, partTokens(part))
		to := min(part.To, part.From+*left)
		*left -= to - part.From
		for from := part.From; from < to; from += blockTokens {
			end := min(from+blockTokens, to)
			class := "t"
			if part.To-part.From > blockTokens {
				class = "t long"
			}
			fmt.Fprintf(w, "<div class=\"%s\">", class)
			for i := from; i < end; {
				run := max(1, imageRun(r.Tokens[i:end]))
				writeToken(w, i, run, r.Tokens[i])
				i += run
			}
			fmt.Fprint(w, "</div>\n")
		}
		fmt.Fprint(w, "</section>\n")
	}
	if pair {
		fmt.Fprint(w, "</div></div>\n")
	}
	fmt.Fprint(w, "</article>\n")
}

// writeToken writes a trained token as a b element and a masked one as an i element. run is the number of equal tokens
// of an image that the element stands for.
func writeToken(w *bufio.Writer, n, run int, t dataset.Token) {
	tag := "i"
	if t.Trained {
		tag = "b"
	}
	var class []string
	for _, c := range []struct {
		on   bool
		name string
	}{{t.Special, "s"}, {t.End, "e"}, {t.Across, "x"}, {t.Text == "", "n"}, {t.Differs, "d"}} {
		if c.on {
			class = append(class, c.name)
		}
	}
	fmt.Fprintf(w, "<%s", tag)
	if class != nil {
		fmt.Fprintf(w, " class=\"%s\"", strings.Join(class, " "))
	}
	text := t.Text
	if text == "" {
		text = markNoText
	}
	number := strconv.Itoa(n)
	if run > 1 {
		number, text = fmt.Sprintf("%d to %d", n, n+run-1), text+timesMark(run)
	}
	fmt.Fprintf(w, " title=\"%s: id %d, %s, %s\">%s</%s>", number, t.ID, pageText(t.Piece), tokenState(t),
		pageText(text), tag)
}

// pageText escapes a text for the page.
func pageText(s string) string {
	return strings.ReplaceAll(html.EscapeString(safetext.Visible(s)), "\\n\n", "↵\n")
}
