//go:build gpu

package kernel

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

const (
	trialRounds = 5                      // times that each algorithm is timed
	trialSample = 200 * time.Microsecond // least time of a sample, in which short GEMMs run several times
	trialRuns   = 20                     // runs of a sample, at most
	trialGain   = 0.99                   // of the first choice's time, that a faster algorithm takes at most
	trialSlower = 1.15                   // of the least time: an algorithm that takes longer once is left out
	trialLeast  = 1 << 30                // floating-point operations of a GEMM that is worth trials
	trialBlock  = 1<<20 - 3              // numbers that are drawn; a prime, so that rows differ
)

// Trials is where and for how long algorithms for GEMMs are tried while plans are bound.
type Trials struct {
	At    gpu.Ptr // memory that nothing else uses meanwhile
	Bytes int64
	Left  time.Duration
}

// planGemm chooses the algorithm for a GEMM: the one whose bits the heuristics' first choice gives, and of those that
// give the same bits in a trial on random numbers the fastest. So time decides no number.
func (g *GPU) planGemm(x gpu.Gemm) (*gpu.PlannedGemm, error) {
	plan, err := g.BLAS.Plan(x, blasWorkspace, g.Algorithms)
	if err != nil || g.Trials == nil || g.Algorithms == nil {
		return plan, err
	}
	if 2*int64(x.M)*int64(x.N)*int64(x.K) < trialLeast || g.Algorithms.Tried(plan.Key(plan.Workspace)) {
		return plan, nil
	}
	began := time.Now()
	err = g.tryAlgorithms(plan)
	g.Trials.Left -= time.Since(began)
	if err != nil {
		plan.Free()
		return nil, err
	}
	return plan, nil
}

// trial is one GEMM's operands in the memory for trials.
type trial struct {
	*gpu.PlannedGemm
	g               *GPU
	a, b            gpu.Ptr
	want, got       gpu.Ptr // results of the first choice and of another
	start           gpu.Ptr // what the result holds before, where the GEMM adds to it
	outBytes        int64   // of a result
	differ, scratch gpu.Ptr
	differs         func() error // sets differ
	began, ended    *gpu.Event
	algorithms      [][]byte
	runs            int // of a sample
}

// tryAlgorithms times a GEMM's algorithms where there is memory and time for it, and makes the plan run the fastest.
func (g *GPU) tryAlgorithms(plan *gpu.PlannedGemm) error {
	t := &trial{PlannedGemm: plan, g: g}
	if g.Trials.Left <= 0 || !t.place() {
		return nil
	}
	found, err := plan.Candidates()
	if err != nil {
		return err
	}
	key := plan.Key(plan.Workspace)
	first := g.Algorithms.Choice[key]
	found = slices.DeleteFunc(found, func(a []byte) bool { return slices.Equal(a, first) })
	t.algorithms = append([][]byte{first}, found...)
	if t.began, err = g.Device.NewEvent(); err != nil {
		return err
	}
	if t.ended, err = g.Device.NewEvent(); err != nil {
		return errors.Join(err, t.began.Close())
	}
	best, err := t.fastest()
	if err = errors.Join(err, t.began.Close(), t.ended.Close()); err != nil {
		return err
	}
	if best != nil && plan.Use(best) {
		g.Algorithms.SetFastest(key, best)
	}
	return nil
}

// place divides the memory and reports whether it is enough.
func (t *trial) place() bool {
	at := t.g.Trials.At
	take := func(bytes int64) gpu.Ptr { // cuBLASLt takes scratch memory at multiples of 256 alone
		p := at
		at = at.Add((bytes + gpu.Align - 1) &^ (gpu.Align - 1))
		return p
	}
	rowsA, rowsB := t.M, t.K
	if t.TransA {
		rowsA = t.K
	}
	if t.TransB {
		rowsB = t.N
	}
	size := int64(typeSizes[t.In])
	t.outBytes = (int64(t.M)*int64(t.LDD)*int64(typeSizes[t.Out]) + 15) &^ 15
	t.a, t.b = take(int64(rowsA)*int64(t.LDA)*size), take(int64(rowsB)*int64(t.LDB)*size)
	t.want, t.got = take(t.outBytes), take(t.outBytes)
	if t.Beta != 0 {
		t.start = take(t.outBytes)
	}
	t.differ, t.scratch = take(4), take(t.Workspace)
	return int64(at-t.g.Trials.At) <= t.g.Trials.Bytes
}

// typeSizes are the sizes of the library's types, in bytes.
var typeSizes = map[gpu.DType]int{gpu.BF16: 2, gpu.F16: 2, gpu.F32: 4}

