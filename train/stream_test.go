package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// streamedRows are 5,000 texts of two or three letters, all different: a whole window of 4,096 rows and a part of one.
func streamedRows() []string {
	var rows []string
	for i := range 5000 {
		text := string([]byte{letters[i%len(letters)], letters[i/len(letters)%len(letters)], letters[i%7]})
		rows = append(rows, fmt.Sprintf(`{"text": %q}`, text[:2+i%2]))
	}
	return rows
}

// letters has 71 characters, of which 5,000 pairs can be made.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?+-_"

func writeRows(t testing.TB, path string, rows []string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// streamedSpec trains 12 steps. It crosses a window's end at about step 8 and the epoch's at about step 10.
func streamedSpec(t testing.TB, dir string, packed, shuffled bool) Spec {
	t.Helper()
	s := testSpec(t, 12)
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields = filepath.Join(dir, "rows.jsonl"), "text", nil
	s.Dataset.Streaming, s.Dataset.Shuffle, s.Dataset.Packing, s.Dataset.MaxLength = true, shuffled, packed, 16
	s.Training.BatchSize, s.Training.GradientAccumulationSteps, s.Training.LoggingSteps = 256, 2, 3
	if packed {
		s.Dataset.MaxLength, s.Training.BatchSize = 64, 22
	}
	return s
}

// streamVariants runs a test with packing and with shuffling. The loader's own tests, in package dataset, cover both
// together and neither.
func streamVariants(t *testing.T, test func(t *testing.T, s Spec)) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("packed=%v,shuffle=%v", packed, !packed), func(t *testing.T) {
			dir := t.TempDir()
			writeRows(t, filepath.Join(dir, "rows.jsonl"), streamedRows())
			test(t, streamedSpec(t, dir, packed, !packed))
		})
	}
}

func sameAdapter(t *testing.T, what, a, b string) {
	t.Helper()
	if !bytes.Equal(golden.ReadFile(t, a, adapter.WeightsFile), golden.ReadFile(t, b, adapter.WeightsFile)) {
		t.Errorf("%s trains another adapter", what)
	}
}

