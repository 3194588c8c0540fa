package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// codeWidth is the largest number of columns of a line of Go. A tab counts as four.
const codeWidth = 120

// style counts what a package's Go files may have of each fault of style.
type style struct {
	Wide    int // lines above codeWidth
	Undoc   int // exported names without a comment that is a sentence and starts with the name
	Phrases int // phrases of privatePhrases in comments and strings
}

// privatePhrases are phrases that readers had to read twice or could not search for, each with what to write. A phrase
// matches whole words, in any case.
var privatePhrases = map[string]string{
	"is told":           "name who passes what: takes, receives, is set by",
	"are told":          "name who passes what: take, receive, are set by",
	"is told of":        "name who reports what to whom",
	"of which":          "two sentences, or whose",
	"what there is":     "name the things",
	"that of one":       "repeat the noun",
	"those of one":      "repeat the noun",
	"are those of":      "repeat the noun: equal, come from, belong to",
	"is that of":        "repeat the noun: equals, comes from",
	"by heart":          "overfit",
	"goes on to":        "continues, or name what follows",
	"whatever it is":    "leave it out, or name the cases",
	"where nobody says": "by default",
	"nobody says":       "by default",
	"as such":           "leave it out",
	"so many of":        "n is the number of",
	"asks for nothing":  "is not set",
	"went away without": "exited without",
	"in the form of":    "compatible with, or in the format",
	"lies across":       "straddles",
	"to go on from":     "to resume from",
	"goes on from":      "resumes from",
	"holds a run up":    "blocks a run",
	"gets on with":      "continues with",
	"is of this":        "name what belongs to what",
	"there is room for": "fits, or name the limit",
	"that is all":       "leave it out",
	"is as good as":     "name the difference",
	"are for nothing":   "have no effect",
	"is for nothing":    "has no effect",
	"comes to nothing":  "has no effect, or fails",
	"in so many words":  "literally",
	"the like":          "name the others",
	"what is asked for": "what the request names",
	"is to be had":      "is available",
	"has to say":        "reports",
}

var phrasePattern = func() *regexp.Regexp {
	all := slices.Sorted(maps.Keys(privatePhrases))
	slices.Reverse(all) // a longer phrase comes before its beginning
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
}()

// wideLines returns the numbers of the lines that are wider than codeWidth. A line that holds a part of a string in
// backquotes is data and may be wider.
func wideLines(data []byte) (lines []int) {
	raw := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, scanner.ScanComments)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.STRING && text[0] == '`' {
			first := file.Line(at)
			for i := range strings.Count(text, "\n") + 1 {
				raw[first+i] = true
			}
		}
	}
	for i, line := range strings.Split(string(data), "\n") {
		width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if width > codeWidth && !raw[i+1] {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// startsWith reports whether a comment is a sentence about a name: an article may come first.
func startsWith(doc *ast.CommentGroup, name string) bool {
	text := strings.TrimSpace(doc.Text())
	rest, ok := "", false
	for _, article := range []string{"", "A ", "An ", "The "} {
		if rest, ok = strings.CutPrefix(text, article+name); ok {
			break
		}
	}
	first, _, _ := strings.Cut(text, "\n\n")
	end := strings.TrimRight(first, " \n")
	return ok && rest != "" && strings.ContainsAny(rest[:1], " ,:;('\n") && strings.ContainsAny(end[len(end)-1:], ".:;!?)")
}

// undocumented returns the exported names at the top of a file that no sentence documents. A constant or variable of a
// group may leave the sentence to the group, and a name alone in its line may have it at the line's end.
func undocumented(file *ast.File) (names []string) {
	values := func(d *ast.GenDecl, s *ast.ValueSpec) {
		for _, n := range s.Names {
			switch {
			case !n.IsExported() || s.Comment != nil:
			case s.Doc != nil && len(s.Names) == 1 && !startsWith(s.Doc, n.Name):
				names = append(names, n.Name)
			case s.Doc == nil && d.Doc == nil:
				names = append(names, n.Name)
			case s.Doc == nil && !d.Lparen.IsValid() && len(s.Names) == 1 && !startsWith(d.Doc, n.Name):
				names = append(names, n.Name)
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv)) && !startsWith(d.Doc, d.Name.Name) {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					values(d, s)
				case *ast.TypeSpec:
					doc := s.Doc
					if doc == nil {
						doc = d.Doc
					}
					if s.Name.IsExported() && !startsWith(doc, s.Name.Name) {
						names = append(names, s.Name.Name)
					}
				}
			}
		}
	}
	return names
}

func exportedReceiver(recv *ast.FieldList) bool {
	exported := false
	ast.Inspect(recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = id.IsExported()
			return false
		}
		return n != nil && !exported
	})
	return exported
}

