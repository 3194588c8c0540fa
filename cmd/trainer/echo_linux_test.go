package main

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is typed or pasted while an answer is written is not mixed into it, and is the next message.
func TestTypedAhead(t *testing.T) {
	keyboard, screen := newTerminal(t)
	echo := func() bool {
		state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return state.Lflag&unix.ECHO != 0
	}
	lines := &typed{file: screen, out: io.Discard, bold: false}
	next := func(want string) {
		t.Helper()
		got := make(chan string, 1)
		go func() {
			line, err := lines.next()
			got <- fmt.Sprint(line, err)
		}()
		select {
		case line := <-got:
			if line != want+"<nil>" {
				t.Errorf("%q, want %q", line, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no line came")
		}
	}
	write := func(s string) {
		if _, err := keyboard.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	if !echo() {
		t.Fatal("the terminal begins without echo")
	}
	write("hello\n")
	next("hello")
	if echo() {
		t.Error("what is typed during an answer is shown in it")
	}
	write("\x1b[200~one\ntwo\x1b[201~\n") // pasted while the answer is written
	next("one\ntwo")
}

// newTerminal: what is written to the keyboard is typed on it, and what is read from there is what the screen shows.
func newTerminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminal: ", err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	t.Cleanup(func() { screen.Close() })
	return keyboard, screen
}
