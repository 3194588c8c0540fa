package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func status(t *testing.T, dir string) *Status {
	t.Helper()
	s, err := Read(filepath.Join(dir, StatusFile))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, LogFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestJournal: what was said before the folder was known comes first, lines have no secret and no escape, the second
// start stands behind the first, and the status is that of the last.
func TestJournal(t *testing.T) {
	t.Setenv("HF_TOKEN", "hf_verysecretverysecretvery")
	dir := t.TempDir()
	j := New("tierlora 1")
	j.Line("before the folder")
	if notes := j.Open(dir); notes != nil {
		t.Fatal(notes)
	}
	if s := status(t, dir); s.State != Running || s.ExitCode != nil || s.PID != os.Getpid() || s.ReachedSteps {
		t.Errorf("at the start: %+v", s)
	}
	fmt.Fprint(j, "half ")
	fmt.Fprint(j, "a line\nred \x1b[31m, key hf_verysecretverysecretvery\n")
	j.At(3, 10)
	j.Saved("checkpoint-3")
	j.Rank(2, errors.New("its own"))
	j.End(Failed, 1, errors.New("no room\x07 for hf_verysecretverysecretvery"))
	j.End(Finished, 0, nil)
	j.Line("too late")
	s := status(t, dir)
	if s.State != Failed || *s.ExitCode != 1 || s.Error != `no room\x07 for ***` || s.Step != 3 || s.Steps != 10 || s.Checkpoint != "checkpoint-3" ||
		!s.ReachedSteps || s.Ended.Before(s.Began) || len(s.Ranks) != 1 || s.Ranks[0] != (Rank{2, "its own"}) {
		t.Errorf("at the end: %+v", s)
	}
	again := New("tierlora 2")
	again.Open(dir)
	again.Line("once more")
	again.End(Finished, 0, nil)
	if s := status(t, dir); s.State != Finished || *s.ExitCode != 0 || s.Error != "" {
		t.Errorf("after the second: %+v", s)
	}
	text := logOf(t, dir)
	at := 0
	for _, want := range []string{"===== started ", "before the folder\n", "half a line\n", `red \x1b[31m, key ***` + "\n", "===== failed ", "\n\n===== started ", "once more\n", "===== finished "} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or not in its place:\n%s", want, text)
		}
		at += i
	}
	if strings.Contains(text, "verysecret") || strings.Contains(text, "too late") || strings.ContainsRune(text, '\x1b') {
		t.Error(text)
	}
}

// TestNilAndUnopened: a journal without a folder leaves nothing, and nil does nothing.
func TestNilAndUnopened(t *testing.T) {
	var none *Journal
	none.Line("x")
	none.At(1, 2)
	none.Saved("x")
	none.Rank(1, errors.New("x"))
	if none.Open(t.TempDir()) != nil || none.Opened() {
		t.Error("nil has a folder")
	}
	none.End(Failed, 1, nil)
	j := New("x")
	j.Write(bytes.Repeat([]byte("0123456789\n"), keptBytes/10))
	j.Line("one more")
	dir := t.TempDir()
	j.Open(dir)
	if text := logOf(t, dir); !strings.Contains(text, "lines are left out here") {
		t.Error("more is kept than should be")
	}
	j.End(Finished, 0, nil)
	j = New("x")
	j.Line("x")
	j.End(Failed, 1, errors.New("x"))
	if notes := j.Open(dir); notes != nil || j.Opened() {
		t.Error("it opens after its end")
	}
}

// TestForeignFiles: files of these names that no run wrote, links and folders stay as they are, and are named.
func TestForeignFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"text":   func(path string) error { return os.WriteFile(path, []byte(`{"state":"fine"}`), 0o644) },
		"folder": func(path string) error { return os.Mkdir(path, 0o755) },
		"link": func(path string) error {
			target := filepath.Join(filepath.Dir(path), "target")
			return errors.Join(os.WriteFile(target, nil, 0o644), os.Symlink("target", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{LogFile, StatusFile} {
				if err := put(filepath.Join(dir, file)); err != nil {
					t.Skip(err)
				}
			}
			j := New("x")
			if notes := j.Open(dir); len(notes) != 2 || !strings.Contains(notes[0], "no status is kept") || !strings.Contains(notes[1], "no log is kept") {
				t.Errorf("notes %q", notes)
			}
			j.Line("x")
			j.At(1, 1)
			j.Saved("checkpoint-1")
			j.End(Failed, 1, errors.New("x"))
			for _, file := range []string{LogFile, StatusFile, "target"} {
				if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil && len(text) > 0 && string(text) != `{"state":"fine"}` {
					t.Errorf("%s is now %q", file, text)
				}
			}
		})
	}
}

// TestAnotherHasTheFolder: a process whose folder another one has taken since writes no end over its status.
func TestAnotherHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	old, now := New("old"), New("now")
	old.Open(dir)
	now.Open(dir)
	old.End(Failed, 1, errors.New("x"))
	if s := status(t, dir); s.State != Running || s.Program != "now" {
		t.Errorf("%+v", s)
	}
	if strings.Contains(logOf(t, dir), "failed") {
		t.Error("the log has the end of another process")
	}
	now.End(Finished, 0, nil)
}

