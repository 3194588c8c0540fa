package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// LockFile is in a run's folder while a process has it.
const LockFile = ".lock"

// Holder is who has a run's folder, as the lock file says it.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
	Token string    `json:"token"` // tells one holder from the next
	// Beat says that the file system has no locks: the holder writes the file anew every so often instead.
	Beat bool `json:"beat,omitempty"`
}

// HeldError is the error of a folder that another process has.
type HeldError struct {
	Dir    string
	Holder Holder
}

func (e *HeldError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s, since %s", e.Holder.PID, e.Holder.Host, e.Holder.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return fmt.Sprintf("output_dir %s is in use by %s: wait for it to end, stop it, or choose another output_dir", e.Dir, who)
}

// Lock is a run's folder that belongs to this process.
type Lock struct {
	path string
	me   Holder
	file *os.File      // locked by the system; nil where the file system has no locks
	stop chan struct{} // ends the beat
	done chan struct{}
	made []string // folders that Acquire made, innermost first
}

// Without locks of the file system: how often a holder says that it lives, and after which silence it counts as dead.
const (
	beatEvery  = 5 * time.Second
	watchLooks = 40
)

var (
	deadAfter = 12 * beatEvery
	watchFor  = 4 * beatEvery // a holder whose file has a date that says nothing, before it counts as dead
)

// errNoLocks is what lockFile says where the file system has none.
var errNoLocks = errors.New("no locks on this file system")

// errHeld is what lockFile says of a file that another process has locked.
var errHeld = errors.New("locked by another process")

// lockFile locks a file, which is errHeld or errNoLocks where it can't be.
var lockFile = systemLock

// Acquire takes a run's folder, which it makes where there is none. Where another process has it the error is a
// *HeldError. The lock goes with the process that has it, however that ends: by the system's file locks, which NFS
// serves too, or where there are none because the holder's sign of life stops.
func Acquire(dir string) (*Lock, error) {
	l := &Lock{path: filepath.Join(dir, LockFile), me: newHolder()}
	for tries := 0; ; {
		made, err := makeDirs(dir)
		if errors.Is(err, fs.ErrNotExist) && tries < 100 { // one above has just been removed
			tries++
			continue
		}
		if err != nil {
			return nil, Unwritable(fmt.Errorf("make the folder: %w", err))
		}
		if len(made) > len(l.made) {
			l.made = made
		}
		err = l.take()
		if errors.Is(err, fs.ErrNotExist) { // the one before has just removed it, or the folder that it had made
			continue
		}
		if err != nil {
			l.removeMade()
			if errors.Is(err, errHeld) {
				return nil, &HeldError{dir, nameHolder(l.path)}
			}
			return nil, Unwritable(fmt.Errorf("lock the folder %s: %w", dir, err))
		}
		return l, nil
	}
}

// Unwritable adds what helps where this user may write nothing.
func Unwritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; name another folder, or make that one writable", err)
	}
	return err
}

// take tries once. fs.ErrNotExist means that it has to be tried again.
func (l *Lock) take() error {
	var f *os.File
	err := atomicfile.WhileInUse(func() (err error) {
		f, err = atomicfile.Open(l.path, 0o644)
		return err
	})
	if err != nil {
		return err
	}
	err = lockFile(f)
	if errors.Is(err, errNoLocks) {
		f.Close() //nolint:errcheck // nothing was written
		return l.takeByBeat()
	}
	if err == nil {
		err = sameFile(f, l.path)
	}
	if err == nil {
		if h := readHolder(l.path); h.Beat && h.alive(l.path) { // of a machine that sees no locks here
			err = errHeld
		}
	}
	if err == nil {
		if err = writeHolder(f, l.me); err != nil {
			os.Remove(l.path) //nolint:errcheck // a lock that says nothing is left at worst
		}
	}
	if err != nil {
		f.Close() //nolint:errcheck // the first error is what matters
		return err
	}
	l.file = f
	return nil
}

// sameFile is fs.ErrNotExist where the path is no longer the file that was opened: its holder removed it meanwhile.
func sameFile(f *os.File, path string) error {
	a, err := f.Stat()
	if err != nil {
		return err
	}
	b, err := os.Lstat(path)
	if err == nil && !os.SameFile(a, b) {
		err = fs.ErrNotExist
	}
	return err
}

func writeHolder(f *os.File, h Holder) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err = f.WriteAt(append(text, '\n'), 0); err == nil {
		err = f.Sync()
	}
	return atomicfile.Room(err, f.Name(), int64(len(text)+1))
}

// readHolder is what a lock file says; the zero Holder where it says nothing.
func readHolder(path string) Holder {
	var h Holder
	f, err := regular.Open(path)
	if err != nil {
		return h
	}
	defer f.Close() //nolint:errcheck // read only
	buf := make([]byte, 4096)
	n, _ := f.Read(buf)
	if json.Unmarshal(buf[:n], &h) != nil {
		return Holder{}
	}
	return h
}

// nameHolder is readHolder for a lock that another process has. Who has just taken it writes its name a moment later;
// until then the file says nothing, or names one that is dead.
func nameHolder(path string) Holder {
	host, _ := os.Hostname()
	for try := 0; ; try++ {
		h := readHolder(path)
		if h.PID != 0 && (h.Host != host || processExists(h.PID)) || try == 50 {
			return h
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Release gives the folder back. Folders that Acquire made and nothing was written to go too.
func (l *Lock) Release() error {
	if l.stop != nil {
		close(l.stop)
		<-l.done
	}
	if readHolder(l.path).Token != l.me.Token { // removed by hand, and somebody else's now
		if l.file != nil {
			return l.file.Close()
		}
		return nil
	}
	err := l.drop()
	l.removeMade()
	if err != nil {
		return fmt.Errorf("unlock the folder: %w", err)
	}
	return nil
}

// removeMade removes the folders that Acquire made as far as they are empty.
func (l *Lock) removeMade() {
	for _, dir := range l.made {
		if os.Remove(dir) != nil {
			return
		}
	}
	l.made = nil
}

// makeDirs makes a folder and those above it, and tells which were not there, innermost first.
func makeDirs(dir string) (made []string, err error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, d)
		if filepath.Dir(d) == d {
			break
		}
	}
	return made, os.MkdirAll(dir, 0o755)
}
