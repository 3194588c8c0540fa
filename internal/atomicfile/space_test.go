package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRoom: an error for want of room names the file, not its temporary one, with the bytes needed and free; others
// stay.
func TestRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Room(nil, path, 1); err != nil {
		t.Error(err)
	}
	if err := Room(fs.ErrPermission, path, 1); err != fs.ErrPermission {
		t.Error(err)
	}
	system := &os.PathError{Op: "write", Path: path + ".tmp", Err: syscall.ENOSPC}
	if !isFull(system) {
		t.Skip("this system says it in other words")
	}
	err := Room(system, path, 3<<20)
	var full *FullError
	if !errors.As(err, &full) || full.Path != path || full.Needed != 3<<20 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	if said := err.Error(); !strings.HasPrefix(said, "no room for "+path+": 3145728 bytes (3.0 MiB) are needed, ") ||
		strings.Contains(said, ".tmp") {
		t.Error(said)
	}
	if again := Room(err, "b", 1); again != err {
		t.Errorf("told twice: %v", again)
	}
	full.Free = -1
	if !strings.Contains(full.Error(), "not known") {
		t.Error(full)
	}
}

func TestFree(t *testing.T) {
	free, ok := Free(t.TempDir())
	if ok && free < 1 {
		t.Errorf("%d bytes are free where tests write", free)
	}
	if _, ok := Free(filepath.Join(t.TempDir(), "nothing")); ok {
		t.Error("a folder that is not there has room")
	}
}
