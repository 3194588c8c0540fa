package graph

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// Rates are the rates that a GPU reaches in large calls. Plan.Seconds estimates with them.
type Rates struct {
	Copy float64 // bytes per second of device memory, read and written bytes counted
	GEMM float64 // FLOP/s of GEMMs of 16-bit floats
	FP8  float64 // FLOP/s of GEMMs of 8-bit floats; 0 = the GPU has none
	Link float64 // bytes per second between device and page-locked host memory, one way
	// Measured says that estimates with these rates were compared with runs on this kind of GPU.
	Measured bool
}

// The share of its data sheet's rates that an H100 reaches: copies of 256 MiB, GEMMs of 8,192 x 4,096 x 4,096, copies
// from page-locked host memory (docs/internals/lab/2026-11-27-estimated-steps.md).
const (
	shareOfBandwidth = 0.888
	shareOfHalf      = 0.755
	shareOfFP8       = 0.65
	shareOfLink      = 0.86
)

// RatesOf returns the rates of a machine, or of the GPU that it plans for. ok is false if the program does not know the
// GPU by name, or if the machine computes with 32-bit floats: no estimate was compared with such a run.
func RatesOf(on Machine) (r Rates, ok bool) {
	if on.Precision().Stored(kernel.ComputeType) == kernel.F32 {
		return r, false
	}
	for _, c := range gpu.Chips {
		if c.Full == on.Name() && c.Sheet.Bandwidth > 0 {
			return Rates{Copy: shareOfBandwidth * c.Sheet.Bandwidth, GEMM: shareOfHalf * c.Sheet.Half,
				FP8: shareOfFP8 * c.Sheet.FP8, Link: shareOfLink * c.Sheet.Link, Measured: c.SM == 90}, true
		}
	}
	return r, false
}

// Seconds estimates how long segments take on a GPU of these rates. In steps that fill the GPU, the work of all calls
// adds up. In small ones, calls wait for their inputs, and independent calls run side by side: then the longest chain
// of calls counts. Copies to the host run beside the forward pass, and copies back beside the backward pass. Calls
// whose kernel has no cost count as launches.
func (p *Plan) Seconds(r Rates, content kernel.Content, segments ...string) float64 {
	var chain float64
	var work, copies [2]float64  // of the forward and the backward pass
	ends := map[*Value]float64{} // when a value is there, if every call begins as soon as its inputs are
	for _, c := range p.calls {
		if !slices.Contains(segments, p.segments[c.segment]) {
			continue
		}
		t := c.describe(p.segments[c.segment], p.storedTypes(c.in), p.storedTypes(c.out)).cost(c.kernel, content)
		pass := 0
		if c.backward {
			pass = 1
		}
		if t.Kernel == "offload" || t.Kernel == "prefetch" {
			copies[pass] += float64(t.Cost.Bytes) / 2 / r.Link
			continue
		}
		busy, delay := r.call(c.kernel, t)
		busy = max(busy, float64(p.linked(c))/r.Link)
		work[pass] += busy + delay*busy/(busy+fills) + perCall + r.prologue(c.kernel, t, p.scratch[c].size)
		var begin float64
		for _, v := range c.in {
			begin = max(begin, ends[v])
		}
		end := begin + busy + delay + perCall
		for _, v := range c.out {
			ends[v] = end
		}
		chain = max(chain, end)
	}
	return max(max(work[0], copies[0])+max(work[1], copies[1]), chain)
}

// linked returns the bytes of states in host memory that a call reads and writes there. The link carries both at once.
func (p *Plan) linked(c *call) (bytes int64) {
	for _, v := range c.in {
		if v.hosted {
			bytes += p.stored(v).Bytes()
		}
	}
	return bytes
}

// storedTypes returns the types of values as stored.
func (p *Plan) storedTypes(values []*Value) []kernel.Type {
	types := make([]kernel.Type, len(values))
	for i, v := range values {
		types[i] = p.stored(v)
	}
	return types
}

// perCall is the time in seconds that a call of a captured graph adds besides its work.
const perCall = 1.2e-6

// fills is the work in seconds of a call that half fills the GPU: in its delay half of the GPU does other work.
const fills = 12e-6

// pace is how long calls of one kind take: factor times the least time of their cost, and delay seconds.
type pace struct{ factor, delay float64 }

