package kernel

import "github.com/tierlora/tierlora/kernel/gemm"

// CPU holds what CPU bodies are bound with: the worker threads, the call's scratch memory if it needs any, and the
// group of ranks of a data-parallel run, nil for a single rank.
type CPU struct {
	Pool    *gemm.Pool
	Scratch []byte
	Group   Group
	err     error // of a collective operation
}

// Instructions returns the instruction set that GEMMs use on this processor, such as avx512. Results of different sets
// differ in rounding.
func Instructions() string { return gemm.Instructions() }

// NewCPU starts worker threads; 0 stands for one for each core.
func NewCPU(workers int) *CPU { return &CPU{Pool: gemm.NewPool(workers)} }

// Workers returns the number of threads.
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

// rowGrain returns how many rows of n elements make a piece of work worth handing to a thread.
func rowGrain(n int) int { return max(1, 1<<14/max(n, 1)) }
