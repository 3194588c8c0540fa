package train

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// TestRecordedWindows: a run records the same windows over ranks and after an interrupt, and verify replays them to the
// bit when the data set deals others.
func TestRecordedWindows(t *testing.T) {
	t.Parallel()
	for name, packed := range map[string]bool{"end to end": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			s := testSpec(t, 6)
			s.Dataset.Packing, s.Training.BatchSize, s.Training.GradientAccumulationSteps,
				s.Training.RecordWindows = packed, 2, 2, true
			mustStart(t, s, oneWorker)
			want := golden.ReadFile(t, s.OutputDir, WindowsFile)
			if n := bytes.Count(want, []byte("\n")); n != 6 {
				t.Fatalf("%d windows are recorded, want 6", n)
			}
			ranks := over(t, s, 2)
			mustStart(t, ranks, oneWorker)
			parts := s
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := stopping(3)
			mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
			recorded := golden.ReadFile(t, parts.OutputDir, WindowsFile)
			next := bytes.SplitAfter(want, []byte("\n"))[3] // of the step behind the checkpoint, and half of one
			if err := os.WriteFile(filepath.Join(parts.OutputDir, WindowsFile),
				slices.Concat(recorded, next, next[:20]), 0o644); err != nil {
				t.Fatal(err)
			}
			parts.Training.Resume = "auto"
			mustStart(t, parts, oneWorker)
			for what, dir := range map[string]string{"2 ranks": ranks.OutputDir, "resumed": parts.OutputDir} {
				if !bytes.Equal(golden.ReadFile(t, dir, WindowsFile), want) {
					t.Errorf("%s: other windows are recorded", what)
				}
			}

			was, err := replay.ReadManifest(s.OutputDir)
			if err != nil {
				t.Fatal(err)
			}
			other := s
			other.Dataset.Shuffle = !s.Dataset.Shuffle
			if v, err := Verify(t.Context(), other, oneWorker, was, 6); err != nil || v.Equal || v.Batches == nil {
				t.Errorf("another order of the data: %+v, %v", v, err)
			}
			env := oneWorker
			env.Windows = filepath.Join(s.OutputDir, WindowsFile)
			v, err := Verify(t.Context(), other, env, was, 6)
			if err != nil || !v.Equal || v.Steps != 6 || v.Adapter == nil || !*v.Adapter {
				t.Errorf("the recorded windows: %+v, %v", v, err)
			}
		})
	}
}

// TestBrokenWindows: what a file of windows must not hold is an error that names the line.
func TestBrokenWindows(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 2)
	s.Training.RecordWindows = true
	mustStart(t, s, oneWorker)
	was, err := replay.ReadManifest(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	whole := golden.ReadFile(t, s.OutputDir, WindowsFile)
	first, second, _ := bytes.Cut(whole, []byte("\n"))
	edit := func(change func(*recordedWindow)) []byte {
		var line recordedWindow
		if err := json.Unmarshal(first, &line); err != nil {
			t.Fatal(err)
		}
		change(&line)
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		return append(append(text, '\n'), second...)
	}
	for want, text := range map[string][]byte{
		"has none":                   {},
		"line 1: ":                   []byte("{\n"),
		"line 2: ":                   append(append(bytes.Clone(first), '\n'), second[:9]...),
		"has no more than 1 windows": append(bytes.Clone(first), '\n'),
		"micro-batch 1: a token or label is outside the vocabulary":  edit(func(w *recordedWindow) { w.Batches[0].Rows[0][0].IDs[0] = 1 << 20 }),
		"micro-batch 1: a token or label is outside the vocabulary ": edit(func(w *recordedWindow) { w.Batches[0].Rows[0][0].Labels[0] = -5 }),
		"tokens and 0 labels": edit(func(w *recordedWindow) { w.Batches[0].Rows[0][0].Labels = nil }),
		"lists of rows of": edit(func(w *recordedWindow) {
			w.Batches[0].Rows = append(w.Batches[0].Rows,
				w.Batches[0].Rows[0])
		}),
		"a sequence of a row has": edit(func(w *recordedWindow) { w.Batches[0].Rows[0][0].Borders = []int32{1 << 30} }),
		"segments, the largest": edit(func(w *recordedWindow) {
			w.Batches[0].Rows[0] = short(w.Batches[0].Rows[0][0],
				30)
		}),
	} {
		env := oneWorker
		env.Windows = filepath.Join(t.TempDir(), WindowsFile)
		if err := os.WriteFile(env.Windows, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), s, env, was, 2); err == nil ||
			!strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// short are n rows of a row's first token.
func short(row recordedRow, n int) (all []recordedRow) {
	for range n {
		all = append(all, recordedRow{IDs: row.IDs[:1], Labels: row.Labels[:1]})
	}
	return all
}
