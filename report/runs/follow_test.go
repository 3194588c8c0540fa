package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// TestFollowEqualsRead: however a folder comes about, who followed it knows what who reads it at the end does.
func TestFollowEqualsRead(t *testing.T) {
	dir := folder(t, nil)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := Follow(dir)
	if _, changed, err := f.Read(); err == nil || !changed {
		t.Errorf("an empty folder: %v %v", changed, err)
	}
	norms := func(n int) string {
		return fmt.Sprintf(`{"step":%d,"tensors":{"a":%d,"b":null}}`+"\n", n, n)
	}
	said := func(step int) string { return fmt.Sprintf(`{"step":%d,"prompt":"p","text":"t%d"}`+"\n", step, step) }
	lines, gradNorms, samples, stale := "", "", "", (*Run)(nil)
	staleSteps := 0
	for i, do := range []func(){
		func() { write(train.ConfigFile, "seed: 1\n") },
		func() { lines = stepLines(3) },
		func() {}, // nothing new
		func() { lines += stepLine(4, "2")[:20] },
		func() { lines += stepLine(4, "2")[20:] + stepLine(5, "null") },
		func() { gradNorms = norms(1) + norms(2) },
		func() { samples = said(0) + said(2) },
		func() { samples += said(4) },
		func() { samples = said(0) + said(3) },
		func() {
			lines += `{"step":5,"task":"gsm8k","metric":"exact","value":0.5,"stderr":0.1,"questions":2}` + "\n"
		},
		func() { lines += "damaged\n" + `{"step":5,"eval_loss":2}` + "\n" },
		func() { lines += stepLine(4, "1.5") + stepLine(5, "1.4"); gradNorms += norms(3) }, // resumed
		func() {
			write(checkpoint.LockFile, fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getpid(), hostname()))
		},
		func() { lines += stepLine(6, "1") },
		func() { write(train.PlanReportFile, `{"steps":9}`) },
		func() { os.Remove(filepath.Join(dir, checkpoint.LockFile)) }, //nolint:errcheck // the comparison tells
		func() { lines = stepLines(2) },                               // a new run
		func() { lines += endLine },
		func() { os.Mkdir(filepath.Join(dir, checkpoint.Name(10)), 0o755) }, //nolint:errcheck // the comparison tells
	} {
		do()
		if lines != "" {
			write(train.MetricsFile, lines)
		}
		if gradNorms != "" {
			write(train.GradNormsFile, gradNorms)
		}
		if samples != "" {
			write(train.SamplesFile, samples)
		}
		got, _, err := f.Read()
		if err != nil {
			t.Fatal(i, err)
		}
		want, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if whole := strings.HasSuffix(lines, "\n"); whole || i == 0 {
			if !reflect.DeepEqual(sum(got), sum(want)) {
				t.Errorf("after change %d:\n%+v\nwant\n%+v", i, sum(got), sum(want))
			}
		} else if len(got.Steps) != 3 || len(got.Problems) != 1 {
			t.Errorf("a line that is not whole: %d steps, %v", len(got.Steps), got.Problems)
		}
		if _, again, _ := f.Read(); again {
			t.Errorf("after change %d it has changed once more", i)
		}
		if stale != nil && len(stale.Steps) != staleSteps {
			t.Errorf("change %d reached a run that was handed out before", i)
		}
		stale, staleSteps = got, len(got.Steps)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, changed, err := f.Read(); err == nil || !changed {
		t.Errorf("a folder that is gone: %v %v", changed, err)
	}
}

// sum is a run in texts: NaN equals no NaN.
func sum(r *Run) []string {
	return []string{fmt.Sprint(r.Steps), fmt.Sprint(r.Evals), fmt.Sprint(r.End), fmt.Sprint(r.Norms), fmt.Sprint(r.Samples), fmt.Sprint(r.Tasks), fmt.Sprint(r.Status(), r.Total, r.Checkpoints, r.Problems), string(r.Config)}
}

// TestLargeFilesHoldNobodyUp: a Read takes in a part of a file of lines, the next one goes on, and in the end the run
// is what one who reads it at once knows; a line without an end, such as a hole of gigabytes, is passed over in the
// same way.
func TestLargeFilesHoldNobodyUp(t *testing.T) {
	dir := folder(t, nil)
	path := filepath.Join(dir, train.MetricsFile)
	long := strings.Repeat("x", mostRead+5) + "\n"
	text := stepLines(2) + long + strings.Repeat(" ", mostRead) + "\n" + stepLine(3, "1")
	for n := 4; len(text) < 3*mostRead; n++ {
		text += stepLine(n, "2") + strings.Repeat(" ", 100_000) + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f := Follow(dir)
	var got *Run
	reads := 0
	for changed := true; changed; reads++ {
		r, now, err := f.Read()
		if err != nil || reads > 20 {
			t.Fatal(reads, err)
		}
		if changed = now; changed {
			got = r
		}
		if reads == 0 && !strings.Contains(strings.Join(r.Problems, "; "), "is still being read: ") {
			t.Errorf("the first says %v", r.Problems)
		}
	}
	want, err := Read(dir)
	if err != nil || reads < 4 {
		t.Fatal(reads, err)
	}
	if len(got.Steps) != len(want.Steps) || !reflect.DeepEqual(got.Problems, want.Problems) || fmt.Sprint(got.Steps) != fmt.Sprint(want.Steps) {
		t.Errorf("%d steps, %v; want %d, %v", len(got.Steps), got.Problems, len(want.Steps), want.Problems)
	}

	if err := os.Truncate(path, 3<<30); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, changed, err := f.Read(); !changed || err != nil {
		t.Errorf("a hole: %v %v", changed, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v to look at a file of 3 GiB", took)
	}
}