// Paces measured on an H100, by the name of the kernel; see the report that shareOfBandwidth names.
var paces = map[string]pace{
	"crossentropy":           {1.13, 40e-6},
	"fp8":                    {1.0, 10e-6},
	"gated_delta":            {5.1, 2e-6},
	"gated_delta_grad":       {10.1, 2e-6},
	"expert_update":          {1.52, 8e-6},
	"expert_weight_gathered": {7.3, 2e-6},
	"expert_weight_grad":     {0.9, 27e-6},
}

var (
	paceOfGEMM  = pace{1.04, 1.5e-6}
	paceOfRows  = pace{1.11, 0.9e-6} // GEMMs that reading and writing rows bounds: the low-rank ones
	paceOfBytes = pace{1.05, 1e-6}   // kernels that memory bounds
)

// call returns the seconds in which a call keeps the GPU busy, and the delay of its result besides.
func (r Rates) call(k kernel.Kernel, t CallTime) (busy, delay float64) {
	if !t.Costed {
		return 0, 0
	}
	if strings.HasPrefix(t.Kernel, "attention") && headSize(k, t.In) > 0 {
		return r.attention(headSize(k, t.In), strings.HasSuffix(t.Kernel, "_grad"), t)
	}
	rate := r.GEMM
	if t.Kernel == "fp8" && r.FP8 > 0 {
		rate = r.FP8
	}
	flops, bytes := float64(t.Cost.FLOPs)/rate, float64(t.Cost.Bytes)/r.Copy
	by, known := paces[t.Kernel]
	switch {
	case known:
	case flops > bytes:
		by = paceOfGEMM
	case t.Kernel == "matmul":
		by = paceOfRows
	default:
		by = paceOfBytes
	}
	return by.factor * max(flops, bytes), by.delay
}

// prologue returns the seconds of decoding a quantised weight for a GEMM, which reads the packed weight and writes
// 16-bit floats to scratch memory.
func (r Rates) prologue(k kernel.Kernel, t CallTime, scratch int64) float64 {
	if p, ok := k.(kernel.PrologueOnGPU); !ok || !p.PrologueGPU() || scratch == 0 {
		return 0
	}
	factor := 1.3
	if t.Kernel == "fp8" {
		factor = 2.3 // a pass finds the largest value of each block, another one rounds
	}
	return perCall + factor*float64(scratch)/r.Copy
}

// attentionDelay is the work of attention's diagonal tiles and of filling its pipeline, in keys a query: a query of a
// row of n tokens takes the time of n/2 + attentionDelay/2 keys.
const attentionDelay = 1050

// attention returns the seconds of a call of causal attention.
func (r Rates) attention(head int, grad bool, t CallTime) (busy, delay float64) {
	gemms, delay := 2.0, 4e-6
	if grad {
		gemms, delay = 5, 11e-6
	}
	more := gemms * attentionDelay * float64(t.In[0].Elems())
	return (float64(t.Cost.FLOPs) + more) / (r.GEMM * attentionShare(head, grad)), delay
}

// attentionShare returns the rate of attention in long rows as a share of the rate of a large GEMM, by the size of a
// head.
func attentionShare(head int, grad bool) float64 {
	shares := [3]float64{0.66, 0.83, 0.32} // of 64, 128 and 256
	if grad {
		shares = [3]float64{0.60, 0.60, 0.183}
	}
	switch h := float64(head); {
	case h <= 64:
		return shares[0] * h / 64
	case h <= 128:
		return shares[0] + (shares[1]-shares[0])*(h-64)/64
	default:
		return shares[2]
	}
}

// headSize returns the numbers of a head of a call of attention; 0 = the kernel is another one.
func headSize(k kernel.Kernel, in []kernel.Type) int {
	width := func(parts int) int {
		if len(in) == 0 || len(in[0].Shape) != 2 || parts <= 0 {
			return 0
		}
		return in[0].Shape[1] / parts
	}
	switch k := k.(type) {
	case kernel.Attention:
		return width(k.Heads)
	case kernel.AttentionGrad:
		return width(k.Heads)
	case kernel.AttentionSinks:
		return width(k.Attention.Heads)
	case kernel.AttentionQKV:
		return width(k.Heads + 2*k.KVHeads)
	case kernel.AttentionQKVGrad:
		return width(k.Heads + 2*k.KVHeads)
	}
	return 0
}
