//go:build linux || darwin

package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// childEnv is set in a process that this test starts: the configuration that it loads, as JSON.
const childEnv = "TRAINER_TEST_LOAD"

// child is what such a process says of its load.
type child struct{ Note, Digest, Err string }

// TestChild is the body of the other processes.
func TestChild(t *testing.T) {
	text := os.Getenv(childEnv)
	if text == "" {
		t.Skip("started by TestTwoProcesses and TestKilledBuilder alone")
	}
	var c struct{ Path, CacheDir string }
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.Path, cfg.CacheDir, cfg.MaxLength = c.Path, c.CacheDir, 96
	said := child{}
	set, report, err := Load(context.Background(), cfg, slowTokenizer{})
	if err != nil {
		said.Err = err.Error()
	} else {
		said.Note = report.CacheNote
		said.Digest = digest(Memory(all(set.Train)))
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		t.Fatal(err)
	}
}

// slowTokenizer gives the processes time to meet.
type slowTokenizer struct{ bytesTokenizer }

func (s slowTokenizer) IDs(text string, special bool) []int32 {
	if strings.HasPrefix(text, "row ") {
		time.Sleep(100 * time.Microsecond)
	}
	return s.bytesTokenizer.IDs(text, special)
}

func startChild(t *testing.T, cfg Config) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"Path": cfg.Path, "CacheDir": cfg.CacheDir})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

func endChild(t *testing.T, cmd *exec.Cmd, out *bytes.Buffer) child {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	var c child
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c
}

// TestTwoProcesses that start at the same time share one cache: one of them writes, the others wait and read.
func TestTwoProcesses(t *testing.T) {
	cfg := workersConfig(t, 0, mixedRows(10000, false))
	plain := cfg
	plain.CacheDir = ""
	set, _ := mustLoad(t, plain, bytesTokenizer{})
	want := digest(set.Train)
	var mu sync.Mutex
	var wg sync.WaitGroup
	written, read := 0, 0
	for range 4 {
		cmd, out := startChild(t, cfg)
		wg.Go(func() {
			c := endChild(t, cmd, out)
			mu.Lock()
			defer mu.Unlock()
			if c.Err != "" || c.Digest != want {
				t.Errorf("%+v, want digest %s", c, want)
			}
			switch {
			case strings.HasPrefix(c.Note, "tokens written to "):
				written++
			case strings.HasPrefix(c.Note, "tokens read from "):
				read++
			}
		})
	}
	wg.Wait()
	if written != 1 || read != 3 {
		t.Errorf("%d wrote, %d read; want 1 and 3", written, read)
	}
	if left := entries(t, cfg); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

// TestKilledBuilder leaves a file that is no entry; the next run writes over it, and another one's is deleted when it is
// old.
func TestKilledBuilder(t *testing.T) {
	cfg := workersConfig(t, 0, mixedRows(30000, false))
	cmd, _ := startChild(t, cfg)
	var part string
	for deadline := time.Now().Add(20 * time.Second); part == ""; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.part"))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no file is being written: %v", err)
		}
		if len(names) == 1 {
			if info, err := os.Stat(names[0]); err == nil && info.Size() > 0 {
				part = names[0]
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if names := entries(t, cfg); len(names) != 1 {
		t.Fatalf("the killed run left %v", names)
	}
	old := strings.Replace(part, filepath.Base(part), strings.Repeat("0", 32)+".tokens.part", 1)
	if err := os.WriteFile(old, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Now(), time.Now().Add(-2*partAge)); err != nil {
		t.Fatal(err)
	}
	_, report := mustLoad(t, cfg, bytesTokenizer{})
	if !strings.HasPrefix(report.CacheNote, "tokens written to ") {
		t.Errorf("note %q", report.CacheNote)
	}
	if left := entries(t, cfg); len(left) != 1 || left[0] != tokensOf(t, cfg) {
		t.Errorf("left %v", left)
	}
}

// TestReplacedWhileMapped: rows that are mapped stay what they are when the entry is written again.
func TestReplacedWhileMapped(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(2000, false))
	set, _ := mustLoad(t, cfg, bytesTokenizer{})
	want := digest(set.Train)
	path := tokensOf(t, cfg)
	if err := os.Rename(path, path+".old"); err != nil { // so that the damage does not reach the mapping
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, cfg, bytesTokenizer{})
	if got := digest(Memory(all(set.Train))); got != want {
		t.Error("the mapped rows changed")
	}
}

