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
	rand.Read(token) //nolint:errcheck // it never fails
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC(), Token: hex.EncodeToString(token)}
}

// takeByBeat is for file systems without locks: the lock file names its holder, who touches it every so often. Only
// one process at a time looks and writes: the one that could create the claim beside the lock.
func (l *Lock) takeByBeat() error {
	l.me.Beat = true
	claim := l.path + ".claim"
	old, err := create(claim)
	if err != nil {
		return err
	}
	defer os.Remove(claim) //nolint:errcheck // one that is left counts as dead after a while
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
	if old { // two may have removed a dead claim, one of them the other's new one: the one whose file stands has it
		time.Sleep(settle)
	}
	if readHolder(l.path).Token != l.me.Token {
		return errHeld
	}
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	rescue.Go(func() { l.beat() })
	return nil
}

// settle is how long the writes of two that begin at once may be apart.
const settle = 500 * time.Millisecond

// create makes a file that is not there, and waits while it is; one whose maker died (old) is replaced.
func create(path string) (old bool, err error) {
	var first os.FileInfo
	var since time.Time // first is there
	for {
		f, err := atomicfile.Create(path, 0o644)
		if err == nil {
			return old, f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return old, err
		}
		// What was there all the time is dead whatever its date says: clocks jump.
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

// beat touches the lock file until Release.
func (l *Lock) beat() {
	defer close(l.done)
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			os.Chtimes(l.path, now, now) //nolint:errcheck // the next one may succeed
		}
	}
}

// alive tells whether a holder that beats still does: its process is there, if it is of this machine, and its file is
// not older than it may be. A clock that jumps, here or there, makes the file of one that lives look old or of the future:
// then its next signs of life are waited for.
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
