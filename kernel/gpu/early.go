//go:build gpu && linux

package gpu

/*
#include <cuda.h>

// Puts a dependency in place of another that lets `to` begin when all blocks of `from` have said so. Where the driver
// has no such dependencies *there is 0 and all is as before.
static CUresult begin_early(CUgraph g, CUgraphNode from, CUgraphNode to, int *there) {
	CUgraphEdgeData d = {CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
	CUresult r = cuGraphRemoveDependencies(g, &from, &to, 1);
	*there = 1;
	if (r) return r;
	r = cuGraphAddDependencies_v2(g, &from, &to, &d, 1);
	if (r != CUDA_ERROR_NOT_SUPPORTED) return r;
	*there = 0;
	return cuGraphAddDependencies(g, &from, &to, 1);
}
*/
import "C"

// BeginsEarly says that the kernel waits by itself for those before it (kernel/cuda/early.cuh): CaptureEarly lets it
// begin before they have ended.
func (l *Launch) BeginsEarly() { l.early = true }

// earlyFrom is the least compute capability of devices where a kernel may begin early.
const earlyFrom = 90

// CaptureEarly returns Capture, but a launch that BeginsEarly and depends on launches alone, at most most of them,
// begins when all their blocks run or have ended, on devices and with drivers that can do so.
func CaptureEarly(s *Stream, most int, work func() error) (*Graph, error) {
	if most == 0 {
		return Capture(s, work)
	}
	return capture(s, work, func(g *Graph) error { return g.beginEarly(most) })
}

// Early returns the number of dependencies that do not wait for the end of a launch.
func (g *Graph) Early() int { return g.early }

func (g *Graph) beginEarly(most int) error {
	launches := map[C.CUgraphNode]*Launch{}
	for l, nodes := range g.nodes {
		if l.fn.dev.SM() < earlyFrom {
			return nil
		}
		for _, n := range nodes {
			launches[n] = l
		}
	}
	var n C.size_t
	if err := check("count the graph's edges", "cuGraphGetEdges",
		C.cuGraphGetEdges(g.graph, nil, nil, &n)); err != nil || n == 0 {
		return err
	}
	from, to := make([]C.CUgraphNode, n), make([]C.CUgraphNode, n)
	if err := check("list the graph's edges", "cuGraphGetEdges",
		C.cuGraphGetEdges(g.graph, &from[0], &to[0], &n)); err != nil {
		return err
	}
	needs := map[C.CUgraphNode]int{}
	full := map[C.CUgraphNode]bool{} // depends on a copy or a fill
	for i := range from {
		needs[to[i]]++
		if launches[from[i]] == nil {
			full[to[i]] = true
		}
	}
	for i := range from {
		l := launches[to[i]]
		if l == nil || !l.early || needs[to[i]] > most || full[to[i]] {
			continue
		}
		var there C.int
		err := check("let "+l.fn.Name+" begin early", "cuGraphAddDependencies",
			C.begin_early(g.graph, from[i], to[i], &there))
		if err != nil || there == 0 {
			return err
		}
		g.early++
	}
	return nil
}
