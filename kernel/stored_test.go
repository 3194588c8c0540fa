package kernel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoredHasABody: a kernel that says what it stores on a GPU, by which plans of every build take it for one that
// runs there, has a body in the files with the tag gpu, and the other way round.
func TestStoredHasABody(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	says, runs := map[string]string{}, map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		tagged := strings.HasPrefix(name, "device_gpu") || len(file.Comments) > 0 &&
			file.Comments[0].List[0].Text == "//go:build gpu"
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			receiver := f.Recv.List[0].Type
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			of, _ := receiver.(*ast.Ident)
			switch {
			case of == nil || of.Name == "Precision":
			case f.Name.Name == "Stored":
				if says[of.Name] = name; tagged {
					t.Errorf("%s: what %s stores is in a file with the tag gpu, so a build without it cannot plan",
						name, of.Name)
				}
			case f.Name.Name == "GPU":
				if runs[of.Name] = name; !tagged {
					t.Errorf("%s: the body of %s is in a file without the tag gpu", name, of.Name)
				}
			}
		}
	}
	if len(says) < 80 {
		t.Errorf("%d kernels say what they store", len(says))
	}
	for name, file := range says {
		if runs[name] == "" {
			t.Errorf("%s: %s says what it stores on a GPU and has no body there", file, name)
		}
	}
	for name, file := range runs {
		if says[name] == "" {
			t.Errorf("%s: %s has a body on a GPU and does not say what it stores", file, name)
		}
	}
}
