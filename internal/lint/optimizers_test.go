package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// optimizerPlaces are the files beside train/optimizer that may name an optimizer, as docs/internals/ADDING.md lists
// them: which keys it reads, advice, and its names in other programs.
var optimizerPlaces = []string{"cmd/trainer/init_choose.go", "importer/optimizers.go", "importer/programs.go",
	"importer/rules.go",
	"train/config.go", "train/fit/suggest.go", "train/inert.go", "train/rates.go"}

// TestOptimizersAreAFileAndALine: each line of the table of optimizers has a constructor in a file of its own name, and
// no other file of the program names one but those listed. Kernels have stems of their own.
func TestOptimizersAreAFileAndALine(t *testing.T) {
	root := golden.Root(t)
	read := func(path string) string { return string(golden.ReadFile(t, root, filepath.FromSlash(path))) }
	lines := regexp.MustCompile(`(?m)^\t"(\w+)": +(new\w+),$`).FindAllStringSubmatch(read("train/optimizer/optimizer.go"), -1)
	if len(lines) < 8 {
		t.Fatalf("%d optimizers: the table has another form", len(lines))
	}
	var names []string
	for _, line := range lines {
		names = append(names, `"`+line[1]+`"`)
		file := strings.TrimSuffix(line[1], "_adamw") + ".go"
		if !strings.Contains(read("train/optimizer/"+file), "func "+line[2]+"(c Config) Optimizer") {
			t.Errorf("%s: %s is not in train/optimizer/%s", line[1], line[2], file)
		}
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place, _ := filepath.Rel(root, path)
		place = filepath.ToSlash(place)
		if d.IsDir() && slices.Contains([]string{".git", "kernel", "selfcheck", "train/optimizer", "internal"}, place) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(place, ".go") || strings.HasSuffix(place, "_test.go") ||
			slices.Contains(optimizerPlaces, place) {
			return nil
		}
		text := read(place)
		for _, name := range names {
			if strings.Contains(text, name) {
				t.Errorf("%s names the optimizer %s: say in docs/internals/ADDING.md why, and list it here", place,
					name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
