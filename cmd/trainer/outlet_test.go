package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// reluctant takes what is written when it is told to.
type reluctant struct {
	mu    sync.Mutex
	text  strings.Builder
	begin chan struct{}
}

func (r *reluctant) Write(p []byte) (int, error) {
	<-r.begin
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// TestOutletNeverWaits: lines that nobody reads are kept up to a limit, the others counted; those that are read come in
// their order, with the count where lines are missing.
func TestOutletNeverWaits(t *testing.T) {
	r := &reluctant{begin: make(chan struct{})}
	o := newOutlet(r)
	line := strings.Repeat("x", 1023) + "\n"
	for i := range 300 {
		fmt.Fprintf(o, "%03d%s", i, line[3:])
	}
	o.flush(time.Millisecond) // which gives up
	close(r.begin)
	o.flush(time.Minute)
	fmt.Fprintln(o, "read again")
	o.flush(time.Minute)
	got := strings.SplitAfter(r.text.String(), "\n")
	if len(got) != 259 || !strings.HasPrefix(got[255], "255") || got[256] != "(44 lines are left out here: nobody "+
		"read them in time)\n" || got[257] != "read again\n" {
		t.Errorf("%d lines, the last %.80q", len(got), got[max(0, len(got)-4):])
	}
}

type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) {
	b.writes++
	return 0, io.ErrClosedPipe
}

// TestOutletOfAClosedPipe: the first refusal is the last attempt, and no caller hears of it.
func TestOutletOfAClosedPipe(t *testing.T) {
	b := &broken{}
	o := newOutlet(b)
	var problems error
	for range 5 {
		_, err := fmt.Fprintln(o, "a line")
		problems = errors.Join(problems, err)
		o.flush(time.Minute)
	}
	if problems != nil || b.writes != 1 {
		t.Errorf("%d writes, %v", b.writes, problems)
	}
}
