package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// withoutLocks makes the file system one that has no locks.
func withoutLocks(t *testing.T) {
	t.Helper()
	old := lockFile
	lockFile = func(*os.File) error { return errNoLocks }
	t.Cleanup(func() { lockFile = old })
}

func bothKinds(t *testing.T, f func(t *testing.T)) {
	t.Run("file locks", f)
	t.Run("no file locks", func(t *testing.T) { withoutLocks(t); f(t) })
}

func TestOneHolderAtATime(t *testing.T) {
	bothKinds(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "run")
		first, err := Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Acquire(dir)
		var held *HeldError
		if !errors.As(err, &held) || held.Holder.PID != os.Getpid() {
			t.Fatalf("a second holder: %v", err)
		}
		if want := fmt.Sprintf("is in use by process %d on ", os.Getpid()); !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name the holder: %q", err, want)
		}
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			t.Error("folders that nothing was written to are left")
		}
		again, err := Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := again.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, LockFile)); err == nil {
			t.Error("the lock file is left")
		}
	})
}

// TestManyAtOnce: of many that begin at the same time one has the folder, and after it the next may.
func TestManyAtOnce(t *testing.T) {
	bothKinds(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "run")
		for range 10 {
			locks := make([]*Lock, 8)
			var wg sync.WaitGroup
			for i := range locks {
				wg.Add(1)
				go func() {
					defer wg.Done()
					locks[i], _ = Acquire(dir)
				}()
			}
			wg.Wait()
			n := 0
			for _, l := range locks {
				if l == nil {
					continue
				}
				n++
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
			if n != 1 {
				t.Fatalf("%d have the folder", n)
			}
		}
	})
}

// TestFolderGoesMeanwhile: each of many makes the folder, takes it and removes it with the lock.
func TestFolderGoesMeanwhile(t *testing.T) {
	bothKinds(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "run")
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 25 {
					var held *HeldError
					if l, err := Acquire(dir); err == nil {
						if err := l.Release(); err != nil {
							t.Error(err)
						}
					} else if !errors.As(err, &held) {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
	})
}

// TestDeadClaimGoes: one that died while it looked at the lock keeps nobody out.
func TestDeadClaimGoes(t *testing.T) {
	withoutLocks(t)
	dir := t.TempDir()
	claim := filepath.Join(dir, LockFile+".claim")
	long := time.Now().Add(-2 * deadAfter)
	if err := errors.Join(os.WriteFile(claim, nil, 0o644), os.Chtimes(claim, long, long)); err != nil {
		t.Fatal(err)
	}
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(claim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the claim stays: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// TestStaleLockGoes: a holder that was killed holds nothing.
func TestStaleLockGoes(t *testing.T) {
	dir := t.TempDir()
	if os.Getenv("TRAINER_TEST_HOLD") != "" {
		if _, err := Acquire(os.Getenv("TRAINER_TEST_HOLD")); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		time.Sleep(time.Minute)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStaleLockGoes$")
	cmd.Env = append(os.Environ(), "TRAINER_TEST_HOLD="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := out.Read(buf); err != nil || string(buf) != "held" {
		t.Fatalf("%q, %v", buf, err)
	}
	if _, err := Acquire(dir); err == nil {
		t.Error("two have the folder")
	}
	cmd.Process.Kill() //nolint:errcheck // Wait says it
	cmd.Wait()         //nolint:errcheck // it was killed
	l, err := Acquire(dir)
	if err != nil {
		t.Fatalf("the holder is dead: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestSilentHolderIsDead: without file locks a holder of another machine counts as dead when its sign of life stops.
func TestSilentHolderIsDead(t *testing.T) {
	withoutLocks(t)
	dir := t.TempDir()
	path := filepath.Join(dir, LockFile)
	if err := os.WriteFile(path, []byte(`{"pid":1,"host":"elsewhere","token":"x","beat":true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(dir); err == nil {
		t.Fatal("a holder of another machine that lives was passed over")
	}
	long := time.Now().Add(-2 * deadAfter)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	watchesFor(t, 100*time.Millisecond)
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestRefusalWaitsForTheName: who has just taken a folder has not written its name yet, over that of a dead one.
func TestRefusalWaitsForTheName(t *testing.T) {
	dir := t.TempDir()
	for _, before := range []string{"", `{"pid":0}`} {
		l, err := Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(30 * time.Millisecond)
			writeHolder(l.file, l.me) //nolint:errcheck // the refusal tells
		}()
		_, err = Acquire(dir)
		var held *HeldError
		if !errors.As(err, &held) || held.Holder.PID != os.Getpid() {
			t.Errorf("%q in the file: %v", before, err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func watchesFor(t *testing.T, d time.Duration) {
	was := watchFor
	watchFor = d
	t.Cleanup(func() { watchFor = was })
}

// TestClockJumps: whatever date the file of a holder on another machine has, one that lives keeps its folder and one that
// is dead does not.
func TestClockJumps(t *testing.T) {
	withoutLocks(t)
	watchesFor(t, 10*time.Second)
	dead := deadAfter
	deadAfter = 500 * time.Millisecond
	t.Cleanup(func() { deadAfter = dead })
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		dir := t.TempDir()
		path, claim := filepath.Join(dir, LockFile), filepath.Join(dir, LockFile+".claim")
		date := func(path string, more time.Duration) {
			if then := time.Now().Add(off + more); os.Chtimes(path, then, then) != nil {
				t.Error("the date of a file can't be set")
			}
		}
		for _, path := range []string{path, claim} { // who made the claim is dead
			if err := os.WriteFile(path, []byte(`{"pid":1,"host":"elsewhere","token":"x","beat":true}`), 0o644); err != nil {
				t.Fatal(err)
			}
			date(path, 0)
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := time.Duration(0); ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					date(path, i*10*time.Second)
				}
			}
		}()
		if _, err := Acquire(dir); err == nil {
			t.Errorf("%v: a holder that lives was passed over", off)
		}
		close(stop)
		<-stopped
		watchFor = 100 * time.Millisecond
		l, err := Acquire(dir)
		if err != nil {
			t.Fatalf("%v: the holder is dead: %v", off, err)
		}
		watchFor = 10 * time.Second
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnwritable: what helps is said where nothing may be written, and only there.
func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{syscall.EROFS: true, syscall.EACCES: true, fs.ErrPermission: true, syscall.ENOSPC: false} {
		said := Unwritable(&fs.PathError{Op: "open", Path: "x", Err: err})
		if !errors.Is(said, err) || strings.HasSuffix(said.Error(), "; name another folder, or make that one writable") != want {
			t.Errorf("%v: %v", err, said)
		}
	}
}
