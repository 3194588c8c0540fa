package runs

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// folder makes a run's folder from names and contents.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t testing.TB, files map[string]string) *Run {
	t.Helper()
	r, err := Read(folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pages are both forms of a page of runs.
func pages(t testing.TB, all ...*Run) (html, markdown string) {
	t.Helper()
	var h, m bytes.Buffer
	p := Page(all, "")
	if err := p.HTML(&h); err != nil {
		t.Fatal(err)
	}
	if err := p.Markdown(&m); err != nil {
		t.Fatal(err)
	}
	return h.String(), m.String()
}

// stepLine is a line about a step as train writes it.
func stepLine(step int, loss string) string {
	return fmt.Sprintf(`{"step":%d,"epoch":0.1,"loss":%s,"ppl":1,"grad_norm":2.5,"grad_norm_clipped":1,"learning_rate":0.001,"num_input_tokens_seen":%d,"tokens/train_per_sec_per_gpu":1000,"tokens/total":%d,"tokens/trainable":5,"memory/max_allocated (GiB)":0.5}`+"\n",
		step, loss, 500*step, 500*step)
}

func stepLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(stepLine(i+1, fmt.Sprint(2+3/float64(i+1))))
	}
	return b.String()
}

const endLine = `{"step":10,"epoch":1,"train_loss":2.5,"train_runtime":5,"train_samples_per_second":1,"train_steps_per_second":2}` + "\n"

// TestKeysAreTrains: every key that is read is one that train writes.
func TestKeysAreTrains(t *testing.T) {
	var written []string
	for _, v := range []any{train.StepMetrics{}, train.EvalMetrics{}, train.EndMetrics{}, train.LossScaling{}, train.TaskMetrics{}} {
		written = append(written, keys(reflect.TypeOf(v))...)
	}
	for _, key := range keys(reflect.TypeFor[metricsLine]()) {
		if !slices.Contains(written, key) {
			t.Errorf("metrics.jsonl has no %q", key)
		}
	}
}

func keys(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		all = append(all, strings.Split(t.Field(i).Tag.Get("json"), ",")[0])
	}
	return all
}

