//go:build unix

package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train/checkpoint"
)

// program is a shell script in the place of trainer: it notes when it begins and ends, and does what its configuration
// says in between.
func program(t *testing.T) (path, notes string) {
	t.Helper()
	dir := t.TempDir()
	path, notes = filepath.Join(dir, "program"), filepath.Join(dir, "notes")
	text := "#!/bin/sh\necho begin \"$1\" \"$4\" \"$5\" >> " + notes + "\necho said\n. \"$3\"\necho end >> " + notes + "\nexit $code\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, notes
}

func add(t *testing.T, q *Queue, name, config string, args ...string) Entry {
	t.Helper()
	dir := t.TempDir()
	e, err := q.Add(Entry{Name: name, OutputDir: filepath.Join(dir, "out"), Dir: dir, Args: args}, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func state(t *testing.T, q *Queue, id string) Entry {
	t.Helper()
	all, err := q.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.ID == id {
			return e
		}
	}
	return Entry{}
}

func open(t *testing.T) *Queue {
	t.Helper()
	q, err := Open(filepath.Join(t.TempDir(), "queue"))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("never: " + what)
}

// TestOneAtATime: runs begin in their order, the next when the one before has ended, however many work the queue off;
// how each ended and what it said is kept.
func TestOneAtATime(t *testing.T) {
	q := open(t)
	path, notes := program(t)
	first, second := add(t, q, "first", "sleep 0.2; code=0", "--resume", "auto"), add(t, q, "second", "code=4")
	taken, third := add(t, q, "taken", "code=0"), add(t, q, "third", "code=0")
	if err := q.Remove(taken.ID); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := q.Work(t.Context(), path, Machine{}); err != nil {
				t.Error(err)
			}
		}()
	}
	until(t, "somebody works", q.Working)
	wg.Wait()
	if q.Working() {
		t.Error("somebody works though nothing waits")
	}
	text, err := os.ReadFile(notes)
	if want := "begin train --resume auto\nend\nbegin train  \nend\nbegin train  \nend\n"; err != nil || string(text) != want {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
	for id, code := range map[string]int{first.ID: 0, second.ID: 4, third.ID: 0} {
		if e := state(t, q, id); e.State != Ended || *e.ExitCode != code || e.Ended.Before(e.Started) {
			t.Errorf("%+v, want exit code %d", e, code)
		}
		if log := q.Log(id, 100); log != "said\n" || q.LogSize(id) != 5 {
			t.Errorf("log %q", log)
		}
	}
	if state(t, q, taken.ID).ID != "" || !errors.Is(q.Remove(taken.ID), ErrGone) || !errors.Is(q.Remove(first.ID), ErrGone) {
		t.Error("what was taken back is there, or what was started is taken back")
	}
}

// TestMove: runs begin in the order that they were given; what came since is behind, and nothing moves beyond the ends.
func TestMove(t *testing.T) {
	q := open(t)
	path, _ := program(t)
	var ids []string
	for _, name := range []string{"a", "b", "c", "d"} {
		ids = append(ids, add(t, q, name, "code=0").ID)
	}
	order := func() string {
		all, err := q.List()
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, e := range all {
			names += e.Name
		}
		return names
	}
	for _, c := range []struct {
		id   string
		by   int
		want string
	}{{ids[2], -1, "acbd"}, {ids[2], -1, "cabd"}, {ids[2], -1, "cabd"}, {ids[0], 1, "cbad"}, {ids[3], 1, "cbad"}, {ids[1], 1 << 40, "cadb"}, {ids[1], -1 << 40, "bcad"}} {
		if err := q.Move(c.id, c.by); err != nil || order() != c.want {
			t.Errorf("%v: %s, want %s", err, order(), c.want)
		}
	}
	for _, id := range []string{"../../x", "", "20000101-000000"} {
		if err := q.Move(id, 1); !errors.Is(err, ErrGone) {
			t.Errorf("moved %q: %v", id, err)
		}
	}
	add(t, q, "e", "code=0")
	if err := q.Remove(ids[0]); err != nil || order() != "bcde" {
		t.Errorf("%v: %s", err, order())
	}
	if err := q.Work(t.Context(), path, Machine{}); err != nil {
		t.Fatal(err)
	}
	began := map[string]time.Time{}
	all, err := q.List()
	for _, e := range all {
		began[e.Name] = e.Started
	}
	if err != nil || len(all) != 4 || !began["b"].Before(began["c"]) || !began["c"].Before(began["d"]) || !began["d"].Before(began["e"]) {
		t.Errorf("%v: began %v", err, began)
	}
	if err := os.WriteFile(filepath.Join(q.Dir(), orderFile), []byte(`{"damaged`), 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, q, "f", "code=0")
	if got := order(); got != "abcdef"[1:] {
		t.Errorf("with a damaged order %s", got)
	}
}

