//go:build unix

package queue

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNamesOfEntries: a name that Add did not make takes nothing away and shows nothing, "." above all.
func TestNamesOfEntries(t *testing.T) {
	q := open(t)
	e := add(t, q, "a", "code=0")
	for _, id := range []string{".", "..", "", "-", "20260101", "./" + e.ID, e.ID + "/.", strings.ToUpper(e.ID) + "x", "20260101-000000.000000-aabbccd", "..\x00"} {
		if err := q.Remove(id); !errors.Is(err, ErrGone) {
			t.Errorf("%q: %v", id, err)
		}
		if q.Log(id, 10) != "" || q.LogSize(id) != 0 {
			t.Errorf("%q has a log", id)
		}
		if err := q.Move(id, 1); !errors.Is(err, ErrGone) {
			t.Errorf("%q is moved: %v", id, err)
		}
	}
	if state(t, q, e.ID).State != Waiting {
		t.Error("the run that waits is gone")
	}
}

// TestStartInTheFuture: an entry whose start lies in the future does not hold the queue up.
func TestStartInTheFuture(t *testing.T) {
	q := open(t)
	e := Entry{ID: "20260101-000000.000000-aabbccdd", Name: "x", OutputDir: "/x", Dir: t.TempDir(), Added: time.Now(), Started: time.Now().Add(time.Hour)}
	for _, pid := range []int{0, os.Getpid()} {
		e.PID = pid
		dir := filepath.Join(q.in(Running), e.ID)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := e.write(dir); err != nil {
			t.Fatal(err)
		}
		if s := state(t, q, e.ID).State; s != Lost {
			t.Errorf("process %d: it is %s, want lost", pid, s)
		}
	}
	path, _ := program(t)
	next := add(t, q, "next", "code=0")
	if err := q.Work(t.Context(), path, Machine{}); err != nil {
		t.Fatal(err)
	}
	if s := state(t, q, next.ID).State; s != Ended {
		t.Errorf("the next run is %s", s)
	}
}

// TestOneFolderOneRun: of many that add a run into one folder at once, by several servers and under a link's name too,
// one does.
func TestOneFolderOneRun(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "queue")
	runs := filepath.Join(root, "runs")
	if err := os.Mkdir(runs, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(runs, link); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	added := 0
	for i := range 8 {
		q, err := Open(dir) // as another process has it
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			out := filepath.Join([]string{runs, link}[i%2], "out")
			if _, err := q.Add(Entry{Name: "x", OutputDir: out, Dir: root}, []byte("code=0")); err == nil {
				mu.Lock()
				added++
				mu.Unlock()
			} else if !strings.Contains(err.Error(), "in the queue already") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if added != 1 {
		t.Errorf("%d runs go into one folder", added)
	}
}

// TestEntryHasRoom: the bytes of an entry's file at its start hold it at its end, however long its texts are.
func TestEntryHasRoom(t *testing.T) {
	for n := range 1500 {
		e := Entry{ID: "20260101-000000.000000-aabbccdd", Name: strings.Repeat("x", n), Added: time.Now(), Started: time.Now()}
		before, err := e.text()
		if err != nil {
			t.Fatal(err)
		}
		code := -2147483648
		e.PID, e.ExitCode, e.Ended = 1<<30, &code, time.Now()
		after, err := json.MarshalIndent(e, "", "  ")
		if err != nil || len(after) > len(before) || len(before) > len(after)+entryRoom+entryGrowth {
			t.Fatalf("%d characters: %d bytes for %d", n, len(before), len(after))
		}
	}
}