func TestFolders(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name    string
		files   map[string]string
		status  Status
		verdict string
		steps   int
		problem string // "" = none
	}{
		{"no line", map[string]string{train.MetricsFile: ""}, Stopped, "the first step is not logged yet", 0, ""},
		{"one line", map[string]string{train.MetricsFile: stepLine(1, "3")}, Stopped, "stopped, or ended by an error: step 1. No checkpoint", 1, ""},
		{"finished", map[string]string{train.MetricsFile: stepLines(10) + endLine}, Finished, "finished: 10 steps in 5.0 s", 10, ""},
		{"stopped with a checkpoint", map[string]string{train.MetricsFile: stepLines(10), train.PlanReportFile: `{"steps":40}`,
			"checkpoint-8/x": "", "checkpoint-10/x": "", "checkpoint-010/x": ""}, Stopped, "step 10 of 40. --resume auto continues from checkpoint-10", 10, ""},
		{"losses that are no numbers", map[string]string{train.MetricsFile: stepLine(1, "3") + stepLine(2, "null")}, Failed, "failed, step 2: the loss is not finite. No checkpoint", 2, ""},
		{"cut off", map[string]string{train.MetricsFile: stepLines(3) + `{"step":4,"lo`}, Stopped, "step 3", 3, "its last line, 4, is not whole"},
		{"damaged lines", map[string]string{train.MetricsFile: stepLine(1, "3") + "{\x00\n[]\n" + stepLine(2, "2")}, Stopped, "step 2", 2, "2 damaged lines are left out, the first is line 2"},
		{"a line without end", map[string]string{train.MetricsFile: stepLine(1, "3") + strings.Repeat("x", mostLine+10) + "\n" + stepLine(2, "2")}, Stopped, "step 2", 2, "1 damaged lines"},
		{"resumed twice", map[string]string{train.MetricsFile: stepLines(5) + stepLine(4, "2") + stepLine(5, "2") + stepLine(3, "1") + stepLine(4, "1")}, Stopped, "step 4", 4, ""},
		{"a process that is gone", map[string]string{train.MetricsFile: stepLines(5), checkpoint.LockFile: fmt.Sprintf(`{"pid":%d,"host":%q}`, 1<<30, hostname())},
			Failed, "failed, step 5: the process died: it was killed, or it crashed. No checkpoint", 5, ""},
		{"a process that runs", map[string]string{train.MetricsFile: stepLines(20), train.PlanReportFile: `{"steps":40}`,
			checkpoint.LockFile: fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getpid(), hostname())}, Running, "running: step 20 of 40, about 10 s left, loss 2.159, falling", 20, ""},
		{"a damaged manifest", map[string]string{replay.ManifestFile: "{", train.MetricsFile: ""}, Stopped, "", 0, "run_manifest.json: unexpected end"},
		{"wrong types", map[string]string{train.PlanReportFile: `{"steps":"many"}`, train.DataReportFile: `[1]`, train.MetricsFile: `{"step":"one","loss":[1]}` + "\n" + `{"step":-5,"loss":1}` + "\n"},
			Stopped, "", 0, "plan_report.json"},
		{"only a configuration", map[string]string{train.ConfigFile: "base_model: x\n"}, Stopped, "", 0, ""},
		{"markup", map[string]string{train.MetricsFile: stepLine(1, "3"), train.DataReportFile: `{"source":"<script>alert(1)</script>","format":"<b>","parts":[null]}`,
			replay.ManifestFile: `{"program":"<img src=x>","device":"` + long + `","software":{"kernels":"<i>"}}`}, Stopped, "step 1", 1, ""},
		{"huge numbers", map[string]string{train.MetricsFile: stepLine(9e15, "1e308") + `{"step":1,"eval_loss":1e308}` + "\n", train.PlanReportFile: `{"steps":-5,"total_bytes":-1,"limit_bytes":9223372036854775807,"categories":[{"name":"a","bytes":9223372036854775807},{"name":"b","bytes":9223372036854775807}]}`},
			Failed, "step", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := read(t, c.files)
			if got := r.Status(); got != c.status {
				t.Errorf("status %s, want %s", got, c.status)
			}
			if v := r.Verdict(r.Checks()); !strings.Contains(v.Text, c.verdict) {
				t.Errorf("verdict %q, want %q in it", v.Text, c.verdict)
			}
			if len(r.Steps) != c.steps {
				t.Errorf("%d lines, want %d", len(r.Steps), c.steps)
			}
			if got := strings.Join(r.Problems, "\n"); c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
				t.Errorf("problems %q, want %q", got, c.problem)
			}
			html, _ := pages(t, r)
			if strings.Count(html, "<script") > 8 || strings.Contains(html, "<img") || strings.Contains(html, "<i>") {
				t.Error("markup of the run is on the page")
			}
			if c.problem != "" && !strings.Contains(html, "What could not be read") {
				t.Error("the page does not tell of the problem")
			}
			pages(t, r, r)
		})
	}
}

func hostname() string { h, _ := os.Hostname(); return h }

// What is no run's folder is an error that says what one is.
func TestNoRun(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	if _, err := Read(empty); err == nil || !strings.Contains(err.Error(), "holds none of the files that a run writes") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(empty, "nothing")} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "output_dir") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLongRun(t *testing.T) {
	r := read(t, map[string]string{train.MetricsFile: stepLines(100_000)})
	if len(r.Steps) != 100_000 {
		t.Fatalf("%d lines", len(r.Steps))
	}
	html, _ := pages(t, r)
	if len(html) > 1_000_000 {
		t.Errorf("100,000 lines take %d bytes", len(html))
	}
}

// Expectations are judged by the losses of every step, as the run itself does.
func TestChecks(t *testing.T) {
	state := `{"global_step":10,"max_steps":10,"data_cursor":{"losses":[5,5,5,5,5,5,5,5,5,2.5]}}`
	files := map[string]string{train.MetricsFile: stepLines(10) + endLine, "checkpoint-10/" + checkpoint.StateFile: state}
	r := read(t, files)
	r.Settings = []Setting{{Key: "expect.loss_decrease", Value: "0.6"}, {Key: "expect.max_vram", Value: "1GiB"}}
	checks := r.Checks()
	if len(checks) != 2 || checks[0].State != report.Fail || checks[0].Detail != "50.0%, 5.0000 to 2.5000, wanted 60.0%" || checks[1].State != report.Pass {
		t.Errorf("%+v", checks)
	}
	if v := r.Verdict(checks); v.State != report.Fail || !strings.Contains(v.Text, "missed: expect.loss_decrease") {
		t.Errorf("%+v", v)
	}
	delete(files, "checkpoint-10/"+checkpoint.StateFile)
	r = read(t, files)
	r.Settings = []Setting{{Key: "expect.loss_decrease", Value: "0.6"}}
	if checks = r.Checks(); len(checks) != 1 || checks[0].State != report.Skip {
		t.Errorf("without the losses of every step: %+v", checks)
	}
}

