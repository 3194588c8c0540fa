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
				if c.want == "" && err != nil || c.want != "" &&
					(err == nil || !strings.Contains(err.Error(), c.want)) {
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

// TestPointers: a Git LFS pointer is never what its file holds, whatever the file is.
func TestPointers(t *testing.T) {
	dir := t.TempDir()
	const pointer = "version https://git-lfs.github.com/spec/v1\noid " +
		"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 3185280\n"
	for name, text := range map[string]string{"tokenizer.json": pointer, "old.json": strings.Replace(pointer,
		"git-lfs.github.com", "hawser.github.com", 1), "about.txt": "version https://git.example.org\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for reader, read := range map[string]func() ([]byte, error){
			"ReadFile": func() ([]byte, error) { return ReadFile(path) },
			"ReadFS":   func() ([]byte, error) { return ReadFS(os.DirFS(dir), name) },
		} {
			data, err := read()
			switch {
			case name == "about.txt" && (err != nil || string(data) != text):
				t.Errorf("%s %s: %q, %v", reader, name, data, err)
			case name != "about.txt" && (err == nil || !strings.HasSuffix(err.Error(), name+
				" is a Git LFS pointer, not the content: run `git lfs pull` in the folder")):
				t.Errorf("%s %s: %v", reader, name, err)
			}
		}
	}
}
