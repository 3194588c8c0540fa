package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

func newHolder() Holder {
	token := make([]byte, 16)
	rand.Read(token) // it never fails
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC(), Token: hex.EncodeToString(token)}
}

// takeByBeat locks a folder on a file system without locks: the lock file names its holder, which updates the file
// periodically. Only one process at a time checks and writes: the one that could create the claim file beside the lock.
func (l *Lock) takeByBeat() error {
	l.me.Beat = true
	claim := l.path + ".claim"
	old, err := create(claim)
	if err != nil {
		return err
	}
	defer os.Remove(claim) // a claim that is left counts as dead after a while
	if h := readHolder(l.path); h.Token != "" && h.alive(l.path) {
		return errHeld
	}
	text, err := json.Marshal(l.me)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(l.path, append(text, '\n')); err != nil {
		return err
	}
	// two processes may have removed a dead claim, one of them the other's new claim: the one whose file remains owns
	// it
	if old {
		time.Sleep(settle)
	}
	if readHolder(l.path).Token != l.me.Token {
		return errHeld
	}
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	rescue.Go(func() { l.beat() })
	return nil
}

// settle is the most time between the writes of two processes that start at once.
const settle = 500 * time.Millisecond

// create creates a file that does not exist, and waits while it exists. A file whose creator has died (old) is
// replaced.
func create(path string) (old bool, err error) {
	var first os.FileInfo
	var since time.Time // when the file was first seen
	for {
		f, err := atomicfile.Create(path, 0o644)
		if err == nil {
			return old, f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return old, err
		}
		// A file that existed the whole time is dead whatever its date is: clocks jump.
		info, err := os.Lstat(path)
		if err == nil && (first == nil || !os.SameFile(first, info) || !first.ModTime().Equal(info.ModTime())) {
			first, since = info, time.Now()
		}
		if err == nil && (time.Since(info.ModTime()) > deadAfter || time.Since(since) > deadAfter) {
			old, first = true, nil
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return old, err
			}
			continue
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// beat updates the lock file until Release.
func (l *Lock) beat() {
	defer close(l.done)
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			os.Chtimes(l.path, now, now) // the next update may succeed
		}
	}
}

// alive reports whether a holder with a beat is still alive: its process exists, if it runs on this machine, and its
// file is recent enough. If a clock jumps, here or there, the file of a living holder looks old or in the future: then
// alive waits for its next updates.
func (h Holder) alive(path string) bool {
	if host, err := os.Hostname(); err == nil && host == h.Host && !processExists(h.PID) {
		return false
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	if age := time.Since(info.ModTime()); age >= 0 && age < deadAfter {
		return true
	}
	for range watchLooks {
		time.Sleep(watchFor / watchLooks)
		now, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		if err == nil && !now.ModTime().Equal(info.ModTime()) {
			return true
		}
	}
	return false
}
