package train

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tierlora/tierlora/train/lrfind"
)

// TestLRFind: a range test has the losses of a run whose rate does not matter yet, repeats to the bit, and leaves the
// folder of an earlier run as it is.
func TestLRFind(t *testing.T) {
	s := testSpec(t, 3)
	run := mustStart(t, s, Env{})
	before := folder(t, s.OutputDir)
	o := lrfind.Options{From: 1e-9, To: 1, Steps: 20}
	r, err := LRFind(t.Context(), s, Env{}, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Points[0].Before != run.Losses[0] || r.Points[0].Loss != run.Losses[0] {
		t.Errorf("the first loss is %v, that of a run %v", r.Points[0].Loss, run.Losses[0])
	}
	if r.Points[1].Loss == run.Losses[1] {
		t.Error("a rate of 1e-9 gives the second loss of a rate of 1e-3")
	}
	if d := r.Points[1].Loss - r.Points[1].Before; math.Abs(d) > 1e-4 {
		t.Errorf("a step with a rate of 1e-9 changes the next loss by %v", d)
	}
	if r.Lowest <= 1e-5 || r.Steepest == 0 {
		t.Errorf("the loss is lowest at %v and falls fastest at %v", r.Lowest, r.Steepest)
	}
	again, err := LRFind(t.Context(), s, Env{}, o)
	if err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("a second test differs: %v", err)
	}
	if !reflect.DeepEqual(before, folder(t, s.OutputDir)) {
		t.Error("the test changed files of output_dir")
	}
	s.Devices = "2"
	o.Steps = lrfind.LeastSteps
	two, err := LRFind(t.Context(), s, Env{}, o)
	if err != nil || two.Points[0].Loss == r.Points[0].Loss {
		t.Errorf("two devices have the loss of one: %v", err)
	}
	s = testSpec(t, 3)
	s.Training.Objective = "grpo"
	if _, err := LRFind(t.Context(), s, Env{}, o); !errors.Is(err, lrfind.ErrNoLoss) {
		t.Errorf("grpo: %v", err)
	}
}

// folder returns the contents of a folder's files by their path.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
