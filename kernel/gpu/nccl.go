//go:build gpu && linux

package gpu

// NCCL through dlopen: own declarations of the functions used, no NVIDIA header.

/*
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct { char bytes[128]; } nccl_id;
static struct {
	int (*version)(int *), (*id)(nccl_id *), (*init)(void **, int, nccl_id, int), (*abort)(void *), (*destroy)(void *),
		(*async_error)(void *, int *);
	int (*send)(uintptr_t, size_t, int, int, void *, void *), (*recv)(uintptr_t, size_t, int, int, void *, void *);
	int (*start)(void), (*end)(void);
	const char *(*text)(int), *(*last)(void *);
} nccl;

static const char *nccl_load(void *lib) {
#define GET(field, sym) if (!(*(void **)&nccl.field = dlsym(lib, #sym))) return #sym;
	GET(version, ncclGetVersion) GET(id, ncclGetUniqueId) GET(init, ncclCommInitRank) GET(abort,
		ncclCommAbort) GET(destroy, ncclCommDestroy)
	GET(async_error, ncclCommGetAsyncError) GET(send, ncclSend) GET(recv, ncclRecv) GET(start, ncclGroupStart) GET(end,
		ncclGroupEnd)
	GET(text, ncclGetErrorString)
	*(void **)&nccl.last = dlsym(lib, "ncclGetLastError");   // from 2.13 on
	return 0;
}
static void *nccl_symbol(void) { return (void *)nccl.version; }
static int nccl_version(int *v) { return nccl.version(v); }
static int nccl_new_id(nccl_id *id) { return nccl.id(id); }
static int nccl_init(void **comm, int world, nccl_id *id, int rank) { return nccl.init(comm, world, *id, rank); }
static int nccl_abort(void *comm) { return nccl.abort(comm); }
static int nccl_destroy(void *comm) { return nccl.destroy(comm); }
static int nccl_async(void *comm, int *r) { return nccl.async_error(comm, r); }
static const char *nccl_text(int r) { return nccl.text(r); }
static const char *nccl_last(void) { return nccl.last ? nccl.last(0) : ""; }

typedef struct { uintptr_t at; size_t bytes; int peer, receive; } nccl_part;

// Queues parts as one operation.
static int nccl_run(void *comm, void *stream, const nccl_part *parts, int n) {
	int r = nccl.start(), first = r;
	for (int i = 0; i < n && !first; i++) {
		const nccl_part *p = parts + i;
		// 1: bytes
		first = p->receive ? nccl.recv(p->at, p->bytes, 1, p->peer, comm, stream) : nccl.send(p->at, p->bytes, 1,
			p->peer, comm, stream);
	}
	if (!r) r = nccl.end();
	return first ? first : r;
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/tierlora/tierlora/internal/rescue"
)

// ncclNames are the library's files.
var ncclNames = []string{"libnccl.so.2"}

// NCCL is NVIDIA's library that moves numbers between GPUs, opened at run time.
type NCCL struct{ Path, Version string }

var openedNCCL struct { // the function table is the process's
	sync.Mutex
	lib *NCCL
}

// OpenNCCL opens NCCL: in the folder that TRAINER_NCCL names if it is set, else in dir if not empty, else where the
// loader, a toolkit or Python's packages have it.
func OpenNCCL(dir string) (*NCCL, error) {
	openedNCCL.Lock()
	defer openedNCCL.Unlock()
	if openedNCCL.lib != nil {
		return openedNCCL.lib, nil
	}
	var lib unsafe.Pointer
	var err error
	if folder := os.Getenv("TRAINER_NCCL"); folder != "" {
		if lib, err = openLibrary(folder, ncclNames...); err != nil {
			return nil, fmt.Errorf("TRAINER_NCCL: %w", err)
		}
	} else {
		if dir != "" {
			lib, _ = openLibrary(dir, ncclNames...) // not there: look elsewhere
		}
		if lib == nil {
			if lib, err = openLibrary("", ncclNames...); err != nil {
				return nil, err
			}
		}
	}
	if missing := C.nccl_load(lib); missing != nil {
		return nil, fmt.Errorf("the NCCL library found lacks %s", C.GoString(missing))
	}
	var v C.int
	if r := C.nccl_version(&v); r != 0 {
		return nil, ncclError("ncclGetVersion", r)
	}
	openedNCCL.lib = &NCCL{Path: pathOf(C.nccl_symbol()), Version: ncclVersion(int(v))}
	return openedNCCL.lib, nil
}

// ncclVersion writes the library's number as people do: 22707 is 2.27.7, and of old ones 2708 2.7.8.
func ncclVersion(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// ncclError names the call that failed, the library's word for why, and what it says of it.
func ncclError(call string, r C.int) error {
	text := fmt.Sprintf("%s: %s (%d)", call, C.GoString(C.nccl_text(r)), int(r))
	if last := C.GoString(C.nccl_last()); last != "" {
		text += ": " + last
	}
	return fmt.Errorf("NCCL: %s; NCCL_DEBUG=WARN tells more", text)
}

// UniqueID returns what all ranks of a communicator are given by one of them.
func (*NCCL) UniqueID() ([]byte, error) {
	var id C.nccl_id
	if r := C.nccl_new_id(&id); r != 0 {
		return nil, ncclError("ncclGetUniqueId", r)
	}
	return C.GoBytes(unsafe.Pointer(&id), C.int(unsafe.Sizeof(id))), nil
}

// Comm is a device's place among those that exchange numbers.
type Comm struct {
	Rank, World int
	Version     string // of the library
	mu          sync.Mutex
	comm        unsafe.Pointer // nil: closed
	ended       chan struct{}  // closed when it has been abandoned; nil = it was not
}

// Join makes the device one of a communicator's. All ranks call it at the same time; it waits for them until lost is
// closed. The library's own memory on the device is taken here.
func (n *NCCL) Join(d *Device, id []byte, rank, world int, lost <-chan struct{}) (*Comm, error) {
	var of C.nccl_id
	if len(id) != int(unsafe.Sizeof(of)) {
		return nil, fmt.Errorf("NCCL %s: an id of %d bytes, want %d", n.Version, len(id), unsafe.Sizeof(of))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&of)), len(id)), id)
	type joined struct {
		comm unsafe.Pointer
		err  error
	}
	done := make(chan joined, 1)
	rescue.Go(func() { // on a thread of its own: the call cannot be interrupted
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := d.Use(); err != nil {
			done <- joined{err: err}
			return
		}
		defer came(waitFor("join the other GPUs"))
		var comm unsafe.Pointer
		if r := C.nccl_init(&comm, C.int(world), &of, C.int(rank)); r != 0 {
			done <- joined{err: ncclError("ncclCommInitRank", r)}
			return
		}
		done <- joined{comm: comm}
	})
	select {
	case j := <-done:
		if j.err != nil {
			return nil, fmt.Errorf("device %d, rank %d of %d: %w", d.Index, rank, world, j.err)
		}
		return &Comm{Rank: rank, World: world, Version: n.Version, comm: j.comm}, nil
	case <-lost:
		return nil, fmt.Errorf("device %d, rank %d of %d: another rank was lost while the GPUs were joined", d.Index,
			rank, world)
	}
}

// Part is bytes that go to a peer, or come from one.
type Part struct {
	At      Ptr
	Bytes   int64
	Peer    int
	Receive bool
}

// Exchange is parts that are queued as one operation. It lives as long as the communicator.
type Exchange struct {
	comm  *Comm
	parts []C.nccl_part
}

// Exchange makes ready an operation of parts, of which none may be to or from this rank itself. All ranks queue theirs
// in the same order.
func (c *Comm) Exchange(parts []Part) *Exchange {
	e := &Exchange{comm: c}
	for _, p := range parts {
		if p.Bytes > 0 {
			receive := C.int(0)
			if p.Receive {
				receive = 1
			}
			e.parts = append(e.parts, C.nccl_part{at: C.uintptr_t(p.At), bytes: C.size_t(p.Bytes), peer: C.int(p.Peer),
				receive: receive})
		}
	}
	return e
}

// Run queues the operation; it can be captured.
func (e *Exchange) Run(s *Stream) error {
	if len(e.parts) == 0 {
		return nil
	}
	c := e.comm
	c.mu.Lock()
	comm, ended := c.comm, c.ended
	c.mu.Unlock()
	if comm == nil || ended != nil {
		return fmt.Errorf("NCCL: the exchange with the other GPUs was ended: a rank was lost")
	}
	if r := C.nccl_run(comm, unsafe.Pointer(s.c()), &e.parts[0], C.int(len(e.parts))); r != 0 {
		return ncclError("ncclGroupEnd", r)
	}
	return nil
}

// Err returns what went wrong in an operation that was queued, as far as the library knows; nil = nothing.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm == nil || c.ended != nil {
		return nil
	}
	var r C.int
	if C.nccl_async(c.comm, &r) != 0 || r == 0 {
		return nil
	}
	return ncclError("ncclCommGetAsyncError", r)
}

// Abandon ends operations that wait for a rank which does not come: their kernels leave, and what they have written
// means nothing. It may be called from any goroutine, and returns at once.
func (c *Comm) Abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm == nil || c.ended != nil {
		return
	}
	c.ended = make(chan struct{})
	comm, ended := c.comm, c.ended
	rescue.Go(func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		C.nccl_abort(comm) // what it says of a communicator that is given up changes nothing
	})
}

// abandonWait is how long Close waits for an abandoned communicator, which lets go when the graphs are gone that use
// it.
const abandonWait = 10 * time.Second

// Close gives the communicator back; graphs that use it must be gone by then.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	comm, ended := c.comm, c.ended
	c.comm = nil
	c.mu.Unlock()
	switch {
	case comm == nil:
		return nil
	case ended != nil:
		select {
		case <-ended:
		case <-time.After(abandonWait):
			return fmt.Errorf("NCCL: a communicator that was given up did not let go of its device for %v", abandonWait)
		}
		return nil
	}
	defer came(waitFor("leave the other GPUs"))
	if r := C.nccl_destroy(comm); r != 0 {
		return ncclError("ncclCommDestroy", r)
	}
	return nil
}

// ncclLibrary describes the library for Libraries.
func ncclLibrary(dir string) Library {
	l := Library{Name: "NCCL",
		Without: "a run trains on one GPU: devices above 1 are refused (pip install nvidia-nccl-cu12 has it)"}
	n, err := OpenNCCL(dir)
	if err != nil {
		l.Problem = err.Error()
	} else {
		l.Path, l.Version = n.Path, n.Version
	}
	return l
}
