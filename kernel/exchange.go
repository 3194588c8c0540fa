package kernel

import (
	"fmt"
	"slices"
)

// Group is the set of ranks that train one model together, as collective operations use it.
type Group interface {
	Rank() int
	World() int
	// Gather sends bytes to every rank and returns what all ranks sent, by rank. The result is valid until the next
	// call.
	Gather(what string, mine []byte) ([][]byte, error)
	// Lost is closed when a rank is lost, so that nothing waits for it.
	Lost() <-chan struct{}
}

// SliceOf returns the range of n numbers that a rank sums for all ranks: from (inclusive) to to (exclusive). Slices
// have equal lengths, multiples of four, except the last ones, which may be shorter or empty.
func SliceOf(n, rank, world int) (from, to int) {
	each := sliceLength(n, world)
	return min(rank*each, n), min((rank+1)*each, n)
}

func sliceLength(n, world int) int { return ((n+world-1)/world + 3) &^ 3 }

// Exchange hands every rank its slice of all ranks' gradients, and the numbers of each rank to all.
//
//	g f[P], loss f[], stop f[1], (number f[] ...) -> slices f[W,S], losses f[W], stops f[W], (numbers f[W] ...)
//	slices[r] = rank r's g[SliceOf(P, this rank, W)]; what lies behind a shorter slice means nothing
//	losses[r], stops[r], numbers[r] = rank r's loss, stop and number
//
// W is World and S the length of the first slice. It moves numbers and adds none, so the order of the sum is the
// caller's.
type Exchange struct {
	World   int
	Numbers int // of each rank, besides loss and stop
}

func (Exchange) Name() string { return "exchange" }

func (k Exchange) Shape(in []Type) ([]Type, error) {
	want, all := []string{"f[P]", "f[]", "f[1]"}, []int{0, 1, 2}
	for i := range k.Numbers {
		want, all = append(want, "f[]"), append(all, 3+i)
	}
	if _, err := Want(in, want...); err != nil {
		return nil, err
	}
	if err := sameElements(in, all...); err != nil {
		return nil, err
	}
	if k.World < 1 {
		return nil, fmt.Errorf("%d ranks", k.World)
	}
	d := in[0].DType
	out := []Type{T(d, k.World, sliceLength(in[0].Elems(), k.World))}
	for range in[1:] {
		out = append(out, T(d, k.World))
	}
	return out, nil
}

func (k Exchange) CPU(c *CPU, in, out []Tensor) func() {
	g, size := in[0].Bytes(), in[0].DType.Size()
	mine := make([]byte, len(g)+(len(in)-1)*size)
	alone := [][]byte{mine}
	rank, world := c.place()
	return func() {
		copy(mine, g)
		for i, number := range in[1:] {
			copy(mine[len(g)+i*size:], number.Bytes())
		}
		all, ok := c.gather("the gradients", alone, k.World)
		if !ok {
			return
		}
		from, to := SliceOf(in[0].Elems(), rank, world)
		row := len(out[0].Bytes()) / k.World
		for r, theirs := range all {
			filled := copy(out[0].Bytes()[r*row:(r+1)*row], theirs[from*size:to*size])
			clear(out[0].Bytes()[r*row+filled : (r+1)*row])
			for i, numbers := range out[1:] {
				copy(numbers.Bytes()[r*size:(r+1)*size], theirs[len(g)+i*size:])
			}
		}
	}
}

// place returns this rank's among the ranks; one alone where there is no group.
func (c *CPU) place() (rank, world int) {
	if c.Group == nil {
		return 0, 1
	}
	return c.Group.Rank(), c.Group.World()
}

// gather returns the group's Gather of alone's one element among world ranks, of equal lengths. Where it fails there is
// an Err, and ok is false. It allocates nothing for one rank.
func (c *CPU) gather(what string, alone [][]byte, world int) (all [][]byte, ok bool) {
	if c.err == nil && c.Group != nil && c.Group.World() != world {
		c.err = fmt.Errorf("%s: the plan is for %d ranks, and the machine has joined %d", what, world, c.Group.World())
	}
	return c.gatherOf(what, alone, world, 0)
}

