package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

var (
	packageNamed = regexp.MustCompile("`([a-z0-9_./]+)`")
	testNamed    = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// TestGuaranteesNameTests holds docs/internals/GUARANTEES.md to tests that exist: each stands behind the name of its package, and a
// row without a test says "Not yet".
func TestGuaranteesNameTests(t *testing.T) {
	root := golden.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "internals", "GUARANTEES.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "\n## ")
	named, known := 0, map[string]map[string]bool{}
	tests := func(pkg string) map[string]bool {
		if known[pkg] == nil {
			known[pkg] = testsOf(t, filepath.Join(root, filepath.FromSlash(pkg)))
		}
		return known[pkg]
	}
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 || strings.Trim(cells[0], "| ") == "" || strings.HasSuffix(strings.TrimSuffix(cells[len(cells)-1], " |"), "tests") {
			continue
		}
		last := cells[len(cells)-1]
		n, problems := unknownTests(last, tests)
		named += n
		for _, p := range problems {
			t.Errorf("%s: %s", cells[0], p)
		}
		if n == 0 && !strings.Contains(last, "Not yet") {
			t.Errorf("%s: no test, and no word that there is none", cells[0])
		}
	}
	if named < 100 {
		t.Errorf("%d tests are named: the tables were not read", named)
	}
	if n, problems := unknownTests("`train` TestNoSuchTest", func(string) map[string]bool { return map[string]bool{"TestOther": true} }); n != 1 || len(problems) != 1 {
		t.Error("a test that does not exist passes")
	}
	if _, problems := unknownTests("TestOther", func(string) map[string]bool { return nil }); len(problems) != 1 {
		t.Error("a test without a package passes")
	}
}

// unknownTests counts the tests that a cell names, and reports those that their package lacks.
func unknownTests(cell string, tests func(pkg string) map[string]bool) (named int, problems []string) {
	places := packageNamed.FindAllStringSubmatchIndex(cell, -1)
	for _, at := range testNamed.FindAllStringIndex(cell, -1) {
		named++
		pkg, name := "", cell[at[0]:at[1]]
		for _, p := range places {
			if p[1] <= at[0] {
				pkg = cell[p[2]:p[3]]
			}
		}
		switch {
		case pkg == "":
			problems = append(problems, name+" stands behind no package")
		case !tests(pkg)[name]:
			problems = append(problems, pkg+" has no test "+name)
		}
	}
	return named, problems
}

// testsOf are the tests in a folder, whatever tags they need.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}
