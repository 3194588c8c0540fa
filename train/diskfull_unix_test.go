//go:build linux || darwin

package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/fulldisk"
)

// failedFull runs what has to fail for want of room, and tells which file had none.
func failedFull(t *testing.T, s Spec, env Env, free func()) string {
	t.Helper()
	_, err := Start(context.Background(), s, env)
	free()
	var full *atomicfile.FullError
	if !errors.As(err, &full) {
		t.Fatalf("ended with %v", err)
	}
	t.Log(err)
	name, err := filepath.Rel(s.OutputDir, full.Path)
	if err != nil || full.Free < 0 {
		t.Errorf("the error is %+v", full)
	}
	return name
}

// TestNoRoomForAFile: whatever file of a run has no room, the run ends with the file's name, its checkpoints are whole,
// and it goes on to what it would have become.
func TestNoRoomForAFile(t *testing.T) {
	if !fulldisk.Apart(t) {
		return
	}
	whole, env := everyFile(t)
	mustStart(t, whole, env)
	sizes := map[string]uint64{}
	for _, name := range []string{DataReportFile, "adapter_model.safetensors"} {
		info, err := os.Stat(filepath.Join(whole.OutputDir, name))
		if err != nil {
			t.Fatal(err)
		}
		sizes[name] = uint64(info.Size())
	}
	for _, c := range []struct {
		at    phase
		nth   int
		limit uint64
		file  string
		whole int // checkpoints
	}{
		{phaseOpen, 1, 0, ".lock", 0},
		{phaseResume, 1, 0, "metrics.csv", 0},
		{phaseResume, 1, sizes[DataReportFile] - 1, DataReportFile, 0},
		{phaseEval, 1, 0, MetricsFile, 0},
		{phaseSave, 1, 0, "checkpoint-2/adapter_config.json", 0},
		{phaseSave, 2, sizes["adapter_model.safetensors"], "checkpoint-4/optimizer.safetensors", 1},
		{phaseFinish, 1, 0, "adapter_config.json", 2},
		{phaseFinish, 1, sizes["adapter_model.safetensors"] - 1, "adapter_model.safetensors", 2},
		{phaseEnd, 1, 0, MetricsFile, 2},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.at, c.nth, c.file), func(t *testing.T) {
			limit, free := fulldisk.Limit(t)
			s, env := whole, env
			s.OutputDir = filepath.Join(t.TempDir(), "run")
			seen := 0
			env.phases = func(p phase) {
				if p == c.at {
					if seen++; seen == c.nth {
						limit(c.limit)
					}
				}
			}
			got := failedFull(t, s, env, free)
			if filepath.Base(got) != filepath.Base(c.file) {
				t.Errorf("no room for %s, want %s", got, c.file)
			}
			if n := wholeAfter(t, s.OutputDir); n != c.whole {
				t.Errorf("%d checkpoints, want %d", n, c.whole)
			}
			env.phases, s.Training.Resume = nil, "auto"
			mustStart(t, s, env)
			sameFiles(t, whole.OutputDir, s.OutputDir)
		})
	}
}
