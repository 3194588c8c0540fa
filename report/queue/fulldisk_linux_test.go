package queue

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// TestFullDiskKeepsTheResult: how a run ended is written down on a disk that is full by then.
func TestFullDiskKeepsTheResult(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a small file system needs root: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) //nolint:errcheck // the folder goes with the test's
	q, err := Open(filepath.Join(dir, "queue"))
	if err != nil {
		t.Fatal(err)
	}
	path, _ := program(t)
	e, err := q.Add(Entry{Name: "x", OutputDir: filepath.Join(t.TempDir(), "out"), Dir: dir}, fmt.Appendf(nil, "dd if=/dev/zero of=%s/fill bs=4k 2>/dev/null; code=4", dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Work(t.Context(), path, Machine{}); err != nil {
		t.Error(err)
	}
	if free, ok := atomicfile.Free(dir); ok && free > 4096 {
		t.Fatalf("%d bytes are free", free)
	}
	if got := state(t, q, e.ID); got.State != Ended || *got.ExitCode != 4 {
		t.Errorf("it is %+v", got)
	}
}