// TestWorkerDies: a run continues without the process that started it, and the next waits for it.
func TestWorkerDies(t *testing.T) {
	q := open(t)
	path, notes := program(t)
	first, second := add(t, q, "first", "sleep 0.6; code=0"), add(t, q, "second", "code=0")
	ctx, die := context.WithCancel(t.Context())
	go func() {
		until(t, "the first runs", func() bool { return state(t, q, first.ID).PID != 0 })
		die()
	}()
	if err := q.Work(ctx, path, Machine{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the worker ends with %v", err)
	}
	if e := state(t, q, first.ID); e.State != Running {
		t.Errorf("%+v, want it running", e)
	}
	if err := q.Work(t.Context(), path, Machine{}); err != nil {
		t.Fatal(err)
	}
	if e := state(t, q, first.ID); e.State != Lost {
		t.Errorf("%+v, want it lost: nobody saw its end", e)
	}
	if e := state(t, q, second.ID); e.State != Ended || *e.ExitCode != 0 {
		t.Errorf("%+v", e)
	}
	text, _ := os.ReadFile(notes)
	if want := "begin train  \nend\nbegin train  \nend\n"; string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// TestBrokenQueues: what is damaged is passed over, and messages say what to do.
func TestBrokenQueues(t *testing.T) {
	q := open(t)
	lost := add(t, q, "no program", "code=0")
	if err := q.Work(t.Context(), filepath.Join(t.TempDir(), "nothing"), Machine{}); err != nil {
		t.Fatal(err)
	}
	if e := state(t, q, lost.ID); e.State != Ended || *e.ExitCode != -1 || !strings.Contains(q.Log(e.ID, 1000), "trainer: the run does not start: ") {
		t.Errorf("%+v: %s", e, q.Log(e.ID, 1000))
	}
	for name, text := range map[string]string{"20260101-000000.000000-00": "{", "20260101-000000.000000-01": `{"id":"another"}`, "x": "[]"} {
		dir := filepath.Join(q.in(Waiting), name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, entryFile), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(q.in(Running), "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if all, err := q.List(); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	for _, id := range []string{"", "..", "../waiting", "/etc", strings.Repeat("0", 100), "a/b", "0..1"} {
		if err := q.Remove(id); !errors.Is(err, ErrGone) {
			t.Errorf("%q taken back: %v", id, err)
		}
		if q.Log(id, 10) != "" || q.LogSize(id) != 0 {
			t.Errorf("%q has a log", id)
		}
	}
	e := add(t, q, "one", "code=0")
	if _, err := q.Add(Entry{Name: "again", OutputDir: e.OutputDir}, nil); err == nil || err.Error() != "a run into "+e.OutputDir+" is in the queue already (waiting): wait for it, or choose another output_dir" {
		t.Error(err)
	}
	for range mostWaiting - 1 {
		add(t, q, "more", "code=0")
	}
	if _, err := q.Add(Entry{Name: "too many"}, nil); err == nil || err.Error() != "100 runs wait already, which is the most" {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil || !strings.HasPrefix(err.Error(), "make the queue's folder: ") {
		t.Error(err)
	}
}

// TestStopProvesTheRun: a lock that names a process is believed where that process has it open; no other is sent a
// signal.
func TestStopProvesTheRun(t *testing.T) {
	q, dir := open(t), t.TempDir()
	if err := q.Stop(dir); err == nil || !strings.Contains(err.Error(), "there is nothing to stop") {
		t.Error(err)
	}
	host, _ := os.Hostname()
	start := func(script string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // it may have ended
		text, _ := json.Marshal(checkpoint.Holder{PID: cmd.Process.Pid, Host: host})
		if err := os.WriteFile(filepath.Join(dir, checkpoint.LockFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	other := start("sleep 30 & wait")
	want := fmt.Sprintf("the lock in %s names process %d, which does not have it open: it is another program", dir, other.Process.Pid)
	if err := q.Stop(dir); err == nil || err.Error() != want && !strings.Contains(err.Error(), "this system does not tell whether") {
		t.Errorf("%v, want %s", err, want)
	}
	if _, known := hasOpen(os.Getpid(), filepath.Join(dir, checkpoint.LockFile)); !known {
		return
	}
	run := start("exec 9< " + checkpoint.LockFile + "; touch opened; sleep 30 & wait")
	until(t, "it has its lock", func() bool { _, err := os.Stat(filepath.Join(dir, "opened")); return err == nil })
	if err := q.Stop(dir); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("it ends with %v", err)
	}
}

// TestCardsRunTogether: as many runs train as there are cards, each sees its own, and the next starts when one has
// ended; runs that have ended are cleared, and those on their way stay.
func TestCardsRunTogether(t *testing.T) {
	q := open(t)
	path, _ := program(t)
	m := Machine{Cards: func() []Card { return []Card{{"GPU-a", 1 << 34}, {"GPU-b", 1 << 34}} }}
	dir := t.TempDir()
	script := func(i int) string {
		name := filepath.Join(dir, fmt.Sprint(i))
		return fmt.Sprintf("echo $CUDA_VISIBLE_DEVICES > %s.on\nfor n in $(seq 1000); do [ -e %s.go ] && break; sleep 0.02; done\ncode=0\n", name, name)
	}
	var ids []string
	for i := range 3 {
		e, err := q.Add(Entry{Name: fmt.Sprint(i), OutputDir: filepath.Join(dir, "out", fmt.Sprint(i)), Dir: dir, Wants: Wants{Cards: 1}}, []byte(script(i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	done := make(chan error, 1)
	go func() { done <- q.Work(t.Context(), path, m) }()
	on := func(i int) string {
		text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)+".on"))
		return strings.TrimSpace(string(text))
	}
	until(t, "two run", func() bool { return on(0) == "GPU-a" && on(1) == "GPU-b" })
	if state(t, q, ids[2]).State != Waiting {
		t.Error("the third did not wait")
	}
	finish := func(i int) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)+".go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	finish(1)
	until(t, "the third gets the card that is free", func() bool { return on(2) == "GPU-b" })
	if n, err := q.Clear(); n != 1 || err != nil {
		t.Errorf("%d cleared, %v", n, err)
	}
	if state(t, q, ids[1]).ID != "" || state(t, q, ids[0]).State != Running {
		t.Error("the wrong run was cleared")
	}
	finish(0)
	finish(2)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := q.Clear(); n != 2 || err != nil {
		t.Errorf("%d cleared, %v", n, err)
	}
}

// TestTerminalRunIsWaitedFor: a run that no queue started has the processor first.
func TestTerminalRunIsWaitedFor(t *testing.T) {
	q := open(t)
	path, notes := program(t)
	add(t, q, "a", "code=0")
	var gone atomic.Bool
	m := Machine{Others: func() []Other {
		if gone.Load() {
			return nil
		}
		return []Other{{Dir: "/elsewhere"}}
	}}
	done := make(chan error, 1)
	go func() { done <- q.Work(t.Context(), path, m) }()
	time.Sleep(2 * look)
	if _, err := os.Stat(notes); err == nil {
		t.Error("it did not wait")
	}
	gone.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(notes); err != nil {
		t.Error("it did not run afterwards")
	}
}
