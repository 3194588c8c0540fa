package cuda

import "fmt"

// stateSpaceForms are the sizes that the state_space_* kernels serve: the most columns of a head, and of a state for
// each of them.
var stateSpaceForms = [][2]int{{64, 128}, {64, 256}, {128, 128}}

// stateSpaceForm returns the smallest form that serves heads of P with states of N.
func stateSpaceForm(P, N int) (form [2]int, ok bool) {
	for _, form := range stateSpaceForms {
		if P <= form[0] && N <= form[1] {
			return form, true
		}
	}
	return [2]int{}, false
}

// FitsStateSpace reports whether the state_space_* kernels serve heads of P with states of N.
func FitsStateSpace(P, N int) bool {
	_, ok := stateSpaceForm(P, N)
	return ok
}

// StateSpaceEntry is a kernel of state_space.cu that has forms for sizes.
type StateSpaceEntry string

// The kernels of state_space.cu that have forms for sizes.
const (
	StateSpaceForward      StateSpaceEntry = "forward"
	StateSpaceCached       StateSpaceEntry = "cached"
	StateSpaceGradForward  StateSpaceEntry = "grad_forward"
	StateSpaceGradBackward StateSpaceEntry = "grad_backward"
)

// StateSpace returns the geometry of a kernel whose blocks take heads of P with states of N: S sequences by heads, or
// by groups and shares of their heads.
func StateSpace(entry StateSpaceEntry, S, heads, shares, P, N int) Geometry {
	const tokens, batch, warps = 16, 4, 8
	form, _ := stateSpaceForm(P, N)
	floats := tokens*(2*form[1]+4*form[0]) + batch*warps*form[1] + 5*tokens
	return Geometry{"state_space", fmt.Sprintf("state_space_%s_%d_%d", entry, form[0], form[1]),
		[3]int{max(1, S), heads, shares}, [3]int{256, 1, 1}, 4 * floats}
}

// StateSpaceSum returns the geometry of state_space_sum over M rows of so many columns.
func StateSpaceSum(M, width int) Geometry {
	return Flat("state_space", "state_space_sum", int64(M)*int64(width))
}

// StateSpaceScratch is where the gradient of a scan leaves what its kernels pass on, in bytes.
type StateSpaceScratch struct {
	Shares int   // into how many parts a group's heads are divided; the parts' sums come first
	Read   int64 // where the numbers of a token and head begin
	Bytes  int64
}

// NewStateSpaceScratch lays the scratch out for M rows of H heads in G groups with states of N: as many shares as
// 128 MiB hold, and no more than heads of a group.
func NewStateSpaceScratch(M, H, G, N int) (s StateSpaceScratch) {
	const most = 128 << 20
	each := int64(max(M, 1)) * int64(2*G*N) * 4
	s.Shares = int(min(max(1, most/each), int64(H/G)))
	s.Read = aligned(int64(s.Shares) * each)
	s.Bytes = aligned(s.Read + int64(M)*int64(H)*4)
	return s
}

// ColumnsConv returns the geometry of columns_conv and columns_conv_grad over M rows of W columns.
func ColumnsConv(entry string, M, W int) Geometry {
	return Flat("columns_conv", entry, int64(M)*int64(W))
}

// ColumnsConvCached returns the geometry of columns_conv_cached over W columns of S sequences with slots.
func ColumnsConvCached(W, S int) Geometry {
	return Geometry{"columns_conv", "columns_conv_cached", [3]int{max(1, ceil(W, 128)), S + 1, 1},
		[3]int{128, 1, 1}, 0}
}
