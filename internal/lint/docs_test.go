package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/golden"
)

// proseWidth is how long a line of prose may be in Markdown.
const proseWidth = 120

// wide are pages whose prose is not yet wrapped, each with its reason.
var wide = map[string]string{}

// pages are the documents of the top level and of docs and docs/internals.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root := golden.Root(t)
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/internals/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(root, path)
			found[filepath.ToSlash(name)] = string(text)
		}
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "docs/internals/ARCHITECTURE.md"} {
		if found[name] == "" {
			t.Fatalf("%s is missing", name)
		}
	}
	return found
}

// longProse are the numbers of lines that are too long. Code, tables, headings and a link alone in its line may be.
func longProse(text string) (lines []int) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		_, rest, _ := strings.Cut(strings.TrimSpace(line), "](")
		link := strings.HasPrefix(strings.TrimLeft(line, " -*"), "[") && !strings.Contains(rest, " ")
		if code || link || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--") {
			continue
		}
		if utf8.RuneCountInString(line) > proseWidth {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func TestProseIsWrapped(t *testing.T) {
	for name, text := range pages(t) {
		lines := longProse(text)
		switch {
		case wide[name] != "" && lines == nil:
			t.Errorf("%s is listed as wide and is not", name)
		case wide[name] == "":
			for _, n := range lines {
				t.Errorf("%s:%d is longer than %d characters: wrap it", name, n, proseWidth)
			}
		}
	}
	long := strings.Repeat("ä ", proseWidth/2) + "x"
	for text, want := range map[string]int{
		long: 1, "- " + long: 1, "a\n\n" + long + "\n" + long: 2, "[a](b) " + long: 1,
		long[:len(long)-1]: 0, "| " + long + " |": 0, "```\n" + long + "\n```": 0, "[" + long + "](b)": 0,
	} {
		if got := longProse(text); len(got) != want {
			t.Errorf("%q: lines %v, want %d", text, got, want)
		}
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// hasAnchor reports whether a page has a heading of that anchor, as GitHub makes anchors of headings.
func hasAnchor(t *testing.T, path, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		made := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		if made == anchor {
			return true
		}
	}
	return false
}

// Links between documents lead to files and headings that are there.
func TestLinksLead(t *testing.T) {
	root := golden.Root(t)
	n := 0
	eachFile(t, func(path string, data []byte) {
		if filepath.Ext(path) != ".md" {
			return
		}
		for _, m := range markdownLink.FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			to := filepath.Join(root, filepath.Dir(path), filepath.FromSlash(m[1]))
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			} else if m[2] != "" && filepath.Ext(to) == ".md" && !hasAnchor(t, to, m[2][1:]) {
				t.Errorf("%s links to %s%s, and there is no such heading", path, m[1], m[2])
			}
		}
	})
	if n < 50 {
		t.Errorf("only %d links seen", n)
	}
}

// TestReadmeFits holds the README's rows of what fits on a card to the table that the program's plans made.
func TestReadmeFits(t *testing.T) {
	found := pages(t)
	_, readme, _ := strings.Cut(found["README.md"], "\n## What fits on my GPU\n")
	readme, _, _ = strings.Cut(readme, "\n## ")
	plans := map[string][]string{}
	for line := range strings.Lines(found["docs/GPU.md"]) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 8 {
			plans[cells[0]] = cells[2:]
		}
	}
	n := 0
	for line := range strings.Lines(readme) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 7 || !strings.Contains(cells[0], "/") {
			continue
		}
		n++
		for i, cell := range cells[1:] {
			if plan := plans[cells[0]]; plan == nil || cell != strings.Fields(plan[i])[0] {
				t.Errorf("README.md says %s of %s, the plans in docs/GPU.md %v", cell, cells[0], plan)
			}
		}
	}
	if n != 8 {
		t.Errorf("%d rows, want 8", n)
	}
}

var decisionStatus = regexp.MustCompile(`^(in force(; .+)?|superseded by \[\d{4}\]\(\S+\)|experiments? that lost)$`)

// Every decision has its line in the index: number, title, status.
func TestDecisionsAreListed(t *testing.T) {
	folder := filepath.Join(golden.Root(t), "docs", "internals", "decisions")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, line := range strings.Split(string(index), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if m := markdownLink.FindStringSubmatch(cells[0]); m != nil && strings.HasPrefix(line, "|") {
			rows[m[1]] = cells
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "[0-9]*.md"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d decisions: %v", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\n")
		number, title, ok := strings.Cut(strings.TrimPrefix(head, "# "), ": ")
		if !ok || number != name[:4] {
			t.Errorf("%s begins with %q, want # %s: and a title", name, head, name[:4])
		}
		switch row := rows[name]; {
		case len(row) != 3:
			t.Errorf("docs/internals/decisions/README.md has no line for %s", name)
		case row[0] != "["+number+"]("+name+")":
			t.Errorf("docs/internals/decisions/README.md numbers %s as %s", name, row[0])
		case row[1] != title:
			t.Errorf("docs/internals/decisions/README.md calls %s %q, its title is %q", name, row[1], title)
		case !decisionStatus.MatchString(row[2]):
			t.Errorf("docs/internals/decisions/README.md: the status of %s is %q", name, row[2])
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/internals/decisions/README.md lists %s, which is not there", name)
	}
}
