//go:build gpu && linux

package gpu

/*
#include <cuda.h>

// What the next work captured on s would depend on: at most most nodes. The count, or -1 and *r.
static long captured_nodes(CUstream s, CUgraphNode *to, size_t most, CUresult *r) {
	CUstreamCaptureStatus st;
	const CUgraphNode *deps;
	size_t n = 0;
	if ((*r = cuStreamGetCaptureInfo_v2(s, &st, 0, 0, &deps, &n))) return -1;
	for (size_t i = 0; i < n && i < most; i++) to[i] = deps[i];
	return n;
}
*/
import "C"

import (
	"fmt"
	"slices"
)

// Nodes are the end of a piece of captured work: what follows it depends on them.
type Nodes []C.CUgraphNode

// maxNodes bounds the length of one Nodes.
const maxNodes = 64

// CapturedNodes returns the end of what was captured on the stream so far.
func (s *Stream) CapturedNodes() (Nodes, error) {
	var nodes [maxNodes]C.CUgraphNode
	var r C.CUresult
	n := C.captured_nodes(s.c(), &nodes[0], maxNodes, &r)
	if n < 0 {
		return nil, check("ask for the end of a capture", "cuStreamGetCaptureInfo", r)
	}
	if n > maxNodes {
		return nil, fmt.Errorf("captured work ends in %d places, at most %d are kept", n, maxNodes)
	}
	return append(Nodes(nil), nodes[:n]...), nil
}

// DependOn makes what is captured next depend on the given nodes and on nothing else, whatever was captured
// before it. So one stream captures a graph with branches.
func (s *Stream) DependOn(earlier ...Nodes) error {
	var nodes []C.CUgraphNode
	for _, t := range earlier {
		for _, n := range t {
			if !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
	}
	var first *C.CUgraphNode
	if len(nodes) > 0 {
		first = &nodes[0]
	}
	return check("set a capture's dependencies", "cuStreamUpdateCaptureDependencies",
		C.cuStreamUpdateCaptureDependencies(s.c(), first, C.size_t(len(nodes)), C.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
}
