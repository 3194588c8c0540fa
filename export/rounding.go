package export

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/model/weights"
)

// Rounding measures how much of an adapter's update D remains after the weights W are rounded to the file's type by R.
type Rounding struct {
	// Kept is the part of the update that remains, measured along the update: <R(W+D)-R(W), D> / <D, D>. 1 = all.
	Kept float64 `json:"kept"`
	// Noise is the rounding error relative to the update: |R(W+D)-R(W)-D| / |D|.
	Noise float64 `json:"noise"`
	// BelowHalfStep is the share of the changed weights whose change is below half the distance to the next number of
	// the type.
	BelowHalfStep float64         `json:"below_half_step"`
	Unchanged     float64         `json:"unchanged"`        // share of the weights that rounding leaves unchanged
	Layers        []LayerRounding `json:"layers,omitempty"` // sorted by name
}

// LayerRounding is the Rounding of one layer.
type LayerRounding struct {
	Layer         string  `json:"layer"`
	Kept          float64 `json:"kept"`
	Noise         float64 `json:"noise"`
	BelowHalfStep float64 `json:"below_half_step"`
	Unchanged     float64 `json:"unchanged"`
	Delta         float64 `json:"delta_rms"`     // root mean square of the update
	HalfStep      float64 `json:"half_step_rms"` // root mean square of half the distance to the next number
}

// leastKept is the value of Kept below which a merge counts as having lost the adapter.
const leastKept = 0.5

// mostLost and mostLostLayer are the lost shares of the whole update, and of one layer's, from which on a message
// recommends another type.
const (
	mostLost      = 0.02
	mostLostLayer = 0.10
)

// loses reports whether rounding loses more of an update than is usual.
func (r Rounding) loses() bool {
	worst := r.Worst(1)
	return r.Kept < 1-mostLost || len(worst) > 0 && worst[0].Kept < 1-mostLostLayer
}

// betterType names the type that keeps an update of which bf16 loses too much, as a value of --dtype. fp16 is the
// Rounding for fp16.
func betterType(bf16, fp16 Rounding, half, full string) string {
	worst := bf16.Worst(1)[0]
	text := fmt.Sprintf("bf16 keeps %.1f%% of the adapter's update, and of one layer %.1f%% (%s)", 100*bf16.Kept,
		100*worst.Kept, worst.Layer)
	if fp16.loses() {
		return fmt.Sprintf("%s: --dtype %s keeps all of it", text, full)
	}
	return fmt.Sprintf("%s: --dtype %s keeps %.1f%% in the same size, %s all of it", text, half, 100*fp16.Kept, full)
}

// layerCounts holds sums over weights. They are added in the order of the tensors, so that they are reproducible.
type layerCounts struct {
	n, below, unchanged int64
	delta2, along       float64 // <D,D>, <R(W+D)-R(W),D>
	noise2, half2       float64
}

// add counts a piece: the weights before and after, unrounded and rounded. half returns half a step at a weight.
func (c *layerCounts) add(base, merged, was, then []float32, half func(i int, w float32) float64) {
	for i := range base {
		d := float64(merged[i]) - float64(base[i])
		r := float64(then[i]) - float64(was[i])
		h := half(i, base[i])
		c.n++
		c.delta2 += d * d
		c.along += r * d
		c.noise2 += (r - d) * (r - d)
		c.half2 += h * h
		if math.Abs(d) < h {
			c.below++
		}
		if then[i] == was[i] {
			c.unchanged++
		}
	}
}

func (c *layerCounts) plus(o *layerCounts) {
	c.n, c.below, c.unchanged = c.n+o.n, c.below+o.below, c.unchanged+o.unchanged
	c.delta2, c.along, c.noise2, c.half2 = c.delta2+o.delta2, c.along+o.along, c.noise2+o.noise2, c.half2+o.half2
}

// shares returns Kept, Noise, BelowHalfStep and Unchanged. A zero update counts as kept.
func (c *layerCounts) shares() (kept, noise, below, unchanged float64) {
	kept = 1
	if c.delta2 > 0 {
		kept, noise = c.along/c.delta2, math.Sqrt(c.noise2/c.delta2)
	}
	if c.n > 0 {
		below, unchanged = float64(c.below)/float64(c.n), float64(c.unchanged)/float64(c.n)
	}
	return kept, noise, below, unchanged
}

// halfSteps returns a function that computes half the distance between neighbouring numbers of a type.
func halfSteps(d weights.DType) func(i int, w float32) float64 {
	bits, least := 23, -126
	switch d {
	case weights.BF16:
		bits = 7
	case weights.F16:
		bits, least = 10, -14
	}
	var at [256]float64
	for exponent := range at {
		at[exponent] = math.Ldexp(1, max(exponent-127, least)-bits-1)
	}
	return func(_ int, w float32) float64 { return at[math.Float32bits(w)>>23&0xff] }
}

func (m *merging) rounding() Rounding { return roundingOf(m.lost) }

// roundingOf sums the counts of layers.
func roundingOf(lost map[string]*layerCounts) Rounding {
	var r Rounding
	var all layerCounts
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		c := lost[name]
		all.plus(c)
		l := LayerRounding{Layer: name}
		l.Kept, l.Noise, l.BelowHalfStep, l.Unchanged = c.shares()
		if c.n > 0 {
			l.Delta, l.HalfStep = math.Sqrt(c.delta2/float64(c.n)), math.Sqrt(c.half2/float64(c.n))
		}
		r.Layers = append(r.Layers, l)
	}
	r.Kept, r.Noise, r.BelowHalfStep, r.Unchanged = all.shares()
	return r
}

// Worst returns the n layers that keep least.
func (r Rounding) Worst(n int) []LayerRounding {
	worst := slices.SortedStableFunc(slices.Values(r.Layers), func(a, b LayerRounding) int {
		return cmp.Compare(a.Kept, b.Kept)
	})
	return worst[:min(n, len(worst))]
}

// LossError is the error of a merge that would lose most of the adapter. Nothing was written.
type LossError struct {
	DType    string
	Rounding Rounding
	Drift    *Drift    // set if the sample texts show the loss
	FP16     *Rounding // what fp16 would keep where bf16 loses it; nil = unknown
}

func (e *LossError) Error() string {
	text := ""
	if d := e.Drift; d != nil {
		text = fmt.Sprintf("the merged model is further from base and adapter (mean KL divergence %.3g on the sample "+
			"text) than the adapter's own effect allows "+
			"(%.3g): in %s the adapter is lost", d.MeanKL, d.AdapterKL, e.DType)
	} else {
		text = fmt.Sprintf("rounding to %s keeps %.1f%% of the adapter's update: %.1f%% of the adapted weights "+
			"change by less than half a step", e.DType,
			100*e.Rounding.Kept, 100*e.Rounding.BelowHalfStep)
	}
	for _, l := range e.Rounding.Worst(3) {
		text += fmt.Sprintf("\n  %s: %.1f%% kept; the update is %.3g (root mean square), half a step %.3g", l.Layer,
			100*l.Kept, l.Delta, l.HalfStep)
	}
	if e.FP16 != nil && !e.FP16.loses() {
		return text + fmt.Sprintf("\nwrite --dtype fp16, which keeps %.1f%% of it in the same size, or fp32, or "+
			"serve the base model with the adapter beside it; "+
			"--allow-loss writes the folder anyway", 100*e.FP16.Kept)
	}
	return text + "\nwrite --dtype fp32, or serve the base model with the adapter beside it; --allow-loss writes the " +
		"folder anyway"
}