// TestLogIsBounded: a log that grows keeps its beginning and its end in whole lines, and so does one that is opened again.
func TestLogIsBounded(t *testing.T) {
	was := mostLog
	t.Cleanup(func() { mostLog = was })
	mostLog = 64 << 10
	dir := t.TempDir()
	j := New("x")
	j.Open(dir)
	last := ""
	for i := range 20000 {
		last = fmt.Sprintf("line %d of many", i)
		j.Line(last)
		if info, err := os.Stat(filepath.Join(dir, LogFile)); err != nil || info.Size() > mostLog+mostLine {
			t.Fatalf("%d bytes after line %d: %v", info.Size(), i, err)
		}
	}
	j.Line(strings.Repeat("x", 100<<10))
	j.End(Finished, 0, nil)
	text := logOf(t, dir)
	for _, want := range []string{"===== started ", "line 0 of many\n", last + "\n", "bytes: a log keeps its beginning and its end)\n", " ... ", "===== finished "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	var left int
	if _, err := fmt.Sscanf(text[strings.Index(text, leftOut):], leftOut+"%d", &left); err != nil || left < 20000*39-128<<10 || left > 20000*42 {
		t.Errorf("%d bytes are said to be left out of 20,000 lines: %v", left, err)
	}
	if strings.Count(text, leftOut) != 1 {
		t.Errorf("%d places where something is left out", strings.Count(text, leftOut))
	}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !strings.HasPrefix(line, "=====") && !strings.HasPrefix(line, "(") && !strings.HasPrefix(line, "20") {
			t.Errorf("a line was cut: %q", line)
		}
	}
	again := New("y")
	if notes := again.Open(dir); notes != nil {
		t.Error(notes)
	}
	again.End(Finished, 0, nil)
	if !strings.Contains(logOf(t, dir), ", y =====") {
		t.Error("a shortened log is not taken for ours")
	}
}

// TestInPlace: without room for a new file the status is written in place, and the log says how much is missing when
// there is room again.
func TestInPlace(t *testing.T) {
	dir := t.TempDir()
	j := New("x")
	j.Open(dir)
	j.mu.Lock()
	s := j.status
	j.mu.Unlock()
	s.State, s.Error = Failed, "the disk is full"
	if err := inPlace(filepath.Join(dir, StatusFile), s.text()); err != nil {
		t.Fatal(err)
	}
	if now := status(t, dir); now.State != Failed || now.Error != s.Error {
		t.Errorf("%+v", now)
	}
	file := j.log.file
	j.log.file, _ = os.Open(filepath.Join(dir, LogFile)) // nothing can be written there
	j.Line("lost 1")
	j.Line("lost 2")
	j.log.file.Close()
	j.log.file = file
	j.Line("kept")
	j.End(Finished, 0, nil)
	if text := logOf(t, dir); strings.Contains(text, "lost 1") || !strings.Contains(text, "(2 lines are left out here: they could not be written)\n") || !strings.Contains(text, "kept\n") {
		t.Error(text)
	}
	if err := inPlace(filepath.Join(dir, "nothing"), nil); err == nil {
		t.Error("a file was made")
	}
}

// TestCrash: the Go runtime's trace of a panic on any goroutine is in the log, behind what the run said.
func TestCrash(t *testing.T) {
	if dir := os.Getenv("TRAINER_TEST_CRASH"); dir != "" {
		j := New("x")
		j.Open(dir)
		j.Line("about to crash")
		go func() { panic("of a goroutine") }()
		select {}
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
	cmd.Env = append(os.Environ(), "TRAINER_TEST_CRASH="+dir)
	if err := cmd.Run(); err == nil {
		t.Fatal("it did not crash")
	}
	if s := status(t, dir); s.State != Running || s.PID != cmd.Process.Pid {
		t.Errorf("%+v", s)
	}
	if line := Crash(Tail(dir, 16<<10)); line != "panic: of a goroutine" {
		t.Errorf("the log's end says %q\n%s", line, logOf(t, dir))
	}
	j := New("x")
	j.Open(dir)
	j.End(Finished, 0, nil)
	if line := Crash(Tail(dir, 16<<10)); line != "" {
		t.Errorf("an earlier start's crash counts: %q", line)
	}
}

// TestRank: a rank that does not lead has a log of its own and no status.
func TestRank(t *testing.T) {
	dir := t.TempDir()
	j := NewRank("x", 3)
	j.Line("rank's own error")
	j.Open(dir)
	j.End(Failed, 1, errors.New("x"))
	text, err := os.ReadFile(filepath.Join(dir, "train.rank3.log"))
	if err != nil || !strings.Contains(string(text), "rank's own error\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(dir, StatusFile)); err == nil {
		t.Error("it wrote a status")
	}
}

func TestTail(t *testing.T) {
	dir := t.TempDir()
	if Tail(dir, 10) != "" {
		t.Error("a log that is not there")
	}
	os.WriteFile(filepath.Join(dir, LogFile), []byte("first line\nsecond\nthird\n"), 0o644)
	if text := Tail(dir, 15); text != "second\nthird\n" && text != "third\n" {
		t.Errorf("%q", text)
	}
	if text := Tail(dir, 1000); !strings.HasPrefix(text, "first line\n") {
		t.Errorf("%q", text)
	}
}

// FuzzParse: a status of anybody is read or refused.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1,"state":"failed","exit_code":1,"error":"x","step":3,"began":"2026-11-27T00:55:30Z","pid":1,"host":"a"}`))
	f.Add([]byte(`{"format":1,"state":"fine"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