func TestCompare(t *testing.T) {
	var all []*Run
	for i, c := range []struct {
		seed, rate string
		eval       float64
		scale      float64
	}{{"1", "0.1", 3, 1}, {"2", "0.1", 2.5, 2}, {"1", "0.2", 2, 3}} {
		var b strings.Builder
		for step := 1; step <= 50; step++ {
			b.WriteString(stepLine(step, fmt.Sprint(c.scale)))
		}
		r := read(t, map[string]string{train.MetricsFile: b.String() + fmt.Sprintf(`{"step":50,"eval_loss":%v}`, c.eval) + "\n"})
		r.Name = fmt.Sprint("run", i)
		r.Settings = []Setting{{Key: "seed", Value: c.seed}, {Key: "training.learning_rate", Value: c.rate}, {Key: "adapter", Value: "lora"}}
		all = append(all, r)
	}
	groups := bySeed(all)
	if len(groups) != 2 || groups[0].name != "run0, 2 seeds" || groups[1].name != "run2" {
		t.Fatalf("%+v", groups)
	}
	p := overlay(groups, "Loss", "step", func(s Step) float64 { return float64(s.Step) })
	if s := p.Series[0]; len(p.Series) != 2 || len(s.X) != 50 || math.Abs(s.Y[7]-1.5) > 1e-9 || math.Abs(s.Lower[7]-1) > 1e-9 || math.Abs(s.Upper[7]-2) > 1e-9 {
		t.Errorf("%+v", p.Series[0])
	}
	if g := bySeed([]*Run{all[0], all[1], all[0]}); len(g) != 1 || g[0].name != "run0, 3 runs" {
		t.Errorf("two of three have one seed: %+v", g)
	}
	_, text := pages(t, all...)
	for _, want := range []string{"Best by evaluation loss: run2, 2 at step 50.", "**run2 \\(best\\)**", "| training.learning_rate | 0.1 | 0.1 | 0.2 |", "| seed | 1 | 2 | 1 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "| adapter |") {
		t.Error("a key that does not differ is listed")
	}
}

// TestReferenceCurve: a run's page shows its curve beside the reference's band, and judges it as the run did.
func TestReferenceCurve(t *testing.T) {
	const head, tail = `{"reference":"ref.json","base_model":"base<b>","made_by":{"torch":"2.8.0","peft":"0.18.1"},"seeds":6,"window":4,"tolerance":{"k":5,"floor":0.02},"steps":3`,
		`"run":[3,2.9,2.8],"mean":[3,2.9,2.8],"low":[2.9,2.8,2.7],"high":[3.1,3,2.9]}`
	asks := []Setting{{Key: "expect.reference", Value: "ref.json"}}
	check := func(curve string, settings []Setting) (*Run, report.Check) {
		files := map[string]string{train.MetricsFile: stepLines(10) + endLine}
		if curve != "" {
			files[train.ReferenceCurveFile] = curve
		}
		r := read(t, files)
		r.Settings = settings
		if got := r.Checks(); len(got) == 1 {
			return r, got[0]
		}
		return r, report.Check{}
	}
	r, got := check(head+`,"steps_outside":0,`+tail, asks)
	if got.State != report.Pass || got.Detail != "3 of 3 steps inside, wanted within 5 spreads + 0.02 of ref.json" {
		t.Errorf("%+v", got)
	}
	html, text := pages(t, r)
	if strings.Contains(html, "base<b>") || !strings.Contains(text, "reference, 6 seeds") || !strings.Contains(text, "training, mean of 4 steps") ||
		!strings.Contains(text, "peft 0.18.1, torch 2.8.0") {
		t.Error(text)
	}
	if _, got = check(head+`,"steps_outside":1,"first_outside":{"step":2,"run":null,"mean":2.9,"allowed":0.1},"worst":{"step":2,"run":null,"mean":2.9,"allowed":0.1},`+tail, asks); got.State != report.Fail ||
		!strings.Contains(got.Detail, "1 of 3 steps are outside the band, first step 2") {
		t.Errorf("%+v", got)
	}
	if v := r.Verdict(report.Checks{got}); v.State != report.Fail {
		t.Errorf("%+v", v)
	}
	if _, got = check(head+`,"not_comparable":["the base is another"],"steps_outside":0,`+tail, asks); got.State != report.Fail || !strings.Contains(got.Detail, "the base is another") {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		curve    string
		settings []Setting
		want     string
	}{{"", asks, "missing"}, {`{"reference":"ref.json"}`, asks, "missing or can't be read"}, {head + `,"steps_outside":0,` + tail, []Setting{{Key: "expect.reference", Value: "other"}}, "asks for other"}} {
		if _, got = check(c.curve, c.settings); got.State != report.Skip || !strings.Contains(got.Detail, c.want) {
			t.Errorf("%s: %+v", c.curve, got)
		}
	}
	if _, got = check("", nil); got != (report.Check{}) {
		t.Errorf("%+v", got)
	}
}

