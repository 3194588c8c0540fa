package quant

import (
	"math"
	"slices"
)

// NestedBlock is the number of first-level scales that share one second-level
// scale under double quantisation.
const NestedBlock = 256

// NestedTable is the signed 8-bit dynamic map of bitsandbytes (Dettmers 2015,
// "8-bit approximations for parallelism"): seven decades, each with twice the
// fraction steps of the one below, and zero and one. Ascending. The lowest
// entry is -1, which bitsandbytes' CPU code writes there before it searches the
// table; its CUDA code leaves the map's own -0.99296874, so a file tells which
// of the two its codes are into (NestedMap).
var NestedTable = nestedTable(-1)

// nestedTableCUDA is NestedTable as CUDA code has it.
var nestedTableCUDA = nestedTable(-0.99296874)

// NestedMap is a table of codes of scales.
type NestedMap uint8

const (
	MapCPU  NestedMap = iota // NestedTable, with which weights are quantised here
	MapCUDA                  // with -0.99296874 as the lowest entry: of files only
)

// Table returns the value of every code, ascending.
func (m NestedMap) Table() []float32 {
	if m == MapCUDA {
		return nestedTableCUDA[:]
	}
	return NestedTable[:]
}

func nestedTable(lowest float32) [256]float32 {
	const decades = 7
	values := make([]float32, 0, 256)
	for d := range decades {
		steps := 1 << d
		scale := float32(math.Pow(10, float64(d-decades+1)))
		for i := range steps {
			mean := (evenly(0.1, 1, i, steps+1) + evenly(0.1, 1, i+1, steps+1)) / 2
			values = append(values, scale*mean, -(scale * mean))
		}
	}
	values = append(values, 0, 1)
	slices.Sort(values)
	values[0] = lowest
	return [256]float32(values)
}

// evenly returns entry i of n values from lo to hi, counted from the nearer end and
// rounded once, as the linspace that made the reference's table.
func evenly(lo, hi float32, i, n int) float32 {
	step := float64((hi - lo) / float32(n-1))
	if i < n/2 {
		return float32(float64(lo) + step*float64(i))
	}
	return float32(float64(hi) - step*float64(n-1-i))
}

// nestedCode returns the entry of NestedTable nearest to v; where v lies exactly
// between two, the one that a binary search for v stands on last, as the
// reference's kernel has it. NaN is code 0.
func nestedCode(v float32) uint8 {
	t := &NestedTable
	at, below, above := 127, 0, 255
	for step := 64; step > 0; step /= 2 {
		if v > t[at] {
			below, at = at, at+step
		} else {
			above, at = at, at-step
		}
	}
	if v > t[at] {
		if v > (t[above]+t[at])*0.5 {
			return uint8(above)
		}
		return uint8(at)
	}
	if v < (t[below]+t[at])*0.5 {
		return uint8(below)
	}
	return uint8(at)
}

// nest stores scales in 8 bits: codes of (absmax - offset), offset the mean,
// in blocks of NestedBlock with an absmax each.
func nest(absmax []float32) (codes []byte, absmax2 []float32, offset float32) {
	offset = mean(absmax)
	codes = make([]byte, len(absmax))
	absmax2 = make([]float32, (len(absmax)+NestedBlock-1)/NestedBlock)
	for b := range absmax2 {
		from := b * NestedBlock
		block := absmax[from:min(from+NestedBlock, len(absmax))]
		top := float32(0)
		for _, a := range block {
			top = max(top, float32(math.Abs(float64(a-offset))))
		}
		absmax2[b] = top
		inv := 1 / top
		for i, a := range block {
			codes[from+i] = nestedCode((a - offset) * inv)
		}
	}
	return codes, absmax2, offset
}

// meanSums is how many sums run in parallel in mean.
const meanSums = 1024

// mean returns the mean in float64, rounded once, added up in the order that a GPU's block of threads adds: thread i
// takes every meanSums-th value, then neighbours at half the distance are added, in warps of 32 and over them.
// Another order could round differently, if rarely, and a weight's bytes would depend on where it was packed.
func mean(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	var sums [meanSums]float64
	for i, v := range x {
		sums[i%meanSums] += float64(v)
	}
	var warps [meanSums / 32]float64
	for i := range warps {
		warps[i] = fold([32]float64(sums[32*i:]))
	}
	return float32(fold(warps) / float64(len(x)))
}

func fold(x [32]float64) float64 {
	for half := 16; half > 0; half /= 2 {
		for i := range half {
			x[i] += x[i+half]
		}
	}
	return x[0]
}
