//go:build unix

package tests

import (
	"syscall"
	"testing"
)

// stop holds a process where it is, so that its files stand still.
func (s *started) stop(t *testing.T) { s.signal(t, syscall.SIGSTOP) }

// goOn lets it run again.
func (s *started) goOn(t *testing.T) { s.signal(t, syscall.SIGCONT) }

func (s *started) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
