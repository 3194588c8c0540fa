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

// LockFile exists in a run's folder while a process owns the folder.
const LockFile = ".lock"

// Holder is the process that owns a run's folder, as recorded in the lock file.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
	Token string    `json:"token"` // distinguishes one holder from the next
	// Beat means that the file system has no locks: the holder updates the file periodically instead.
	Beat bool `json:"beat,omitempty"`
}

// HeldError is the error for a folder that another process owns.
type HeldError struct {
	Dir    string
	Holder Holder
}

func (e *HeldError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s, since %s", e.Holder.PID, e.Holder.Host,
			e.Holder.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return fmt.Sprintf("output_dir %s is in use by %s: wait for it to end, stop it, or choose another output_dir",
		e.Dir, who)
}

// Lock is a run's folder that this process owns.
type Lock struct {
	path string
	me   Holder
	file *os.File      // locked by the system; nil if the file system has no locks
	stop chan struct{} // ends the beat
	done chan struct{}
	made []string // folders that Acquire created, innermost first
}

// On file systems without locks: how often a holder updates the file, and after which silence it counts as dead.
const (
	beatEvery  = 5 * time.Second
	watchLooks = 40
)

var (
	deadAfter = 12 * beatEvery
	watchFor  = 4 * beatEvery // time to watch a holder whose file date is meaningless before it counts as dead
)

// errNoLocks is returned by lockFile if the file system has no locks.
var errNoLocks = errors.New("no locks on this file system")

// errHeld is returned by lockFile for a file that another process has locked.
var errHeld = errors.New("locked by another process")

// lockFile locks a file. It returns errHeld or errNoLocks if that is impossible.
var lockFile = systemLock

// Acquire locks a run's folder and creates it if necessary. If another process owns it, the error is a *HeldError. The
// lock ends with the process, however that ends: through the system's file locks, which NFS supports too, or without
// those because the holder's periodic updates stop.
func Acquire(dir string) (*Lock, error) {
	l := &Lock{path: filepath.Join(dir, LockFile), me: newHolder()}
	for tries := 0; ; {
		made, err := makeDirs(dir)
		if errors.Is(err, fs.ErrNotExist) && tries < 100 { // a parent folder has just been removed
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
		// the previous holder has just removed the file, or the folder that it had created
		if errors.Is(err, fs.ErrNotExist) {
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

// Unwritable adds advice to the error of a folder that this user may not write.
func Unwritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; name another folder, or make that one writable", err)
	}
	return err
}

// take tries once. fs.ErrNotExist means that the caller must try again.
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
		if h := readHolder(l.path); h.Beat && h.alive(l.path) { // a holder on a machine that sees no locks here
			err = errHeld
		}
	}
	if err == nil {
		if err = writeHolder(f, l.me); err != nil {
			os.Remove(l.path) // at worst a lock file without content is left
		}
	}
	if err != nil {
		f.Close() // the first error is the one to report
		return err
	}
	l.file = f
	return nil
}

// sameFile returns fs.ErrNotExist if the path is no longer the opened file, because its holder removed it meanwhile.
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

// readHolder returns the content of a lock file; the zero Holder if it is empty or invalid.
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

// nameHolder is readHolder for a lock that another process holds. A process that has just acquired the lock writes its
// name a moment later; until then the file is empty or names a dead process.
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

// Release unlocks the folder. It removes folders that Acquire created and that are still empty.
func (l *Lock) Release() error {
	if l.stop != nil {
		close(l.stop)
		<-l.done
	}
	if readHolder(l.path).Token != l.me.Token { // the lock file was removed by hand and now belongs to another process
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

// removeMade removes the folders that Acquire created, as far as they are empty.
func (l *Lock) removeMade() {
	for _, dir := range l.made {
		if os.Remove(dir) != nil {
			return
		}
	}
	l.made = nil
}

// makeDirs creates a folder and its parents, and returns those that did not exist, innermost first.
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
