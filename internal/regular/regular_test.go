//go:build unix

package regular

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(in("file"), []byte("content"), 0o600))
	must(os.Symlink("file", in("link")))
	must(syscall.Mkfifo(in("pipe"), 0o600))
	must(os.Symlink("pipe", in("link to pipe")))
	must(os.Symlink("nothing", in("dangling")))
	t.Chdir(dir) // a socket's path is short
	socket, err := net.Listen("unix", "socket")
	must(err)
	defer socket.Close()

	readers := map[string]func(path string) ([]byte, error){
		"Open": func(path string) ([]byte, error) {
			f, err := Open(path)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return io.ReadAll(f)
		},
		"ReadFile": ReadFile,
		"ReadFS": func(path string) ([]byte, error) {
			return ReadFS(os.DirFS(filepath.Dir(path)), filepath.Base(path))
		},
	}
	for _, c := range []struct{ path, want string }{
		{in("file"), ""},
		{in("link"), ""},
		{in("pipe"), "is a named pipe (FIFO), want a regular file"},
		{in("link to pipe"), "is a named pipe (FIFO), want a regular file"},
		{in("socket"), "is a socket, want a regular file"},
		{dir, "is a folder, want a regular file"},
		{os.DevNull, "is a device, want a regular file"},
		{in("dangling"), "no such file"},
	} {
		for name, read := range readers {
			done := make(chan error, 1)
			go func() {
				content, err := read(c.path)
				if err == nil && string(content) != "content" {
					err = io.ErrUnexpectedEOF
				}
				done <- err
			}()
			select {
			case err := <-done:
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s %s: got %v, want %q", name, c.path, err, c.want)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s %s blocks", name, c.path)
			}
		}
	}
	if _, err := ReadFile(in("absent")); !os.IsNotExist(err) {
		t.Errorf("an absent file: %v", err)
	}
}
