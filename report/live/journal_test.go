package live

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// TestFailedRunsAreSeen: the list says of a run that failed what with, the page has its log, the queue's entry says it
// too, and a folder that holds nothing else may be trained into.
func TestFailedRunsAreSeen(t *testing.T) {
	s, root := fixture(t, nil)
	dir := filepath.Join(root, "broken")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	j := journal.New("x")
	j.Open(dir)
	j.Line("the last words")
	j.End(journal.Failed, 1, errors.New("no room for \x1b[31mx"))
	write(t, root, "noise", journal.StatusFile, `{"state":"up"}`) // another program's
	s.hub.refresh(nil)
	rows, _ := s.hub.list()
	if len(rows) != 1 || rows[0].Status != runs.Failed || rows[0].Error != `no room for \x1b[31mx` {
		t.Fatalf("rows %+v", rows)
	}
	p, ok := s.hub.view([]string{rows[0].ID})
	text, _ := json.Marshal(p)
	if !ok || p.Verdict.State != report.Fail || !strings.Contains(string(text), "the last words") {
		t.Errorf("the page is %s", text)
	}
	if why := s.refusedDir(dir); why != "" {
		t.Errorf("the corrected run is refused: %s", why)
	}
	write(t, root, "broken", train.MetricsFile, steps(1, 3))
	if why := s.refusedDir(dir); !strings.Contains(why, "holds a run already") {
		t.Errorf("a folder with a run: %q", why)
	}

	one, two, minus, zero := 1, 2, -1, 0
	for _, c := range []struct {
		name string
		e    queue.Entry
		want string
		bad  bool
	}{
		{"failed", queue.Entry{State: queue.Ended, ExitCode: &one, PID: os.Getpid(), OutputDir: dir}, `failed after 0 ms, exit code 1: no room for \x1b[31mx`, true},
		{"lost", queue.Entry{State: queue.Lost, PID: os.Getpid(), OutputDir: dir}, `exit code 1: no room for \x1b[31mx`, true},
		{"lost by another", queue.Entry{State: queue.Lost, PID: 1 << 30, OutputDir: dir}, `ended; nobody saw how`, true},
		{"refused", queue.Entry{ID: "20260101-000000.000000-aabbccdd", State: queue.Ended, ExitCode: &two, OutputDir: filepath.Join(root, "none")}, `refused: its configuration is not right: lora.r: must be above 0`, true},
		{"killed", queue.Entry{State: queue.Ended, ExitCode: &minus, OutputDir: filepath.Join(root, "none")}, `did not start, or was ended by a signal`, true},
		{"done", queue.Entry{State: queue.Ended, ExitCode: &zero, PID: os.Getpid(), OutputDir: dir}, `done in 0 ms`, false},
		{"waiting", queue.Entry{State: queue.Waiting}, "queued", false},
	} {
		c.e.Started, c.e.Ended = time.Now().UTC(), time.Now().UTC()
		if c.e.ID != "" {
			log := filepath.Join(s.o.Queue.Dir(), "started", c.e.ID)
			if err := errors.Join(os.MkdirAll(log, 0o755), os.WriteFile(filepath.Join(log, "log.txt"), []byte("note: x\ntrainer: lora.r: must be above 0\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		text, bad := s.hub.entryText(c.e, mostWhyLine)
		if !strings.Contains(text, c.want) || bad != c.bad {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, text, bad, c.want, c.bad)
		}
	}
}