// TestStreamedRunResumes: stopped in a window, in the next one and in the next epoch, it ends with the bytes of a run
// that was left alone.
func TestStreamedRunResumes(t *testing.T) {
	streamVariants(t, func(t *testing.T, whole Spec) {
		var said []string
		env := Env{}
		env.Log = func(line string) { said = append(said, line) }
		want := mustStart(t, whole, env)
		if all := strings.Join(said, "\n"); !strings.Contains(all, "streaming: the numbers are of the first ") ||
			!strings.Contains(all, "end of epoch 1: ") || !strings.Contains(all,
			"streaming: these are all rows of an epoch\n  rows: 5000 read, 5000 kept, 0 dropped") {
			t.Errorf("said\n%s", all)
		}
		parts := whole
		parts.OutputDir = filepath.Join(t.TempDir(), "run")
		for _, at := range []int{3, 9, 11, 0} {
			stop := stopping(at)
			env := Env{Observers: []Observer{stop}, Interrupted: stop.stop}
			env.Workers = 1 + at%3
			r := mustStart(t, parts, env)
			if r.Stopped != (at > 0) || at > 0 && r.Steps != at {
				t.Fatalf("stopped %v after %d steps, want %d", r.Stopped, r.Steps, at)
			}
			if parts.Training.Resume = "auto"; at == 0 && !slices.Equal(r.Losses, want.Losses) {
				t.Errorf("losses %v\nwant   %v", r.Losses, want.Losses)
			}
		}
		sameAdapter(t, "the resumed run", whole.OutputDir, parts.OutputDir)
		if a, b := logLosses(t, whole.OutputDir), logLosses(t, parts.OutputDir); a != b {
			t.Errorf("metrics differ:\n%s\n%s", a, b)
		}
		for range 200 {
			if readers() == "" {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("what reads the stream goes on:\n%s", readers())
	})
}

// readers are the stacks of goroutines that read data.
func readers() string {
	stacks := make([]byte, 1<<20)
	var found []string
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "tierlora/dataset.") {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}

// TestStreamedRunKilled: a run that is killed at any time goes on from its last checkpoint to the same bytes.
func TestStreamedRunKilled(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("TRAINER_TEST_STREAM"); dir != "" { // the child
		s := streamedSpec(t, dir, os.Getenv("TRAINER_TEST_PACKED") != "", true)
		s.OutputDir, s.Training.SaveSteps, s.Training.Resume = filepath.Join(dir, "run"), 2, "auto"
		mustStart(t, s, Env{})
		return
	}
	for _, packed := range []string{"", "yes"} {
		dir := t.TempDir()
		writeRows(t, filepath.Join(dir, "rows.jsonl"), streamedRows())
		whole := streamedSpec(t, dir, packed != "", true)
		mustStart(t, whole, Env{})
		run, kills := filepath.Join(dir, "run"), 0
		for _, at := range []int{2, 10, 0} {
			child := exec.Command(os.Args[0], "-test.run=^TestStreamedRunKilled$")
			child.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "TRAINER_TEST_STREAM="+dir,
				"TRAINER_TEST_PACKED="+packed)
			var out bytes.Buffer
			child.Stdout, child.Stderr = &out, &out
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			if at > 0 {
				waitForCheckpoint(run, at)
				child.Process.Kill() //nolint:errcheck // it may have ended
			}
			if err := child.Wait(); err != nil && at == 0 {
				t.Fatalf("a run that nobody killed failed: %v\n%s", err, out.Bytes())
			} else if err != nil {
				kills++
			}
		}
		if kills == 0 {
			t.Error("no run was killed")
		}
		sameAdapter(t, fmt.Sprintf("the run that was killed %d times", kills), whole.OutputDir, run)
	}
}

// TestStreamedRunMeetsABrokenRow: what was trained up to there is saved, and with the row put right it goes on to the
// same bytes.
func TestStreamedRunMeetsABrokenRow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := streamedRows()
	path := filepath.Join(dir, "rows.jsonl")
	writeRows(t, path, rows)
	whole := streamedSpec(t, dir, true, true)
	mustStart(t, whole, Env{})

	broken := slices.Clone(rows)
	broken[4800] = `{"text": 7}`
	writeRows(t, path, broken)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "run")
	_, err := Start(context.Background(), parts, Env{})
	if err == nil || !strings.HasPrefix(err.Error(),
		path+":4801: field \"text\" is a number, want a string\nThe state before it, after step ") {
		t.Fatalf("got %v", err)
	}
	parts.Training.Resume = "auto"
	if _, err := Start(context.Background(), parts, Env{}); err == nil ||
		!strings.Contains(err.Error(), path+":4801: field \"text\" is a number") {
		t.Fatalf("resumed too early: %v", err)
	}
	writeRows(t, path, rows)
	if r := mustStart(t, parts, Env{}); r.Resumed == 0 || r.Steps != 12 {
		t.Errorf("resumed after %d, ended at %d", r.Resumed, r.Steps)
	}
	sameAdapter(t, "the run that met a broken row", whole.OutputDir, parts.OutputDir)
}

// TestStreamNeedsMaxSteps: nobody knows how long an epoch is.
func TestStreamNeedsMaxSteps(t *testing.T) {
	dir := t.TempDir()
	writeRows(t, filepath.Join(dir, "rows.jsonl"), streamedRows()[:10])
	s := streamedSpec(t, dir, false, true)
	s.Training.MaxSteps = 0
	if _, err := Start(context.Background(), s, Env{}); err == nil || err.Error() != NeedsMaxSteps {
		t.Errorf("got %v", err)
	}
}

// TestStreamedPlan: the largest budget holds whatever may come, and the memory is what the plan says.
func TestStreamedPlan(t *testing.T) {
	t.Parallel()
	streamVariants(t, func(t *testing.T, s Spec) {
		s.Training.MaxSteps = 2
		plan, err := PlanRun(context.Background(), s, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if largest := plan.Budgets[len(plan.Budgets)-1]; largest != s.Training.BatchSize*s.Dataset.MaxLength {
			t.Errorf("the largest of the budgets %v is not for %d rows of %d tokens", plan.Budgets,
				s.Training.BatchSize, s.Dataset.MaxLength)
		}
		if r := mustStart(t, s, Env{}); r.HeldBytes != plan.TotalBytes {
			t.Errorf("the run holds %d bytes, the plan says %d", r.HeldBytes, plan.TotalBytes)
		}
	})
}
