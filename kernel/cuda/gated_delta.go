package cuda

import "fmt"

// Sizes of gated_delta.cuh, gated_delta.cu and gated_delta_backward.cu.
const (
	deltaChunk = 32
	deltaHead  = 128
	deltaBlock = 32 // columns of a value head at a time in gated_delta_gradients

	deltaKeys  = deltaChunk * (deltaHead + 4)  // floats of a chunk's keys
	deltaPairs = deltaChunk * (deltaChunk + 4) // of a matrix of its tokens by its tokens
)

// FitsGatedDelta tells whether the gated_delta_* kernels take queries and keys of D and values of E.
func FitsGatedDelta(D, E int) bool { return D > 0 && D <= deltaHead && D%4 == 0 && E > 0 && E%4 == 0 }

// GatedDelta is the geometry of gated_delta_forward_* over S sequences and V value heads of E.
func GatedDelta(S, V, E int) Geometry {
	return delta("gated_delta", "gated_delta_forward", S, V, E, 2*deltaKeys+2*deltaPairs)
}

// GatedDeltaStates is that of gated_delta_states_*.
func GatedDeltaStates(S, V, E int) Geometry {
	return delta("gated_delta", "gated_delta_states", S, V, E, deltaKeys+deltaPairs)
}

// GatedDeltaCarry is that of gated_delta_carry_*.
func GatedDeltaCarry(S, V, E int) Geometry {
	return delta("gated_delta_backward", "gated_delta_carry", S, V, E, 2*deltaKeys+2*deltaPairs)
}

// delta is a block's for a sequence's value head and 64 columns of it, or 32 where that would leave multiprocessors without work; which of
// them does not change a bit. A block also has a state and two matrices of its chunk in that many columns.
func delta(stem, entry string, S, V, E, floats int) Geometry {
	cols := 64
	if S*V*ceil(E, 64) <= 96 {
		cols = 32
	}
	return Geometry{stem, fmt.Sprintf("%s_%d", entry, cols), [3]int{S, V, ceil(E, cols)}, [3]int{256, 1, 1}, 4 * (floats + (deltaHead+2*deltaChunk)*(cols+8))}
}

// GatedDeltaGradients is the geometry of gated_delta_gradients over M rows of K key heads.
func GatedDeltaGradients(M, K int) Geometry {
	floats := 2*deltaKeys + 2*deltaPairs + (2*deltaHead+3*deltaChunk)*(deltaBlock+8)
	return Geometry{"gated_delta_backward", "gated_delta_gradients", [3]int{ceil(M, deltaChunk), K, 1}, [3]int{256, 1, 1}, 4 * floats}
}

// DeltaWindow is how many rows have their states in memory at a time, in the backward pass of the gated delta rule.
const DeltaWindow = 8192

// GatedDeltaScratch is where the backward pass of M rows leaves what its kernels tell one another, in bytes from its beginning.
type GatedDeltaScratch struct {
	Grads   int64 // behind the states before the chunks of a window: their gradients
	Borders int64 // the states before the windows
	Edges   int64 // two, by turns: the gradient of the state behind a window
	Edge    int64 // bytes of one
	Bytes   int64
}

// NewGatedDeltaScratch lays it out for V value heads of E and elem, the element type's name.
func NewGatedDeltaScratch(elem string, M, V, D, E int) (s GatedDeltaScratch) {
	size, rows, state := int64(4), min(M, DeltaWindow), int64(V)*int64(D)*int64(E)
	if elem == "bf16" {
		size = 2
	}
	s.Grads = (int64(ceil(rows, deltaChunk)+1)*state*size + 255) &^ 255
	s.Borders, s.Bytes = 2*s.Grads, 2*s.Grads
	if M > DeltaWindow {
		s.Edge = 4 * state
		s.Edges = s.Borders + int64(ceil(M, DeltaWindow))*s.Edge
		s.Bytes = (s.Edges + 2*s.Edge + 255) &^ 255
	}
	return s
}

// GatedDeltaCached is the geometry of gated_delta_cached over S sequences and V value heads of E.
func GatedDeltaCached(S, V, E int) Geometry {
	return Geometry{"gated_delta_cached", "gated_delta_cached", [3]int{S, V, ceil(E, 32)}, [3]int{128, 1, 1}, 0}
}