func TestNames(t *testing.T) {
	all := []*Run{{Dir: "/a/x/run"}, {Dir: "/a/y/run"}}
	SetNames(all)
	if all[0].Name != "x/run" || all[1].Name != "y/run" {
		t.Errorf("%q %q", all[0].Name, all[1].Name)
	}
	long := strings.Repeat("é", 200)
	all = []*Run{{Dir: "/a/" + long}, {Dir: "/b/" + long}, {Dir: "/b/" + long[:398] + "f"}}
	SetNames(all)
	if all[0].Name == all[1].Name || all[1].Name == all[2].Name || len([]rune(all[0].Name)) > mostName+4 {
		t.Errorf("%q %q %q", all[0].Name, all[1].Name, all[2].Name)
	}
	all = []*Run{{Dir: "/a/run"}, {Dir: "/a/run"}}
	SetNames(all)
	if all[0].Name == all[1].Name {
		t.Errorf("both are %q", all[0].Name)
	}
}

func TestTensorNorms(t *testing.T) {
	r := read(t, map[string]string{train.GradNormsFile: `{"step":1,"grad_norm":3,"tensors":{"b":2,"a":1}}` + "\n" + `{"step":2,"grad_norm":3,"tensors":{"b":4,"a":null}}` + "\n" + `{"step":3}` + "\n"})
	if len(r.Norms) != 2 || r.Norms[0].Name != "b" || r.Norms[0].Highest != 4 || r.Norms[0].HighestAt != 2 || r.Norms[0].Mean != 3 || r.Norms[1].unknown != 1 || len(r.Problems) != 1 {
		t.Errorf("%+v %v", r.Norms, r.Problems)
	}
	if _, text := pages(t, r); !strings.Contains(text, "| b | 2 | 3 | 4 | 4 | 2 | 2 | 0 |") {
		t.Error(text)
	}
}

