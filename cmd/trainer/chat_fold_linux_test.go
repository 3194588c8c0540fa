package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestChatFitsTheTerminal: what chat says of itself is broken at spaces, before the terminal's edge.
func TestChatFitsTheTerminal(t *testing.T) {
	keyboard, screen := newTerminal(t)
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Skip("no terminal: ", err)
	}
	shown := make(chan string)
	go func() {
		var all strings.Builder
		b := make([]byte, 4096)
		for !strings.Contains(all.String(), "Ctrl-D ends.") {
			n, err := keyboard.Read(b)
			if all.Write(b[:n]); err != nil {
				break
			}
		}
		shown <- all.String()
	}()
	chat := &talk{c: &console{out: screen, err: screen}}
	if err := chat.help(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-shown:
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\r\n"); len(line) > 80 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was shown")
	}
	screen.Close()
}
