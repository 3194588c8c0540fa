//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWhatIsWrittenTo: new and regular files are written to; links, devices, pipes, folders and files with two names
// are left as they are, and nobody waits for the other end of a pipe.
func TestWhatIsWrittenTo(t *testing.T) {
	writers := map[string]func(path string) error{
		"Write": func(path string) error { return Write(path, []byte("new")) },
		"Open": func(path string) error {
			f, err := Open(path, 0o644)
			if err == nil {
				_, err = f.WriteString("new")
				err = errors.Join(err, f.Close())
			}
			return err
		},
		"Truncate": func(path string) error {
			f, err := Truncate(path, 0o644)
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"Append": func(path string) error {
			f, err := Append(path, 0o644)
			if err == nil {
				_, err = f.WriteString("new")
				err = errors.Join(err, f.Close())
			}
			return err
		},
	}
	for name, write := range writers {
		dir := t.TempDir()
		in := func(name string) string { return filepath.Join(dir, name) }
		if err := errors.Join(os.WriteFile(in("file"), []byte("old"), 0o644), os.WriteFile(in("target"),
			[]byte("precious"), 0o644),
			os.WriteFile(in("two"), []byte("precious"), 0o644), os.Link(in("two"), in("names")),
			os.Symlink("target", in("link")),
			os.Symlink("nothing", in("dangling")), os.Symlink(os.DevNull, in("null")), os.Mkdir(in("folder"), 0o755),
			syscall.Mkfifo(in("pipe"), 0o644)); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			in("new"):      "",
			in("file"):     "",
			in("link"):     "is a symbolic link",
			in("dangling"): "is a symbolic link",
			in("null"):     "is a symbolic link",
			in("pipe"):     "is a named pipe (FIFO)",
			in("folder"):   "is a folder",
			os.DevNull:     "is a device",
			in("names"):    "is also another file's name",
		} {
			if name == "Write" && path == in("names") {
				want = "" // the name alone is given to another file
			}
			done := make(chan error, 1)
			go func() { done <- write(path) }()
			select {
			case err := <-done:
				if want == "" && err != nil || want != "" && (!errors.Is(err, ErrNotOurs) ||
					!strings.Contains(err.Error(), path+" "+want)) {
					t.Errorf("%s %s: %v, want %q", name, path, err, want)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s %s blocks", name, path)
			}
		}
		for _, kept := range []string{"target", "two"} {
			if text, err := os.ReadFile(in(kept)); err != nil || string(text) != "precious" {
				t.Errorf("%s: %s holds %q, %v", name, kept, text, err)
			}
		}
		if _, err := os.Lstat(in("nothing")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s made the file of a dangling link", name)
		}
	}
}
