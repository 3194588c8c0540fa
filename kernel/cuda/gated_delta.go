package cuda

import "fmt"

// Sizes of gated_delta.cuh and of what includes it.
const (
	deltaChunk    = 32
	deltaHead     = 128
	deltaPrepared = (4*deltaChunk)*2 + 8*4 // bytes of a Prepared
)

// FitsGatedDelta tells whether the gated_delta_* kernels take queries and keys of D and values of E.
func FitsGatedDelta(D, E int) bool { return D > 0 && D <= deltaHead && D%4 == 0 && E > 0 && E%4 == 0 }

// GatedDeltaPrepare returns the geometry of gated_delta_prepare over M rows of K key heads.
func GatedDeltaPrepare(M, K int) Geometry {
	return Geometry{"gated_delta_prepare", "gated_delta_prepare", [3]int{ceil(M, deltaChunk), K, 1}, [3]int{128, 1, 1},
		2*deltaChunk*(deltaHead+4)*4 + 2*deltaChunk*(deltaChunk+4)*4}
}

// GatedDelta returns the geometry of gated_delta_forward_* over S sequences and V value heads of E.
func GatedDelta(S, V, E int) Geometry { return delta("gated_delta", "gated_delta_forward", S, V, E) }

// GatedDeltaStates returns that of gated_delta_states_*.
func GatedDeltaStates(S, V, E int) Geometry {
	return delta("gated_delta", "gated_delta_states", S, V, E)
}

// GatedDeltaCarry returns that of gated_delta_carry_*.
func GatedDeltaCarry(S, V, E int) Geometry {
	return delta("gated_delta_backward", "gated_delta_carry", S, V, E)
}

// delta returns a block's for a sequence's value head and 64 columns of it, or 32 where that would leave
// multiprocessors without work; which of them does not change a bit. It has three stages of 16-bit numbers in shared
// memory; one of fp32 takes less.
func delta(stem, entry string, S, V, E int) Geometry {
	cols := 64
	if S*V*ceil(E, 64) <= 96 {
		cols = 32
	}
	stage := 2*2*deltaChunk*(deltaHead+8) + 2*4*deltaChunk*(deltaChunk+8) + 2*deltaChunk*(cols+8) + deltaChunk*8*4
	return Geometry{stem, fmt.Sprintf("%s_%d", entry, cols), [3]int{S, V, ceil(E, cols)}, [3]int{64 + 2*cols, 1, 1},
		3 * stage}
}

// GatedDeltaGradients returns the geometry of gated_delta_gradients over M rows of K key heads. Its tiles are largest
// in fp32.
func GatedDeltaGradients(M, K int) Geometry {
	const block = 32
	floats := (2*deltaChunk+2*block)*(deltaHead+4) + 2*deltaChunk*(block+8) + (2*deltaChunk+2*block)*(deltaChunk+8) +
		deltaChunk*8
	return Geometry{"gated_delta_backward", "gated_delta_gradients", [3]int{ceil(M, deltaChunk), K, 1},
		[3]int{128, 1, 1}, 4 * floats}
}

// DeltaWindow is how many rows are prepared at a time, and have their states in memory in the backward pass of the
// gated delta rule.
const DeltaWindow = 8192

// GatedDeltaScratch is where a pass over M rows leaves what its kernels tell one another, in bytes from its beginning.
// What is prepared comes first.
type GatedDeltaScratch struct {
	Edges int64 // two, by turns: the state behind a window, or its gradient
	Edge  int64 // bytes of one
	Bytes int64
}

// NewGatedDeltaScratch lays it out for V value heads of E. A window's last chunk may end behind it.
func NewGatedDeltaScratch(M, V, D, E int) (s GatedDeltaScratch) {
	s.Edges = aligned(int64(min(M, DeltaWindow+deltaChunk-1)) * int64(V) * deltaPrepared)
	if M > DeltaWindow {
		s.Edge = 4 * int64(V) * int64(D) * int64(E)
	}
	s.Bytes = aligned(s.Edges + 2*s.Edge)
	return s
}

// GatedDeltaGradScratch is that of the backward pass.
type GatedDeltaGradScratch struct {
	GatedDeltaScratch
	States, Grads int64 // before the chunks of a window, and their gradients
	Borders       int64 // the states before the windows, each of Edge
}

// NewGatedDeltaGradScratch lays it out where elem is the element type's name.
func NewGatedDeltaGradScratch(elem string, M, V, D, E int) GatedDeltaGradScratch {
	s, kept := GatedDeltaGradScratch{GatedDeltaScratch: NewGatedDeltaScratch(M, V, D, E)},
		deltaKept(elem, min(M, DeltaWindow), V, D, E)
	s.States, s.Grads, s.Borders = s.Bytes, s.Bytes+kept, s.Bytes+2*kept
	s.Bytes = aligned(s.Borders + int64(ceil(M, DeltaWindow))*s.Edge)
	return s
}

// deltaKept returns the bytes of the states before the chunks of so many rows.
func deltaKept(elem string, rows, V, D, E int) int64 {
	size := int64(4)
	if elem == "bf16" {
		size = 2
	}
	return aligned(int64(ceil(rows, deltaChunk)+1) * int64(V) * int64(D) * int64(E) * size)
}

func aligned(bytes int64) int64 { return (bytes + 255) &^ 255 }

// GatedDeltaCached returns the geometry of gated_delta_cached over S sequences and V value heads of E.
func GatedDeltaCached(S, V, E int) Geometry {
	return Geometry{"gated_delta_cached", "gated_delta_cached", [3]int{S, V, ceil(E, 32)}, [3]int{128, 1, 1}, 0}
}
