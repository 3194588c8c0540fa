package kernel

import "github.com/tierlora/tierlora/kernel/gemm"

// CPU is what CPU bodies are bound with: the worker threads, the call's scratch memory if it asked for any, and the ranks
// of a data-parallel run; nil = there is one.
type CPU struct {
	Pool    *gemm.Pool
	Scratch []byte
	Group   Group
	err     error // of a collective operation
}

// Instructions names the set that this processor's GEMMs use, such as avx512: another rounds otherwise.
func Instructions() string { return gemm.Instructions() }

// NewCPU starts workers threads; 0 means one for each core.
func NewCPU(workers int) *CPU { return &CPU{Pool: gemm.NewPool(workers)} }

// Workers is the number of threads.
func (c *CPU) Workers() int { return c.Pool.Workers() }

// Range returns work that calls f for [0,n) in pieces of grain, spread over the threads. The pieces do not
// depend on the number of threads, so a result that is a function of its piece does not either.
func (c *CPU) Range(n, grain int, f func(lo, hi int)) func() {
	pieces := (n + grain - 1) / grain
	piece := func(i int) { f(i*grain, min((i+1)*grain, n)) }
	if pieces <= 1 {
		return func() { f(0, n) }
	}
	pool := c.Pool
	return func() { pool.Parallel(pieces, piece) }
}

// rowGrain is how many rows of n elements make a piece of work worth handing to a thread.
func rowGrain(n int) int { return max(1, 1<<14/max(n, 1)) }