// fillDisk makes every disk look as if it had so many bytes free after the first looks.
func fillDisk(t *testing.T, looks int, free int64) {
	t.Helper()
	old := diskFree
	diskFree = func(string) (int64, bool) {
		if looks--; looks >= 0 {
			return 1 << 50, true
		}
		return free, true
	}
	t.Cleanup(func() { diskFree = old })
}

// TestFullDisk: a disk without room costs the cache; what does not fit in memory either is an error that says what to do.
func TestFullDisk(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(2000, false))
	t.Run("before", func(t *testing.T) {
		fillDisk(t, 0, 1000)
		set, report := mustLoad(t, cfg, bytesTokenizer{})
		if want := fmt.Sprintf("not written: %s has only 1000 B free", cfg.CacheDir); report.CacheNote != want || set.Train.Len() == 0 {
			t.Errorf("note %q, want %q", report.CacheNote, want)
		}
	})
	t.Run("while writing", func(t *testing.T) {
		full := &diskGuard{dir: cfg.CacheDir}
		fillDisk(t, 1, 1000)
		var out bytes.Buffer
		page := make([]byte, 1<<20)
		for i := range 2 * reserveEvery >> 20 {
			_, err := full.write(&out, page)
			var lost *writeError
			if i < 2*reserveEvery>>20-1 {
				if err != nil {
					t.Fatal(err)
				}
			} else if !errors.As(err, &lost) || err.Error() != "the disk has only 1000 B free after 127.0 MiB of tokens" {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("device", func(t *testing.T) {
		file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("this system has no /dev/full")
		}
		defer file.Close()
		f, err := os.Open(cfg.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cache := &tokenCache{dir: cfg.CacheDir, part: file, meter: newMeter(nil)}
		_, _, err = tokenise(context.Background(), cfg, cfg.Path, bytesTokenizer{}, f, cache)
		want := "tokenise " + cfg.Path + ": write to " + cfg.CacheDir + ": no room for " + filepath.Join(cfg.CacheDir, "tokens") + ": "
		var full *atomicfile.FullError
		if !errors.As(err, &full) || full.Needed == 0 || full.Free <= 0 || !strings.HasPrefix(err.Error(), want) ||
			!strings.HasSuffix(err.Error(), "(no space left on device): free some space, or name a folder on another disk in dataset.cache_dir") {
			t.Errorf("error %v\nwant  %s", err, want)
		}
		if lost := (*writeError)(nil); !errors.As(err, &lost) || !lost.small {
			t.Error("it is not known to be small")
		}
	})
}

// TestMemoryIsFlat: tokenising a file takes memory that does not grow with it.
func TestMemoryIsFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100 MB")
	}
	dir := t.TempDir()
	cfg := Default()
	cfg.Path, cfg.CacheDir, cfg.Workers = filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "cache"), 4
	f, err := os.Create(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	row := []byte(`{"prompt": "` + strings.Repeat("q", 250) + `", "completion": "` + strings.Repeat("a", 200) + "\"}\n")
	part := bytes.Repeat(row, 1<<20/len(row))
	for range 100 {
		if _, err := f.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	before, ok := anonymousBytes()
	if !ok {
		t.Skip("this system does not tell a process's memory")
	}
	most, done, stopped := before, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				now, _ := anonymousBytes()
				most = max(most, now)
			}
		}
	}()
	_, report := mustLoad(t, cfg, newQuietTokenizer())
	close(done)
	<-stopped
	info, err := os.Stat(tokensOf(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s of tokens, memory grew by %s", sizeText(info.Size()), sizeText(most-before))
	if most-before > 160<<20 || report.Kept == 0 {
		t.Errorf("memory grew by %s", sizeText(most-before))
	}
}

// anonymousBytes is the memory of this process that is no file's.
func anonymousBytes() (int64, bool) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(text), "RssAnon:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		return 0, false
	}
	return kb << 10, ok
}

// TestCacheDates: an entry whose date is of another day, because the clock jumped, is read as any other, and a file that
// somebody writes is not deleted for its date.
func TestCacheDates(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(200, false))
	mustLoad(t, cfg, bytesTokenizer{})
	busy, err := lockPart(filepath.Join(cfg.CacheDir, "other.tokens.part"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if then := time.Now().Add(off); os.Chtimes(name, then, then) != nil {
				t.Fatal("the date of a file can't be set")
			}
		}
		(&tokenCache{dir: cfg.CacheDir, auto: true}).clean()
		_, report := mustLoad(t, cfg, bytesTokenizer{})
		if !strings.HasPrefix(report.CacheNote, "tokens read from ") {
			t.Errorf("%v: %s", off, report.CacheNote)
		}
		if _, err := os.Stat(busy.Name()); err != nil {
			t.Errorf("%v: %v", off, err)
		}
	}
}
