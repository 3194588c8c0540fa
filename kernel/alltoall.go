package kernel

import "fmt"

// AllToAll hands every rank of a group its block of each rank's rows (MPI_Alltoall). The ranks of a run form groups of Ranks
// neighbours: 0 to Ranks-1, Ranks to 2 Ranks-1, and so on.
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
		return nil, fmt.Errorf("%d ranks exchange equal blocks of the rows of %v: want a multiple of them", k.Ranks, in[0])
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

// Cost is of what is read and written; all but one block goes over the links.
func (k AllToAll) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (AllToAll) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
