package rescue

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestPanicsAreErrors(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		f    func() error
		want string
	}{
		"none":  {func() error { return nil }, ""},
		"error": {func() error { return own }, "own"},
		"stop":  {func() error { Stop(own); return nil }, "own"},
		"index": {func() error {
			_ = make([]int, 3)[len(os.Args)+5]
			return nil
		}, "internal error: runtime error: index out of range"},
		"text": {func() error {
			panic("no way")
		}, "internal error: no way, in an unknown place: this is a defect of the program; please report it"},
		"nil": {func() error { var p *[4]int; _ = p[len(os.Args)%4]; return nil }, "nil pointer dereference"},
	} {
		err := Do(c.f)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == "own" && !errors.Is(err, own) {
			t.Errorf("%s: %v is not the error", name, err)
		}
	}
}

// TestGoroutinesEndTheProgram: a panic on any goroutine ends the program with exit code 1 and a line, and not with Go's
// 2.
func TestGoroutinesEndTheProgram(t *testing.T) {
	if os.Getenv("GUARD_TEST") != "" {
		Go(func() { panic("of a goroutine") })
		time.Sleep(time.Minute)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestGoroutinesEndTheProgram$")
	cmd.Env = append(os.Environ(), "GUARD_TEST=1", "GOTRACEBACK=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(string(out),
		"internal error: of a goroutine, in ") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %q", err, out)
	}
}
