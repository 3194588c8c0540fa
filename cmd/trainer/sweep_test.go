package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// sweepSmall is a sweep of moments.
var sweepSmall = []string{"sweep", "cpu_stories_quick", "--set", "training.max_steps=2", "--set",
	"training.batch_size=2", "--set", "expect.loss_decrease=0",
	"--set", "dataset.val_split=0.1", "--set", "training.eval_steps=2", "--set", "dataset.max_length=128", "--out",
	"sw"}

func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := append(append([]string{}, sweepSmall...), "--set", "training.learning_rate=1e-4,1e-2", "--seeds", "2",
		"--parallel", "2", "--json")
	run := func() (s sweepSummary, errOut string) {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", args...)
		if err := json.Unmarshal([]byte(out), &s); code != 0 || err != nil {
			t.Fatalf("exit code %d: %v\n%s", code, err, errOut)
		}
		return s, errOut
	}
	first, _ := run()
	if first.By != "eval_loss" || first.Failed != 0 || len(first.Runs) != 4 || len(first.Groups) != 2 ||
		*first.Groups[0].Mean >= *first.Groups[1].Mean || *first.Groups[0].Spread <= 0 {
		t.Errorf("%+v", first)
	}
	if got := first.Groups[0].Values; !reflect.DeepEqual(got, []string{"training.learning_rate=1e-2"}) {
		t.Errorf("the best is %v", got)
	}
	// Again: what is there is not repeated, what is gone is.
	if err := os.RemoveAll(filepath.Join(dir, "sw", "learning_rate=1e-4_seed=43")); err != nil {
		t.Fatal(err)
	}
	second, errOut := run()
	if strings.Count(errOut, "done before") != 3 || strings.Count(errOut, "finished, ") != 1 {
		t.Errorf("said\n%s", errOut)
	}
	for i, r := range second.Runs {
		if *r.EvalLoss != *first.Runs[i].EvalLoss || r.Name != first.Runs[i].Name {
			t.Errorf("%s: %v, then %v", r.Name, *first.Runs[i].EvalLoss, *r.EvalLoss)
		}
	}
	if code, out, errOut := trainer(t, dir, nil, "", "report", "sw", "--json"); code != 0 ||
		strings.Count(out, `"status": "finished"`) != 4 {
		t.Errorf("report: exit code %d\n%s%s", code, out, errOut)
	}
	// Another configuration in the same folder, and a run that fails.
	other := append(append([]string{}, args...), "--set", "lora.r=2")
	if code, _, errOut := trainer(t, dir, nil, "", other...); code != 2 ||
		!strings.Contains(errOut,
			"holds a run of another configuration; name another folder with --out, or remove it") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	failing := append(append([]string{}, sweepSmall[:len(sweepSmall)-4]...), "--set", "dataset.max_length=128,16",
		"--out", "failing")
	code, out, errOut := trainer(t, dir, nil, "", failing...)
	if code != 1 || !strings.Contains(out, "  1  ") || !strings.Contains(out, "failed  max_length=16: exit code ") ||
		!strings.Contains(errOut, "trainer: 1 of 2 runs failed") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}