// gatherOf returns gather for those of the group's ranks that this one works with: so many, from first on. All ranks of
// the group take part; what others send may have another length.
func (c *CPU) gatherOf(what string, alone [][]byte, ranks, first int) (all [][]byte, ok bool) {
	if c.err != nil {
		return nil, false
	}
	if c.Group == nil && ranks == 1 {
		return alone, true
	}
	mine := alone[0]
	if c.Group == nil || c.Group.World()%ranks != 0 {
		c.err = fmt.Errorf("%s: the plan is for %d ranks, and the machine has not joined them", what, ranks)
		return nil, false
	}
	if all, c.err = c.Group.Gather(what, mine); c.err != nil {
		return nil, false
	}
	all = all[first : first+ranks]
	for r, theirs := range all {
		if len(theirs) != len(mine) {
			c.err = fmt.Errorf("%s: rank %d sent %d bytes, this one %d", what, first+r, len(theirs), len(mine))
			return nil, false
		}
	}
	return all, true
}

// share returns this rank's place among so many neighbours that have a share of the tokens each.
func (c *CPU) share(ranks int) int {
	rank, _ := c.place()
	return rank % max(ranks, 1)
}

// Err returns why a collective operation failed, or nil. Results computed after a failure are meaningless.
func (c *CPU) Err() error { return c.err }

// Cost includes what the links move: this rank's slices go out and the others' come in.
func (Exchange) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

// AddInOrder adds parts to a sum, the first one first: so the sum is the same whoever computed the parts.
//
//	sum f[P], parts f[W,S] -> sum' f[P]
//	sum'[o+i] = ((sum[o+i] + parts[0,i]) + parts[1,i]) + ...
//
// With Slice, o is where this rank's slice of the sum begins (SliceOf) and i goes over the slice; else o is 0, and the
// parts are as long as the sum, which may be f[] then. The output is in the memory of sum.
//
// A part of zeros changes nothing: a sum that began at +0 is never -0, as rounding to nearest gives -0 for two -0
// alone.
type AddInOrder struct{ Slice bool }

func (AddInOrder) Name() string { return "inorder" }

func (k AddInOrder) Shape(in []Type) ([]Type, error) {
	if len(in) != 2 || in[0].DType != F32 && in[0].DType != F64 || in[1].DType != in[0].DType ||
		len(in[1].Shape) == 0 || in[1].Shape[0] < 1 {
		return nil, fmt.Errorf("takes a sum and parts of it, f32 or f64, got %v", in)
	}
	sum, parts := in[0], in[1]
	n, world := sum.Elems(), parts.Shape[0]
	if each := parts.Elems() / world; !k.Slice && each != n || k.Slice && each != sliceLength(n, world) {
		return nil, fmt.Errorf("adds %d parts to a sum %v, got %v", world, sum, parts)
	}
	return []Type{sum}, nil
}

func (AddInOrder) Overwrites() []Alias { return []Alias{{0, 0}} }

func (k AddInOrder) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], addInOrder[float32], addInOrder[float64])(k, c, in, out)
}

func addInOrder[F Float](k AddInOrder, c *CPU, in, out []Tensor) func() {
	sum, parts, world := Floats[F](out[0]), Floats[F](in[1]), in[1].Shape[0]
	each := len(parts) / world
	if k.Slice {
		rank, _ := c.place()
		from, to := SliceOf(len(sum), rank, world)
		sum = sum[from:to]
	}
	return c.Range(len(sum), 1<<14, func(lo, hi int) {
		for r := range world {
			y, p := sum[lo:hi], parts[r*each+lo:r*each+hi]
			for i := range y {
				y[i] += p[i]
			}
		}
	})
}

func (AddInOrder) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[1], 1) }

// GatherSlices makes a sum whole on every rank, each of which has summed its own slice.
//
//	sum f[P] -> sum' f[P]: sum'[SliceOf(P, r, World)] = rank r's
//
// The output is in the memory of sum.
type GatherSlices struct{ World int }

func (GatherSlices) Name() string { return "exchange" }

func (k GatherSlices) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P]"); err != nil {
		return nil, err
	}
	if k.World < 1 {
		return nil, fmt.Errorf("%d ranks", k.World)
	}
	return in[:1], nil
}

func (GatherSlices) Overwrites() []Alias { return []Alias{{0, 0}} }

func (k GatherSlices) CPU(c *CPU, _, out []Tensor) func() {
	sum, n, size := out[0].Bytes(), out[0].Elems(), out[0].DType.Size()
	rank, world := c.place()
	mine := make([]byte, sliceLength(n, world)*size)
	alone := [][]byte{mine}
	return func() {
		from, to := SliceOf(n, rank, world)
		copy(mine, sum[from*size:to*size])
		all, ok := c.gather("the sum of the gradients", alone, k.World)
		if !ok {
			return
		}
		for r, theirs := range all {
			from, to := SliceOf(n, r, world)
			copy(sum[from*size:to*size], theirs)
		}
	}
}

