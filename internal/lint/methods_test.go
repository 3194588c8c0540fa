package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostMethods is the number of methods that a type may have. A type with more has several duties.
const mostMethods = 25

// crowded are types above the limit, each with a number of methods that it may not exceed. A type that no longer is
// above the limit loses its line.
var crowded = map[string]int{
	"dataset.Config":           40,
	"dataset.Loader":           40,
	"dataset.Report":           40,
	"export.merging":           34,
	"export/llamacpp.Plan":     55,
	"graph.Builder":            29,
	"importer.translation":     46,
	"infer.Engine":             35,
	"model.Config":             45,
	"model.Keys":               35,
	"model/nn.Net":             65,
	"report/live.Server":       34,
	"report/runs.Run":          70,
	"serve.Library":            35,
	"text/chat.Chat":           45,
	"text/chat.prover":         35,
	"text/jinja.compiler":      35,
	"text/jinja.parser":        56,
	"text/tokenizer.Tokenizer": 28,
}

// methodsOf counts the methods of each type of a file of Go, by its receiver; nil = the file cannot be parsed.
func methodsOf(name string, data []byte) (map[string]int, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		of := f.Recv.List[0].Type
		for {
			switch t := of.(type) {
			case *ast.StarExpr:
				of = t.X
				continue
			case *ast.IndexExpr:
				of = t.X
				continue
			case *ast.IndexListExpr:
				of = t.X
				continue
			case *ast.Ident:
				count[t.Name]++
			}
			break
		}
	}
	return count, nil
}

// TestTypesHaveFewMethods holds every type of the tree to mostMethods. Files of other systems and build tags count
// too; tests do not.
func TestTypesHaveFewMethods(t *testing.T) {
	all := map[string]int{}
	eachFile(t, func(name string, data []byte) {
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return
		}
		count, err := methodsOf(name, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for of, n := range count {
			all[path.Dir(name)+"."+of] += n
		}
	})
	if len(all) < 500 {
		t.Fatalf("only %d types with methods were seen", len(all))
	}
	for _, of := range slices.Sorted(maps.Keys(all)) {
		switch n, listed := all[of], crowded[of]; {
		case listed == 0 && n > mostMethods:
			t.Errorf("%s has %d methods, more than %d: split it by its duties", of, n, mostMethods)
		case listed > 0 && n > listed:
			t.Errorf("%s has %d methods, it is listed as crowded and may have %d: split it by its duties", of, n, listed)
		case listed > 0 && n <= mostMethods:
			t.Errorf("%s has %d methods and is listed as crowded: take it off the list", of, n)
		}
	}
	for of := range crowded {
		if all[of] == 0 {
			t.Errorf("%s is listed as crowded and is not there", of)
		}
	}
}

// TestMethodsAreCounted: pointers, values and type parameters are receivers of one type.
func TestMethodsAreCounted(t *testing.T) {
	const text = `package p
type a struct{}
func (a) x() {}
func (*a) y() {}
type b[T, U any] struct{}
func (b[T, U]) x() {}
func (v *b[_, U]) y() {}
type c[T any] struct{}
func (v *c[T]) y() {}
func y() {}
`
	got, err := methodsOf("p.go", []byte(text))
	if want := map[string]int{"a": 2, "b": 2, "c": 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v: %v", got, want, err)
	}
}
