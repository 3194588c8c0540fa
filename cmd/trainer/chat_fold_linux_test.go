package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestChatFitsTheTerminal: what chat says of itself is broken at spaces, before the terminal's edge.
func TestChatFitsTheTerminal(t *testing.T) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	defer keyboard.Close()
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminal: ", err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
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
