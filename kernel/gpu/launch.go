//go:build gpu && linux

package gpu

/*
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
	CUfunction f;
	unsigned grid[3], block[3], shared, n;
	void *params[48];
	_Alignas(64) char args[4096];
} launch_t;

static launch_t *launch_new(void) { return aligned_alloc(64, sizeof(launch_t)); }
static CUresult launch_run(launch_t *l, CUstream s) {
	return cuLaunchKernel(l->f, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared, s,
		l->params, 0);
}
static void launch_params(const launch_t *l, CUDA_KERNEL_NODE_PARAMS *p) {
	memset(p, 0, sizeof *p);
	p->func = l->f;
	p->gridDimX = l->grid[0]; p->gridDimY = l->grid[1]; p->gridDimZ = l->grid[2];
	p->blockDimX = l->block[0]; p->blockDimY = l->block[1]; p->blockDimZ = l->block[2];
	p->sharedMemBytes = l->shared;
	p->kernelParams = (void **)l->params;
}
static CUresult launch_update(CUgraphExec e, CUgraphNode n, const launch_t *l) {
	CUDA_KERNEL_NODE_PARAMS p;
	launch_params(l, &p);
	return cuGraphExecKernelNodeSetParams(e, n, &p);
}
// The node that the last captured launch on s became.
static CUresult last_node(CUstream s, CUgraphNode *n) {
	CUstreamCaptureStatus st;
	const CUgraphNode *deps;
	size_t count = 0;
	CUresult r = cuStreamGetCaptureInfo_v2(s, &st, 0, 0, &deps, &count);
	if (r == 0) *n = count == 1 ? deps[0] : 0;
	return r;
}
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

// Module is a loaded image (cubin, PTX or fatbin).
type Module struct {
	Name string
	m    cu.Module
	dev  *Device
}

// Load loads an image; name stands in errors.
func (d *Device) Load(name string, image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, fmt.Errorf("module %s: empty image", name)
	}
	var m C.CUmodule
	if err := check("load module "+name, "cuModuleLoadData",
		C.cuModuleLoadData(&m, unsafe.Pointer(&image[0]))); err != nil {
		return nil,
			fmt.Errorf("%w (device %s, compute capability %d.%d, driver for CUDA %s; kernels built with CUDA %s)",
				err, d.Name, d.Major, d.Minor, VersionText(d.Driver), VersionText(KernelsVersion))
	}
	mod := &Module{Name: name, dev: d}
	// cu.Module is one CUmodule; its own LoadData copies the image as a C string
	*(*C.CUmodule)(unsafe.Pointer(&mod.m)) = m
	return mod, nil
}

// Unload gives the module's device memory back.
func (m *Module) Unload() error {
	return wrap("unload module "+m.Name, "cuModuleUnload", m.m.Unload())
}

// Function is a kernel of a loaded module.
type Function struct {
	Name       string
	Registers  int
	Shared     int // static shared memory, bytes
	Local      int // spills and stack, bytes a thread
	MaxThreads int // of one block
	Params     []Param
	f          C.CUfunction
	dev        *Device
	dynamic    int // dynamic shared memory opted in so far
}

// Function finds a kernel by its C name.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{Name: name, dev: m.dev}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	if err := check("find kernel "+name+" in module "+m.Name, "cuModuleGetFunction",
		C.cuModuleGetFunction(&f.f, *(*C.CUmodule)(unsafe.Pointer(&m.m)), cname)); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		to   *int
		attr C.CUfunction_attribute
	}{
		{&f.Registers, C.CU_FUNC_ATTRIBUTE_NUM_REGS}, {&f.Shared, C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
		{&f.Local, C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES}, {&f.MaxThreads, C.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
	} {
		var v C.int
		if err := check(name, "cuFuncGetAttribute", C.cuFuncGetAttribute(&v, a.attr, f.f)); err != nil {
			return nil, err
		}
		*a.to = int(v)
	}
	for i := 0; ; i++ { // from driver 12.4 on; an older one leaves Params nil and sizes unchecked
		var off, size C.size_t
		r := C.cuFuncGetParamInfo(f.f, C.size_t(i), &off, &size)
		if r == codeNotSupported {
			f.Params = nil
			break
		}
		if r != 0 {
			break
		}
		f.Params = append(f.Params, Param{int(off), int(size)})
	}
	return f, nil
}

// Launch is one kernel launch, checked and packed once. Running it allocates nothing. It lives until Free.
type Launch struct {
	fn    *Function
	l     *C.launch_t
	early bool
}

// Prepare checks and packs a launch. Arguments are gpu.Ptr, int32, uint32, int64, float32 or TensorMap; shared is the
// dynamic shared memory in bytes, more than 48 KB included.
func (f *Function) Prepare(grid, block [3]int, shared int, args ...any) (*Launch, error) {
	if err := checkGrid(f.Name, grid, block, shared, f.MaxThreads); err != nil {
		return nil, err
	}
	if f.Shared+shared > f.dev.SharedPerBlock {
		return nil, fmt.Errorf("%s: %d bytes of shared memory, %s has %d a block", f.Name, f.Shared+shared, f.dev.Name,
			f.dev.SharedPerBlock)
	}
	if f.Shared+shared > 48<<10 && shared > f.dynamic { // static and dynamic together go without opting in up to there
		if err := check(f.Name, "cuFuncSetAttribute", C.cuFuncSetAttribute(f.f,
			C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(shared))); err != nil {
			return nil, err
		}
		f.dynamic = shared
	}
	l := &Launch{fn: f, l: C.launch_new()}
	if l.l == nil {
		return nil, fmt.Errorf("%s: no host memory for the launch", f.Name)
	}
	l.l.f, l.l.shared = f.f, C.uint(shared)
	for i := range 3 {
		l.l.grid[i], l.l.block[i] = C.uint(grid[i]), C.uint(block[i])
	}
	if err := l.Set(args...); err != nil {
		l.Free()
		return nil, err
	}
	return l, nil
}

// Set replaces all arguments. A captured graph keeps the old ones until Graph.Update.
func (l *Launch) Set(args ...any) error {
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&l.l.args[0])), maxArgsBytes)
	offsets, err := pack(l.fn.Name, buf, l.fn.Params, args)
	if err != nil {
		return err
	}
	l.l.n = C.uint(len(args))
	for i, o := range offsets {
		l.l.params[i] = unsafe.Pointer(&l.l.args[o])
	}
	return nil
}

// Name returns the kernel's name.
func (l *Launch) Name() string { return l.fn.Name }

// Run queues the launch.
func (l *Launch) Run(s *Stream) error {
	if r := C.launch_run(l.l, s.c()); r != 0 {
		return check(l.fn.Name, "cuLaunchKernel", r)
	}
	if s.capture != nil {
		return s.capture.note(s, l)
	}
	return nil
}

// Free gives the launch's host memory back.
func (l *Launch) Free() {
	if l != nil && l.l != nil {
		C.free(unsafe.Pointer(l.l))
		l.l = nil
	}
}

// Graph is a captured, instantiated sequence of device work.
type Graph struct {
	Kernels []string // names of the captured kernels in order
	graph   C.CUgraph
	exec    C.CUgraphExec
	nodes   map[*Launch][]C.CUgraphNode // a launch may run more than once in one graph
	joined  []*Stream                   // other streams that took part in the capture
	early   int
}

// note remembers which node a captured launch became.
func (g *Graph) note(s *Stream, l *Launch) error {
	var n C.CUgraphNode
	if err := check(l.fn.Name, "cuStreamGetCaptureInfo", C.last_node(s.c(), &n)); err != nil {
		return err
	}
	g.nodes[l] = append(g.nodes[l], n)
	g.Kernels = append(g.Kernels, l.fn.Name)
	return nil
}

// Capture records what work queues on s, without running it, and makes it replayable. Independent work may go to other
// streams that wait for an event of s first and that s waits for at the end (Stream.Wait): the graph then runs it side
// by side.
func Capture(s *Stream, work func() error) (*Graph, error) {
	return capture(s, work, func(*Graph) error { return nil })
}

// capture changes the graph before it makes it replayable.
func capture(s *Stream, work func() error, change func(*Graph) error) (*Graph, error) {
	g := &Graph{nodes: map[*Launch][]C.CUgraphNode{}}
	if err := check("begin capture", "cuStreamBeginCapture",
		C.cuStreamBeginCapture(s.c(), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); err != nil {
		return nil, err
	}
	s.capture = g
	werr := work()
	for _, j := range append(g.joined, s) {
		j.capture = nil
	}
	g.joined = nil
	err := check("end capture", "cuStreamEndCapture", C.cuStreamEndCapture(s.c(), &g.graph))
	if werr != nil {
		g.Close()
		return nil, fmt.Errorf("capture: %w", werr)
	}
	if err != nil {
		return nil, fmt.Errorf("capture of %d kernels (last %s): %w", len(g.Kernels), last(g.Kernels), err)
	}
	if err := change(g); err != nil {
		g.Close()
		return nil, err
	}
	defer came(waitFor("make a graph of the step"))
	if err := check(fmt.Sprintf("graph of %d kernels", len(g.Kernels)), "cuGraphInstantiate",
		C.cuGraphInstantiate(&g.exec, g.graph, 0)); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func last(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Clone(names[len(names)-1])
}

// Nodes returns the number of launches, copies and fills in the graph.
func (g *Graph) Nodes() (int, error) {
	var n C.size_t
	err := check("count the graph's nodes", "cuGraphGetNodes", C.cuGraphGetNodes(g.graph, nil, &n))
	return int(n), err
}

// Replay queues the whole graph.
func (g *Graph) Replay(s *Stream) error {
	defer came(waitFor("queue the step"))
	if r := C.cuGraphLaunch(g.exec, s.c()); r != 0 {
		return check(fmt.Sprintf("replay a graph of %d kernels", len(g.Kernels)), "cuGraphLaunch", r)
	}
	return nil
}

// Update gives the graph the launch's present arguments, grid and shared memory, without a new capture.
func (g *Graph) Update(l *Launch) error {
	if len(g.nodes[l]) == 0 {
		return fmt.Errorf("%s: this launch is not part of the graph", l.fn.Name)
	}
	for _, n := range g.nodes[l] {
		if err := check(l.fn.Name, "cuGraphExecKernelNodeSetParams", C.launch_update(g.exec, n, l.l)); err != nil {
			return err
		}
	}
	return nil
}

// Close destroys the graph.
func (g *Graph) Close() error {
	var err error
	if g.exec != nil {
		err = check("close graph", "cuGraphExecDestroy", C.cuGraphExecDestroy(g.exec))
	}
	if g.graph != nil && err == nil {
		err = check("close graph", "cuGraphDestroy", C.cuGraphDestroy(g.graph))
	}
	g.exec, g.graph = nil, nil
	return err
}
