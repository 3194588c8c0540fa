package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/journal"
)

// TestJournals: what a run wrote of its end is its state, its sentence and what its page and its summary say; a process
// that wrote that it runs and is gone has died.
func TestJournals(t *testing.T) {
	said := func(state, more string) string {
		return fmt.Sprintf(`{"format":1,"state":%q,"host":%q,%s}`, state, hostname(), more)
	}
	log := "===== started 2026-11-27 00:00:00 UTC, x =====\n2026-11-27 00:00:00 a line of the log\n"
	gone := fmt.Sprintf(`"pid":%d`, 1<<30)
	for _, c := range []struct {
		name    string
		files   map[string]string
		status  Status
		state   report.State
		verdict string
		err     string
	}{
		{"failed", map[string]string{train.MetricsFile: stepLines(5), "checkpoint-4/x": "", journal.StatusFile: said("failed", `"exit_code":1,"error":"no room for x: 5 bytes","reached_steps":true`)},
			Failed, report.Fail, "failed, step 5: no room for x: 5 bytes. --resume auto continues from checkpoint-4.", "no room for x: 5 bytes"},
		{"failed before the first step", map[string]string{journal.StatusFile: said("failed", `"exit_code":4,"error":"the run does not fit"`)},
			Failed, report.Fail, "failed, before the first step: the run does not fit. No checkpoint was saved.", "the run does not fit"},
		{"failed after its last line", map[string]string{train.MetricsFile: stepLines(10) + endLine, journal.StatusFile: said("failed", `"exit_code":1,"error":"no room for run_manifest.json","reached_steps":true`)},
			Failed, report.Fail, "failed, step 10: no room for run_manifest.json.", "no room for run_manifest.json"},
		{"interrupted", map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: said("interrupted", `"exit_code":130,"reached_steps":true`)},
			Stopped, report.Note, "stopped by Ctrl-C (SIGINT): step 5.", ""},
		{"missed", map[string]string{train.MetricsFile: stepLines(10) + endLine, journal.StatusFile: said("missed", `"exit_code":1,"error":"expectation missed: the loss","reached_steps":true`)},
			Finished, report.Fail, "finished: 10 steps in 5.0 s; expectation missed: the loss", "expectation missed: the loss"},
		{"finished", map[string]string{train.MetricsFile: stepLines(10) + endLine, journal.StatusFile: said("finished", `"exit_code":0,"reached_steps":true`)},
			Finished, report.Pass, "finished: 10 steps in 5.0 s", ""},
		{"a later start failed", map[string]string{train.MetricsFile: stepLines(10) + endLine, journal.StatusFile: said("failed", `"exit_code":2,"error":"open rows.jsonl: no such file"`)},
			Finished, report.Warn, "finished: 10 steps in 5.0 s; a later start failed: open rows.jsonl: no such file", "open rows.jsonl: no such file"},
		{"died", map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: said("running", gone)},
			Failed, report.Fail, "failed, step 5: the process died: it was killed, or it crashed.", "the process died: it was killed, or it crashed"},
		{"died while it read the data", map[string]string{journal.StatusFile: said("running", gone), checkpoint.LockFile: fmt.Sprintf(`{"pid":%d,"host":%q}`, 1<<30, hostname())},
			Failed, report.Fail, "failed, before the first step: the process died", "the process died: it was killed, or it crashed"},
		{"crashed", map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: said("running", gone), journal.LogFile: log + "panic: index out of range\n\ngoroutine 1 [running]:\n"},
			Failed, report.Fail, "failed, step 5: panic: index out of range.", "panic: index out of range"},
		{"about to give the lock back", map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: said("running", fmt.Sprintf(`"pid":%d`, os.Getpid()))},
			Running, report.Note, "running: step 5", ""},
		{"hostile", map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: said("failed", `"error":"<script>alert(1)</script>\u001b[31m\nsecond line `+strings.Repeat("x", 5000)+`","ranks":[{"rank":1,"error":"<b>\u202e"}]`),
			journal.LogFile: log + "\x1b]0;title\x07<script>\n"}, Failed, report.Fail, `<script>alert(1)</script>\x1b[31m second line xxx`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.files[journal.LogFile] == "" {
				c.files[journal.LogFile] = log
			}
			r := read(t, c.files)
			v := r.Verdict(r.Checks())
			if r.Status() != c.status || v.State != c.state || !strings.Contains(v.Text, c.verdict) {
				t.Errorf("%s, %s, %q; want %s, %s, %q", r.Status(), v.State, v.Text, c.status, c.state, c.verdict)
			}
			if s := r.Summary(); c.name != "hostile" && s.Error != c.err || len(s.Error) > mostSaid+10 {
				t.Errorf("the summary's error is %q, want %q", s.Error, c.err)
			}
			html, markdown := pages(t, r)
			if !strings.Contains(html, "a line of the log") || !strings.Contains(markdown, "a line of the log") {
				t.Error("the page lacks the log")
			}
			if strings.Contains(html, "<script>alert") || strings.Contains(html, "\x1b") || strings.Contains(markdown, "\x1b") || strings.Contains(html, "\u202e") {
				t.Error("the run's words reach the page as they are")
			}
			if len(r.Problems) > 0 {
				t.Errorf("problems %q", r.Problems)
			}
		})
	}
	r := read(t, map[string]string{train.MetricsFile: stepLines(5), journal.StatusFile: `{"format":1,"state":"fine"}`})
	if r.Status() != Stopped || r.Journal != nil || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], "status.json: ") {
		t.Errorf("a status of others: %s, %q", r.Status(), r.Problems)
	}
}

// TestFollowTheJournal: the end of a run is seen when its status says it.
func TestFollowTheJournal(t *testing.T) {
	dir := t.TempDir()
	j := journal.New("x")
	j.Open(dir)
	f := Follow(dir)
	r, _, err := f.Read()
	if err != nil || r.Status() != Running {
		t.Fatalf("%v: %v", r, err)
	}
	j.Line("the newest line")
	if r, changed, _ := f.Read(); !changed || !strings.Contains(r.Log, "the newest line") {
		t.Error("a line of the log is not seen")
	}
	j.End(journal.Failed, 1, fmt.Errorf("no room for %s", filepath.Base("x")))
	if r, changed, err := f.Read(); err != nil || !changed || r.Status() != Failed || r.Error(100) != "no room for x" {
		t.Errorf("%v, %v", changed, err)
	}
}

// TestLeakIsAWarning: validation rows that are trained too are on the page as a warning.
func TestLeakIsAWarning(t *testing.T) {
	r := read(t, map[string]string{train.MetricsFile: stepLines(10) + endLine, train.DataReportFile: `{"source":"x","leaked":2,"val_rows":14}`})
	html, markdown := pages(t, r)
	for text, want := range map[string]string{html: `<ul class="warnings" aria-label="warnings">`, markdown: "⚠️ warning: leak"} {
		if !strings.Contains(text, want) || !strings.Contains(text, "leak: 2 of the 14 validation rows are training rows too") {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