func TestSweepBroken(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"--seeds 2", "name a configuration: --config FILE"},
		{"cpu_stories_quick", "sweep: nothing to vary: give --set KEY=A,B with several values, or --seeds"},
		{"cpu_stories_quick --seeds 0", "sweep: --seeds 0: each combination is run at least once"},
		{"cpu_stories_quick --seeds 2 --parallel 0", "sweep: --parallel 0: at least one run at a time"},
		{"cpu_stories_quick --seeds 2 --sample -1", "sweep: --sample -1: must be 0, which is all, or more"},
		{"cpu_stories_quick --set lora.r", "sweep: --set lora.r: write KEY=VALUE, or KEY=A,B to try several"},
		{"cpu_stories_quick --set lora.r=4,,8", "sweep: --set lora.r=4,,8: a value is missing between the commas"},
		{"cpu_stories_quick --set lora.r=4,8 --set lora.r=16",
			"sweep: --set lora.r is given twice; list the values with commas"},
		{"cpu_stories_quick --set lora.r=4,4", "sweep: two runs are named r=4: a value is listed twice"},
		{"cpu_stories_quick --set output_dir=a,b",
			"sweep: --set output_dir: each run has a folder of its own; --out names the folder of them all"},
		{"cpu_stories_quick --set lora.r=8,x", "sweep: lora.r=x: --set lora.r=x: "},
		{"cpu_stories_quick --set lora.alpa=8,16", "--set lora.alpa=8: unknown key; the nearest is lora.alpha"},
		{"cpu_stories_quick --seeds 1001", "sweep: 1 combination with 1001 seeds each are more than 1000 runs; " +
			"list fewer values or seeds, or give --sample"},
		{"cpu_stories_quick --set lora.r=4,8 --seeds 9223372036854775807", "sweep: 2 combinations with " +
			"9223372036854775807 seeds each are more than 1000 runs; list fewer values or seeds, or give --sample"},
		{"cpu_stories_quick --seeds 2 --set training.resume=auto",
			"sweep: training.resume: runs of a sweep resume by themselves; leave it out"},
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"sweep"}, strings.Fields(c.args)...)...)
		if code != 2 || out != "" || !strings.HasPrefix(errOut, "trainer: "+c.want) {
			t.Errorf("%s: exit code %d, want 2 and %q\n%s%s", c.args, code, c.want, out, errOut)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("something was written: %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(dir, sweepFile), []byte(`{"runs": [{"name": "../../etc"}]}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "report", "."); code != 2 ||
		!strings.Contains(errOut, `sweep.json names "../../etc", which is no folder beside it`) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// The grid is in a stable order, and so is a sample of it.
func TestSweepGrid(t *testing.T) {
	fixed, grid, err := dimensions([]string{"a.x=1,2", "b=[p,q]", "c=[p,q],all-linear", `d="u,v"`})
	if err != nil || !reflect.DeepEqual(fixed, []string{"b=[p,q]", `d="u,v"`}) {
		t.Errorf("fixed %v: %v", fixed, err)
	}
	o := &sweepOptions{seeds: 1}
	all, err := o.combinations(grid)
	if want := [][]string{{"a.x=1", "c=[p,q]"}, {"a.x=1", "c=all-linear"}, {"a.x=2", "c=[p,q]"},
		{"a.x=2", "c=all-linear"}}; err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%v: %v", all, err)
	}
	o.sample, o.pick = 2, 7
	some, err := o.combinations(grid)
	again, _ := o.combinations(grid)
	if err != nil || len(some) != 2 || !reflect.DeepEqual(some, again) {
		t.Errorf("%v and %v: %v", some, again, err)
	}
}

// Names of folders are such as every system takes.
func TestSweepNames(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   string
	}{
		{[]string{"training.learning_rate=1e-4", "lora.r=8"}, "learning_rate=1e-4_r=8"},
		{[]string{"base_model=C:\\models\\a"}, "base_model=C--models-a-"},
		{[]string{"dataset.path=../x?<>|*\""}, "path=..-x-------"},
		{[]string{"a=x."}, "a=x-"},
		{[]string{"a=" + strings.Repeat("é", 200)}, "a=" + strings.Repeat("-", 78) + "-"},
	} {
		got := runName(c.values, 0, false)
		if !strings.HasPrefix(got, c.want) || len(got) > 90 || strings.ContainsAny(got, `<>:"/\|?*`) ||
			strings.HasSuffix(got, ".") {
			t.Errorf("%v: %q, want %q and no more than every system takes", c.values, got, c.want)
		}
	}
	if runName([]string{"a=x/y"}, 0, false) == runName([]string{"a=x:y"}, 0, false) {
		t.Error("two values have one name")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
