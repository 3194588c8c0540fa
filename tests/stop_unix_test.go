//go:build unix

package tests

import (
	"syscall"
	"testing"
)

// stop holds a process where it is, so that its files stand still: it returns when all its threads have stopped.
func (s *started) stop(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the process did not stop: %v, status %#x", err, status)
		}
		return
	}
}

// goOn lets it run again.
func (s *started) goOn(t *testing.T) { s.signal(t, syscall.SIGCONT) }

func (s *started) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