// fastest returns the fastest of the algorithms that give the first one's bits; the first where none is faster.
func (t *trial) fastest() ([]byte, error) {
	s := t.g.Stream
	if err := t.fill(); err != nil {
		return nil, err
	}
	var err error
	if t.differs, err = t.g.Launch(cuda.Equal(t.outBytes/16), t.differ, t.want, t.got, t.outBytes/16); err != nil {
		return nil, err
	}
	if !t.Use(t.algorithms[0]) {
		return nil, nil
	}
	if err := t.run(t.want); err != nil {
		return nil, err
	}
	same := t.algorithms[:1]
	for _, a := range t.algorithms[1:] {
		ok, err := t.sameBits(a)
		if err != nil {
			return nil, err
		}
		if ok {
			same = append(same, a)
		}
	}
	times, err := t.times(same)
	if err != nil {
		return nil, err
	}
	best := 0
	for i, d := range times {
		if float64(d) < trialGain*float64(times[0]) && d < times[best] {
			best = i
		}
	}
	// The memory is as it was before the first step.
	n := int64(t.scratch-t.g.Trials.At) + t.Workspace
	return same[best], errors.Join(s.Fill(t.g.Trials.At, 0, n), s.Synchronize())
}

// fill draws the operands.
func (t *trial) fill() error {
	inputs := int64(t.want - t.a)
	if err := t.draw(t.a, inputs, t.In); err != nil {
		return err
	}
	if t.Beta == 0 {
		return t.g.Stream.Fill(t.want, 0, int64(t.got-t.want)+t.outBytes)
	}
	return t.draw(t.start, t.outBytes, t.Out)
}

// draw fills memory with numbers between -1 and 1: a block of them, repeated.
func (t *trial) draw(at gpu.Ptr, bytes int64, of gpu.DType) error {
	size := int64(typeSizes[of])
	block := min(trialBlock*size, bytes)
	r := rand.New(rand.NewPCG(1, 2))
	numbers := make([]byte, 0, block)
	for int64(len(numbers)) < block {
		numbers = appendNumber(numbers, of, r.Float32()*2-1)
	}
	if err := gpu.Upload(at, numbers[:block]); err != nil {
		return err
	}
	for have := block; have < bytes; have *= 2 {
		if err := t.g.Stream.Copy(at.Add(have), at, min(have, bytes-have)); err != nil {
			return err
		}
	}
	return nil
}

// appendNumber appends a number as the device stores it.
func appendNumber(b []byte, of gpu.DType, f float32) []byte {
	switch of {
	case gpu.BF16:
		return binary.LittleEndian.AppendUint16(b, uint16(ToBF16(f)))
	case gpu.F16:
		return binary.LittleEndian.AppendUint16(b, uint16(ToF16(f)))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
}

// run queues the GEMM into out, which holds the same numbers before.
func (t *trial) run(out gpu.Ptr) error {
	if t.Beta != 0 {
		if err := t.g.Stream.Copy(out, t.start, t.outBytes); err != nil {
			return err
		}
	}
	return t.Run(t.g.Stream, out, t.a, t.b, t.scratch)
}

// sameBits reports whether an algorithm runs and gives the bits of the first.
func (t *trial) sameBits(algorithm []byte) (bool, error) {
	if !t.Use(algorithm) {
		return false, nil
	}
	s, differ := t.g.Stream, make([]int32, 1)
	err := errors.Join(s.Fill(t.differ, 0, 4), t.run(t.got), t.differs(), s.Synchronize())
	if err == nil {
		err = gpu.Download(differ, t.differ)
	}
	return differ[0] == 0, err
}

// times returns the median time of each algorithm. Their samples alternate, so that the card's clock, which moves,
// is alike for all.
func (t *trial) times(algorithms [][]byte) ([]time.Duration, error) {
	t.runs = 1
	one, err := t.sample(algorithms[0])
	if err != nil {
		return nil, err
	}
	t.runs = max(1, min(trialRuns, int(trialSample/max(one, 1))))
	samples := make([][]time.Duration, len(algorithms))
	least := time.Duration(math.MaxInt64)
	for round := range trialRounds {
		for i, a := range algorithms {
			if round > 0 && float64(samples[i][0]) > trialSlower*float64(least) {
				continue
			}
			d, err := t.sample(a)
			if err != nil {
				return nil, err
			}
			samples[i], least = append(samples[i], d), min(least, d)
		}
	}
	medians := make([]time.Duration, len(algorithms))
	for i, s := range samples {
		slices.Sort(s)
		medians[i] = s[len(s)/2]
	}
	return medians, nil
}

// sample returns the time of t.runs runs of an algorithm.
func (t *trial) sample(algorithm []byte) (time.Duration, error) {
	if !t.Use(algorithm) {
		return 0, errors.New("cuBLASLt no longer takes an algorithm that it took")
	}
	s := t.g.Stream
	if err := t.began.Record(s); err != nil {
		return 0, err
	}
	for range t.runs {
		if err := t.Run(s, t.got, t.a, t.b, t.scratch); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(t.ended.Record(s), t.ended.Synchronize()); err != nil {
		return 0, err
	}
	return t.ended.Since(t.began)
}