// TestSamplesAndTasks: tables by step, of the first and the newest; texts are escaped; what a resumed run says again
// counts anew.
func TestSamplesAndTasks(t *testing.T) {
	task := func(step int, name, value string) string {
		return fmt.Sprintf(`{"step":%d,"epoch":0,"task":%q,"metric":"exact","value":%s,"stderr":0.0625,"questions":8}`+"\n", step, name, value)
	}
	said := func(step int, text string) string {
		return fmt.Sprintf(`{"step":%d,"prompt":"a <b>prompt</b>","text":%q}`+"\n", step, text)
	}
	r := read(t, map[string]string{
		train.MetricsFile: task(0, "g", "0.25") + task(0, "x|y", "0") + stepLine(1, "2") + stepLine(2, "2") + task(2, "g", "0.5") + stepLine(2, "1.9") + task(2, "g", "0.75"),
		train.SamplesFile: said(0, "<script>alert(1)</script>\nsecond \u202e line") + said(4, "gone") + said(2, "later") + "{}\n" + `{"step":-1,"prompt":"x"}` + "\n",
	})
	if len(r.Samples) != 2 || len(r.Tasks) != 3 || len(r.Problems) != 1 {
		t.Fatalf("%+v\n%+v\n%q", r.Samples, r.Tasks, r.Problems)
	}
	html, text := pages(t, r)
	for _, want := range []string{"| 0 | 0.25 ± 0.0625 | 0 ± 0.0625 |", "| 2 | 0.75 ± 0.0625 | – |", "| later |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(html, "<script>alert") || strings.Contains(html, "<b>prompt") || strings.Contains(html, "\u202e") || !strings.Contains(html, "&lt;script&gt;alert(1)&lt;/script&gt; second \\u202e line") {
		t.Error(html)
	}
	var many strings.Builder
	for step := range 5000 {
		for i := range 3 {
			fmt.Fprintf(&many, `{"step":%d,"prompt":"p%d","text":%q}`+"\n", step, i, strings.Repeat("x", 3000))
		}
	}
	r = read(t, map[string]string{train.SamplesFile: many.String()})
	rows := r.samples()[0].(report.Table).Rows
	if n := len(r.Samples); n > 3+2*mostSamples || len(rows) > mostSampleRows || rows[0][0] != "0" || rows[2][1] != "p2" || rows[3][1] != "p0" || rows[len(rows)-1][0] != "4,999" || len(rows[3][2]) > mostSampleText+3 {
		t.Errorf("%d kept, %d rows, the fourth is %.20q", n, len(rows), rows[3])
	}
}

// FuzzFolder reads a folder whose files say anything.
func FuzzFolder(f *testing.F) {
	f.Add([]byte(stepLines(3)+endLine), []byte(`{"program":"x","software":{"kernels":"avx2"},"steps":3}`), []byte(`{"categories":[{"name":"a","bytes":5}],"limit_bytes":3,"token_budgets":[]}`), []byte(`{"rows":3,"parts":[{"rows":1},{"rows":2}],"val":{}}`))
	f.Add([]byte(`{"step":1,"loss":1e999}`), []byte(`{`), []byte(`{"end_to_end":true}`), []byte(`{"batches":{"count":0},"dropped":[{}],"conversations":{"count":5}}`))
	f.Add([]byte("{\"step\":5,\"eval_loss\":null}\n{\"step\":2,\"train_loss\":1}"), []byte(`null`), []byte(`null`), []byte(`null`))
	f.Add([]byte(""), []byte(""), []byte(""), []byte(`{"reference":"x","seeds":-1,"steps":1,"steps_outside":1,"first_outside":{"run":null},"worst":{},"run":[null],"mean":[1],"low":[1],"high":[2]}`))
	f.Fuzz(func(t *testing.T, metrics, manifest, plan, data []byte) {
		r := read(t, map[string]string{train.MetricsFile: string(metrics), replay.ManifestFile: string(manifest), train.PlanReportFile: string(plan), train.DataReportFile: string(data),
			"checkpoint-2/" + checkpoint.StateFile: string(manifest), train.GradNormsFile: string(metrics), train.SamplesFile: string(metrics), checkpoint.LockFile: string(plan),
			train.ReferenceCurveFile: string(data)})
		html, _ := pages(t, r)
		if len(html) > 4<<20 {
			t.Errorf("%d bytes", len(html))
		}
		pages(t, r, r)
		r.Summary()
	})
}

// TestDiffering: long names lose the words that all of them share, and stay different.
func TestDiffering(t *testing.T) {
	for _, c := range []struct{ given, want []string }{
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a-name-that-is-long-lr1-x", "a-name-that-is-long-lr2-x"}, []string{"…long-lr1-…", "…long-lr2-…"}},
		{[]string{"a-name-that-is-long", "a-name-that-is-long-too"}, []string{"…is-long", "…is-long-too"}},
		{[]string{"the/same/name/twice/as/it/is", "the/same/name/twice/as/it/is"}, []string{"…it/is", "…it/is"}},
		{[]string{"one name alone that is long"}, []string{"one name alone that is long"}},
		{[]string{"", "a name that is long enough"}, []string{"", "a name that is long enough"}},
		{[]string{"0.00001000000000000000001", "0.00001000000000000000002"}, []string{"0.00001000000000000000001", "0.00001000000000000000002"}},
		{[]string{"bad \xff name of twenty bytes", "bad \xff name of twenty bites"}, []string{"…bytes", "…bites"}},
	} {
		if got := differing(c.given); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.given, got, c.want)
		}
	}
}
