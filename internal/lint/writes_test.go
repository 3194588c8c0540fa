package lint

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// opens are the calls by which a program changes what a file holds or which file a name is of. Temporary files of
// os.CreateTemp are new by their making, and what is removed is not written.
var opens = regexp.MustCompile(`\b(?:os\.(?:Create|OpenFile|WriteFile|Rename|Truncate|Symlink|Link|Chmod)|unix\.Open|syscall\.Open|ioutil\.WriteFile)\(`)

// openers are the files beside internal/atomicfile that may use opens, each with its reason.
var openers = map[string]string{
	"model/hub/download.go":          "the hub's cache is links to blobs; the link that is replaced is one of the cache's own",
	"kernel/gpu/algorithms.go":       "the driver imports nothing of ours; a temporary file gets its name in the user's cache folder",
	"train/checkpoint/checkpoint.go": "the permissions of a folder that was made a line before",
	"kernel/gemm/gen.go":             "a generator",
	"kernel/gpu/libcuda/gen.go":      "a generator",
}

// writers are the calls of opens in a file's code.
func writers(path, text string) (found []string) {
	switch {
	case filepath.Ext(path) != ".go", strings.HasSuffix(path, "_test.go"), openers[filepath.ToSlash(path)] != "":
		return nil
	}
	for _, folder := range []string{"internal/atomicfile/", "internal/golden/", "internal/browsertest/", "scripts/"} { // the rule itself, tests, tools
		if strings.HasPrefix(filepath.ToSlash(path), folder) {
			return nil
		}
	}
	for _, line := range strings.Split(text, "\n") {
		code, _, _ := strings.Cut(line, "//")
		if call := opens.FindString(code); call != "" {
			found = append(found, strings.TrimSuffix(call, "("))
		}
	}
	return found
}

// TestFilesAreWrittenByOneRule: every file is opened for writing by internal/atomicfile, which follows no link and
// replaces nothing but regular files (docs/internals/decisions/0103-files-that-are-written.md).
func TestFilesAreWrittenByOneRule(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(path string, data []byte) {
		seen[filepath.ToSlash(path)] = true
		for _, call := range writers(path, string(data)) {
			t.Errorf("%s calls %s: use internal/atomicfile, or give the reason in openers", path, call)
		}
	})
	for path := range openers {
		if !seen[path] {
			t.Errorf("openers names %s, which is not there", path)
		}
	}
	if writers("a/b.go", "x := os.Create(y)") == nil || writers("a/b.go", "// os.Create(y)\nos.Open(y)") != nil {
		t.Error("the pattern does not hold")
	}
}
