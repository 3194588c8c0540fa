// Package rescue turns what would crash the program into an error with a sentence and exit code 1: a panic on any
// goroutine, and a fault in a mapped file that was shortened while it was read. Go can't recover what another goroutine
// does, so every goroutine is started through Go or Wrap, which a test of internal/lint holds.
package rescue

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ChangedError is the error of a mapped file that another process changed or shortened while it was read.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changed while it was in use: another process wrote to it, or its disk failed; leave the "+
		"files of a model and of a cache alone "+
		"while a run reads them, check this one, and start again", e.Path)
}

// Defect is the error of a panic: the program is wrong, not what it was given.
type Defect struct {
	Value any    // of the panic
	Place string // functions and lines of the program, innermost first
	Stack []byte // of the goroutine that recovered it
}

func (d *Defect) Error() string {
	return fmt.Sprintf("internal error: %v, in %s: this is a defect of the program; please report it with this line "+
		"and what trainer version prints", d.Value, d.Place)
}

// Unwrap is the error that the panic was about, if it was one.
func (d *Defect) Unwrap() error {
	err, _ := d.Value.(error)
	return err
}

// given is the value of a panic that Stop makes: an error where no error can be returned.
type given struct{ err error }

// Stop ends a call that can return no error: Catch, in a caller, makes err its error.
func Stop(err error) { panic(given{err}) }

// Fatal is called with the error of a goroutine that has nobody to return it to, and ends the program. The program sets
// it at its start, to say the error as it says others.
var Fatal = func(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Go starts f on a goroutine of its own.
func Go(f func()) { go Wrap(f)() }

// Wrap is f as the function of a goroutine: a panic in it ends the program by Fatal, and a fault in a mapped file is a
// panic and no crash.
func Wrap(f func()) func() {
	return func() {
		debug.SetPanicOnFault(true)
		var err error
		defer func() {
			if err != nil {
				Fatal(err)
			}
		}()
		defer Catch(&err)
		f()
	}
}

// Do calls f, and returns a panic in it as an error.
func Do(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer Catch(&err)
	return f()
}

// Catch, deferred, makes the panic of a function its error. The goroutine is one of Go, Wrap or Do, or its faults are
// no panics.
func Catch(err *error) {
	v := recover()
	if v == nil {
		return
	}
	*err = Error(v)
}

// Error is the error for the value of a panic: what Stop was given, a *ChangedError for a fault in a mapped file, else
// a *Defect. It is called while the panic unwinds, so that the place is known.
func Error(v any) error {
	switch of := v.(type) {
	case given:
		return of.err
	case *Defect:
		return of
	case interface {
		error
		Addr() uintptr
	}:
		if path, ok := mappedAt(of.Addr()); ok {
			return &ChangedError{path}
		}
	}
	place := placeOf()
	if s := seen.Swap(nil); s != nil && s.text == fmt.Sprint(v) {
		place = s.place
	}
	stack := debug.Stack()
	if os.Getenv("GOTRACEBACK") != "" {
		fmt.Fprintf(os.Stderr, "%s", stack)
	}
	return &Defect{v, place, stack}
}

// sighting is a panic that was recovered to be raised again on another goroutine.
type sighting struct{ text, place string }

var seen atomic.Pointer[sighting]

// Saw keeps the place of a panic whose value another goroutine raises again.
func Saw(v any) { seen.Store(&sighting{fmt.Sprint(v), placeOf()}) }

const (
	module     = "github.com/tierlora/tierlora/"
	mostPlaces = 6
)

// placeOf is where the goroutine is: the innermost functions of this program.
func placeOf() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var all []string
	for len(all) < mostPlaces {
		f, more := frames.Next()
		if name, ours := strings.CutPrefix(f.Function, module); ours && !strings.HasPrefix(name, "internal/rescue.") ||
			strings.HasPrefix(f.Function, "main.") {
			if !ours {
				name = f.Function
			}
			all = append(all, fmt.Sprintf("%s:%d", name, f.Line))
		}
		if !more {
			break
		}
	}
	if all == nil {
		return "an unknown place"
	}
	return strings.Join(all, " < ")
}

// mapping is the memory of a mapped file.
type mapping struct {
	from, to uintptr
	path     string
}

var mappings struct {
	sync.Mutex
	all map[*mapping]bool
}

// Mapped notes that data is the memory of a mapped file, so that a fault in it is told as a change of the file. forget
// is called before it is unmapped.
func Mapped(path string, data []byte) (forget func()) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	page := uintptr(os.Getpagesize())
	m := &mapping{from, (from + uintptr(len(data)) + page - 1) / page * page, path}
	mappings.Lock()
	defer mappings.Unlock()
	if mappings.all == nil {
		mappings.all = map[*mapping]bool{}
	}
	mappings.all[m] = true
	return func() {
		mappings.Lock()
		defer mappings.Unlock()
		delete(mappings.all, m)
	}
}

func mappedAt(address uintptr) (path string, ok bool) {
	mappings.Lock()
	defer mappings.Unlock()
	for m := range mappings.all {
		if m.from <= address && address < m.to {
			return m.path, true
		}
	}
	return "", false
}