func (GatherSlices) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (Exchange) Stored(in []DType) (want, out []DType) {
	return slices.Repeat([]DType{F32}, len(in)), slices.Repeat([]DType{F32}, len(in))
}

func (AddInOrder) Stored([]DType) (want, out []DType) { return []DType{F32, F32}, []DType{F32} }

func (GatherSlices) Stored([]DType) (want, out []DType) { return []DType{F32}, []DType{F32} }

// AllGather makes tensors whole that lie in slices of equal length, one on each rank (FSDP's and ZeRO stage 3's
// all-gather).
//
//	slice u8[S] -> parts, of any types
//	the slices of rank 0, 1, ... one after the other are a text of World x S bytes; part i is that from byte At[i] on
//
// A plan lays the outputs out as the text has them, so that a GPU needs no copy of what it receives.
type AllGather struct {
	World int
	Parts []Type
	At    []int64 // bytes, ascending; parts do not overlap
}

func (AllGather) Name() string { return "allgather" }

func (k AllGather) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "u8[S]"); err != nil {
		return nil, err
	}
	if k.World < 1 || len(k.Parts) == 0 || len(k.At) != len(k.Parts) {
		return nil, fmt.Errorf("%d ranks, %d parts at %d places", k.World, len(k.Parts), len(k.At))
	}
	var end int64
	for i, t := range k.Parts {
		if k.At[i] < end {
			return nil, fmt.Errorf("part %d begins at byte %d, the one before it ends at %d", i, k.At[i], end)
		}
		end = k.At[i] + t.Bytes()
	}
	if all := int64(k.World) * in[0].Bytes(); end > all {
		return nil, fmt.Errorf("the parts end at byte %d, %d slices of %d bytes at %d", end, k.World, in[0].Bytes(),
			all)
	}
	return k.Parts, nil
}

func (k AllGather) CPU(c *CPU, in, out []Tensor) func() {
	mine := in[0].Bytes()
	alone, size := [][]byte{mine}, int64(len(mine))
	return func() {
		all, ok := c.gather("slices of the base model", alone, k.World)
		if !ok {
			return
		}
		for i, t := range out {
			at := k.At[i]
			for to := t.Bytes(); len(to) > 0; {
				n := copy(to, all[at/size][at%size:])
				to, at = to[n:], at+int64(n)
			}
		}
	}
}

// Cost counts the slice that is read and everything that is written, most of it over the links.
func (k AllGather) Cost(in, _ []Type, _ Content) Cost {
	return Cost{Bytes: int64(k.World+1) * in[0].Bytes()}
}

func (k AllGather) Stored([]DType) (want, out []DType) {
	for _, t := range k.Parts {
		out = append(out, t.DType)
	}
	return []DType{U8}, out
}

// AllToAll hands every rank of a group its block of each rank's rows (MPI_Alltoall). The ranks of a run form groups of
// Ranks neighbours: 0 to Ranks-1, Ranks to 2 Ranks-1, and so on.
//
//	x f[M,C] -> y f[M,C]: block j of y, rows [j M/Ranks, (j+1) M/Ranks), is block i of rank j's x, where this is rank i of its group
//
// It moves numbers and changes none. Done twice it is the identity, so its gradient is itself.
type AllToAll struct{ Ranks int }

func (AllToAll) Name() string { return "alltoall" }

func (k AllToAll) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if k.Ranks < 1 || d.At('M')%k.Ranks != 0 {
		return nil, fmt.Errorf("%d ranks exchange equal blocks of the rows of %v: want a multiple of them", k.Ranks,
			in[0])
	}
	return in, nil
}

func (k AllToAll) Grads() Backward {
	return Backward{Calls: []Call{{k, []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (k AllToAll) CPU(c *CPU, in, out []Tensor) func() {
	mine, y := in[0].Bytes(), out[0].Bytes()
	alone, block := [][]byte{mine}, len(mine)/k.Ranks
	rank, _ := c.place()
	first, place := rank-rank%k.Ranks, rank%k.Ranks
	return func() {
		all, ok := c.gatherOf("the heads and tokens of attention", alone, k.Ranks, first)
		if !ok {
			return
		}
		for j, theirs := range all {
			copy(y[j*block:(j+1)*block], theirs[place*block:])
		}
	}
}

// Cost counts what is read and written; all but one block goes over the links.
func (k AllToAll) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (AllToAll) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