// phrasesOf returns the private phrases in the comments and strings of a file, each with its line.
func phrasesOf(set *token.FileSet, file *ast.File) (found []string) {
	note := func(at token.Pos, text string) {
		text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\n//", " ")), " ")
		for _, m := range phrasePattern.FindAllString(text, -1) {
			found = append(found, fmt.Sprintf("%d: %q: %s", set.Position(at).Line, m, privatePhrases[strings.ToLower(m)]))
		}
	}
	for _, g := range file.Comments {
		note(g.Pos(), g.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			note(s.Pos(), s.Value)
		}
		return true
	})
	return found
}

// TestStyle holds lines, documentation and phrases of each package to what styles says. Test files may keep their names
// without comments; their lines count, their phrases do not. Generated files are free.
//
// TRAINER_STYLE=DIR[,DIR...] lists every fault of these packages; TRAINER_STYLE=count prints the table of today.
func TestStyle(t *testing.T) {
	list := strings.Split(os.Getenv("TRAINER_STYLE"), ",")
	all := map[string]style{}
	eachFile(t, func(name string, data []byte) {
		if filepath.Ext(name) != ".go" {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if ast.IsGenerated(file) || name == "internal/lint/words_test.go" {
			return
		}
		in := path.Dir(name)
		show := slices.Contains(list, in)
		s := all[in]
		wide := wideLines(data)
		s.Wide += len(wide)
		for _, n := range wide {
			if show {
				t.Logf("%s:%d: wider than %d columns", name, n, codeWidth)
			}
		}
		if !strings.HasSuffix(name, "_test.go") {
			undoc, phrases := undocumented(file), phrasesOf(set, file)
			s.Undoc, s.Phrases = s.Undoc+len(undoc), s.Phrases+len(phrases)
			for _, n := range undoc {
				if show {
					t.Logf("%s: %s has no comment that is a sentence and starts with the name", name, n)
				}
			}
			for _, p := range phrases {
				if show {
					t.Logf("%s:%s", name, p)
				}
			}
		}
		all[in] = s
	})
	if len(all) < 50 {
		t.Fatalf("only %d packages were seen", len(all))
	}
	for _, in := range slices.Sorted(maps.Keys(all)) {
		got, most := all[in], styles[in]
		if list[0] == "count" && got != (style{}) {
			t.Logf("STYLE\t%q: {%d, %d, %d},", in, got.Wide, got.Undoc, got.Phrases)
		}
		over := func(what string, n, most int) {
			if n > most {
				t.Errorf("%s has %d %s and may have %d; TRAINER_STYLE=%s go test ./internal/lint -run TestStyle -v "+
					"lists them", in, n, what, most, in)
			}
		}
		over("lines that are too wide", got.Wide, most.Wide)
		over("exported names without a sentence that starts with the name", got.Undoc, most.Undoc)
		over("phrases that are hard to read", got.Phrases, most.Phrases)
	}
}

// TestPhrasesOfPages holds the pages to the number of private phrases that pagePhrases gives them.
func TestPhrasesOfPages(t *testing.T) {
	list := os.Getenv("TRAINER_STYLE")
	for name, text := range pages(t) {
		if name == "CONTRIBUTING.md" || name == "docs/CONFIG.md" {
			continue // one quotes the words that are not used, the other is made of comments
		}
		found := phrasePattern.FindAllString(strings.Join(strings.Fields(text), " "), -1)
		if list == "count" && len(found) > 0 {
			t.Logf("PAGE\t%q: %d,", name, len(found))
		}
		if len(found) > pagePhrases[name] {
			t.Errorf("%s has %d phrases that are hard to read and may have %d: %q", name, len(found), pagePhrases[name],
				found)
		}
	}
}

// TestStyleIsSeen shows each fault to the functions that count them.
func TestStyleIsSeen(t *testing.T) {
	const text = `// Package p is told what to do.
package p

// A is a type.
type A struct{}

type B struct{}

// does something
func C() {}

// D returns d.
func D() string { return "what there is" }

// E without an end
const E = 1

const (
	F = 1
	G = 2 // G is two.
)

// Kinds of things.
const (
	H = 1
)

// m is private.
func (*a) M() {}

func (*A) N() {}
`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := undocumented(file), []string{"B", "C", "E", "F", "N"}; !slices.Equal(got, want) {
		t.Errorf("undocumented: %v, want %v", got, want)
	}
	if got := phrasesOf(set, file); len(got) != 2 {
		t.Errorf("phrases: %v, want 2", got)
	}
	long := strings.Repeat("x", codeWidth)
	for text, want := range map[string]int{
		"var " + long: 1, "//" + long[2:]: 0, "\t//" + long[5:]: 1, "\t//" + long[6:]: 0, "`" + long + "`": 0,
		"`a\n" + long + "`\n\"" + long + "\"": 1,
	} {
		if got := wideLines([]byte(text)); len(got) != want {
			t.Errorf("%q: lines %v, want %d", text, got, want)
		}
	}
}
