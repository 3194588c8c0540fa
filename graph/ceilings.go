package graph

import (
	"fmt"
	"slices"
	"time"

	"github.com/tierlora/tierlora/kernel"
)

// Ceilings are the fastest that a machine did what kernels are made of, measured on it.
type Ceilings struct {
	Copy     float64 `json:"copy_bytes_per_s"` // of memory, read and written bytes counted
	GEMM     float64 `json:"gemm_flops_per_s"` // of dense matrices
	GEMMOf   string  `json:"gemm"`             // their sizes and how they are stored
	CopyOf   string  `json:"copy"`
	Upload   float64 `json:"upload_bytes_per_s,omitempty"`   // from page-locked host memory to the device
	Download float64 `json:"download_bytes_per_s,omitempty"` // and back
}

// Least returns the seconds that a call of a cost takes at least: those of its bytes or of its operations, whichever
// are more.
func (c Ceilings) Least(cost kernel.Cost) float64 {
	return max(float64(cost.Bytes)/c.Copy, float64(cost.FLOPs)/c.GEMM)
}

// Measure finds the ceilings of a machine that has nothing else to do.
func Measure(on Machine) (Ceilings, error) {
	var c Ceilings
	m, ok := on.(interface{ copyRates(*Ceilings) error })
	if !ok {
		return c, fmt.Errorf("%s runs nothing", on.Name())
	}
	if err := m.copyRates(&c); err != nil {
		return c, fmt.Errorf("measure copies: %w", err)
	}
	if err := gemmRate(on, &c); err != nil {
		return c, fmt.Errorf("measure a GEMM: %w", err)
	}
	return c, nil
}

// Tries of which the fastest counts, and the least time that one takes.
const (
	ceilingTries = 5
	ceilingTime  = 20 * time.Millisecond
)

// fastest returns the shortest time of one run among tries of as many as take long enough to be timed.
func fastest(run, wait func() error) (time.Duration, error) {
	timed := func(n int) (time.Duration, error) {
		began := time.Now()
		for range n {
			if err := run(); err != nil {
				return 0, err
			}
		}
		err := wait()
		return time.Since(began), err
	}
	if _, err := timed(1); err != nil { // pages, clocks
		return 0, err
	}
	n := 1
	var times []time.Duration
	for len(times) < ceilingTries {
		took, err := timed(n)
		if err != nil {
			return 0, err
		}
		if took < ceilingTime && n < 1<<16 {
			n *= 2
			continue
		}
		times = append(times, took/time.Duration(n))
	}
	return max(1, slices.Min(times)), nil
}

// gemmRate times y = a bᵀ of random numbers, as a plan of the machine.
func gemmRate(on Machine, c *Ceilings) error {
	m, n, k := 512, 1024, 1024
	if on.Capabilities().Async {
		m, n, k = 8192, 4096, 4096
	}
	b := NewBuilder(kernel.F32)
	left, right := b.Frozen("a", kernel.T(kernel.F32, m, k)), b.Frozen("b", kernel.T(kernel.F32, n, k))
	y := b.Apply(kernel.MatMul{TransB: true}, left, right)
	plan, err := on.Compile(b, y)
	if err != nil {
		return err
	}
	store, err := on.NewStore(plan)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // a failure shows in what is measured
	x := uint32(1)
	for _, v := range []*Value{left, right} {
		t, err := store.Tensor(v.Name)
		if err != nil {
			return err
		}
		for i := range t.F32() {
			x = x*1664525 + 1013904223 // Numerical Recipes' generator: how many bits flip decides a GPU's clock
			t.F32()[i] = float32(int32(x)) / (1 << 31)
		}
		if err := store.Put(v.Name); err != nil {
			return err
		}
	}
	run, err := on.Bind(plan, store)
	if err != nil {
		return err
	}
	took, err := fastest(func() error { return run.Run("main") }, func() error { return store.Get() })
	if err != nil {
		return err
	}
	c.GEMM, c.GEMMOf = 2*float64(m)*float64(n)*float64(k)/took.Seconds(),
		fmt.Sprintf("%dx%dx%d %v", m, n, k, on.Precision())
	return nil
}

// copyBytes is what a measured copy moves each way: more than caches hold.
const copyBytes = 256 << 20

// copyRates copies memory with all threads.
func (c *CPU) copyRates(to *Ceilings) error {
	from, dst := kernel.Alloc(copyBytes), kernel.Alloc(copyBytes)
	work := c.cpu.Range(copyBytes, 1<<20, func(lo, hi int) { copy(dst[lo:hi], from[lo:hi]) })
	took, err := fastest(func() error { work(); return nil }, func() error { return nil })
	to.Copy, to.CopyOf = 2*copyBytes/took.Seconds(), fmt.Sprintf("memory, %d threads", c.Workers())
	return err
}
