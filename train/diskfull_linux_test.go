package train

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk fills a small disk at each phase of a run but for a few bytes. It needs the right to mount one.
func TestFullDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Skip("a disk of its own cannot be mounted: ", err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) }) //nolint:errcheck // the folder's removal tells
	whole, env := everyFile(t)
	mustStart(t, whole, env)
	filler := filepath.Join(disk, "filler")
	for i, c := range []struct {
		at   phase
		nth  int
		left int64 // bytes
	}{
		{phaseResume, 1, 0}, {phaseResume, 1, 8 << 10}, {phaseSteps, 1, 0}, {phaseSave, 1, 0}, {phaseSave, 2, 0},
		{phaseSave, 2, 64 << 10},
		{phaseFinish, 1, 0}, {phaseFinish, 1, 16 << 10},
	} {
		t.Run(fmt.Sprintf("%s %d, %d bytes", c.at, c.nth, c.left), func(t *testing.T) {
			s, env := whole, env
			s.OutputDir = filepath.Join(disk, fmt.Sprint(i))
			seen := 0
			env.phases = func(p phase) {
				if p != c.at {
					return
				}
				if seen++; seen == c.nth {
					free, _ := diskFree(disk)
					if err := os.WriteFile(filler, make([]byte, free-c.left), 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			failedFull(t, s, env, func() { os.Remove(filler) }) //nolint:errcheck // the next run tells
			if n := wholeAfter(t, s.OutputDir); n < c.nth-1 {
				t.Errorf("%d checkpoints", n)
			}
			env.phases, s.Training.Resume = nil, "auto"
			mustStart(t, s, env)
			sameFiles(t, whole.OutputDir, s.OutputDir)
			if err := os.RemoveAll(s.OutputDir); err != nil {
				t.Error(err)
			}
		})
	}
}
