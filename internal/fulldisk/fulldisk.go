//go:build unix

// Package fulldisk is for tests of a full disk. A limit on the size of a process's files stands for it.
package fulldisk

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const childVariable = "TRAINER_TEST_LIMITED_CHILD"

// Apart tells whether this process is the test's own. Elsewhere it runs the test in one: the limit is for all files of
// a process, those of go test too.
func Apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Limit lets no file of this process grow beyond so many bytes, until the test ends or free.
func Limit(t *testing.T) (limit func(bytes uint64), free func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Skip("no limits of files: ", err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	free = func() { set(was) }
	t.Cleanup(func() { free(); signal.Reset(syscall.SIGXFSZ) })
	return func(bytes uint64) { now := was; now.Cur = bytes; set(now) }, free
}
