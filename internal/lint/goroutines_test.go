package lint

import (
	"regexp"
	"strings"
	"testing"
)

// starts are the ways to begin a goroutine that is not one of internal/rescue: a panic in it would end the program with a
// trace of Go and exit code 2, which means configuration here.
var starts = regexp.MustCompile(`^\s*go\s+[a-zA-Z_(]|(?:[^e]|[^u]e)\.Go\(func|AfterFunc\([^)]*, func\(`)

// unguarded are the lines of a file's code that begin such a goroutine.
func unguarded(path, text string) (lines []int) {
	if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
		return nil
	}
	for _, folder := range []string{"internal/rescue/", "internal/browsertest/", "internal/golden/", "internal/fulldisk/", "internal/gputest/", "scripts/", "kernel/kerneltest/"} { // the rule itself, tests, tools
		if strings.HasPrefix(path, folder) {
			return nil
		}
	}
	for i, line := range strings.Split(text, "\n") {
		if code, _, _ := strings.Cut(line, "//"); starts.MatchString(code) {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func TestGoroutinesAreGuarded(t *testing.T) {
	eachFile(t, func(path string, data []byte) {
		for _, line := range unguarded(path, string(data)) {
			t.Errorf("%s:%d begins a goroutine: use rescue.Go, or rescue.Wrap for its function", path, line)
		}
	})
	for code, want := range map[string]int{
		"\tgo func() {": 1, "\tgo q.work()": 1, "\twg.Go(func() {": 1, "x := time.AfterFunc(d, func() {": 1,
		"\t// go on": 0, "\trescue.Go(func() {": 0, "\twg.Go(rescue.Wrap(func() {": 0, "time.AfterFunc(d, rescue.Wrap(func() {": 0,
	} {
		if got := len(unguarded("a/b.go", code)); got != want {
			t.Errorf("%q: %d, want %d", code, got, want)
		}
	}
}
