//go:build gpu && linux

package gpu

/*
#include <cuda.h>

// What the next work captured on s would depend on: at most most nodes. The count, or -1 and *r.
static long tail_nodes(CUstream s, CUgraphNode *to, size_t most, CUresult *r) {
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

// Tail is the end of a piece of captured work: the nodes that what follows it depends on.
type Tail []C.CUgraphNode

// maxTail bounds the nodes of one Tail.
const maxTail = 64

// Tail is the end of what was captured on the stream so far.
func (s *Stream) Tail() (Tail, error) {
	var nodes [maxTail]C.CUgraphNode
	var r C.CUresult
	n := C.tail_nodes(s.c(), &nodes[0], maxTail, &r)
	if n < 0 {
		return nil, check("ask for the end of a capture", "cuStreamGetCaptureInfo", r)
	}
	if n > maxTail {
		return nil, fmt.Errorf("captured work ends in %d places, at most %d are kept", n, maxTail)
	}
	return append(Tail(nil), nodes[:n]...), nil
}

// Follow makes what is captured next depend on the given tails and on nothing else, whatever was captured
// before it. So one stream captures a graph with branches.
func (s *Stream) Follow(tails ...Tail) error {
	var nodes []C.CUgraphNode
	for _, t := range tails {
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
	return check("branch a capture", "cuStreamUpdateCaptureDependencies",
		C.cuStreamUpdateCaptureDependencies(s.c(), first, C.size_t(len(nodes)), C.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
}
