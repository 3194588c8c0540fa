package export

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/model/weights"
)

// Rounding says how much of an adapter's update D the rounding R of the weights W to the file's type leaves.
type Rounding struct {
	// Kept is the part of the update that is there after rounding, along the update: <R(W+D)-R(W), D> / <D, D>. 1 =
	// all.
	Kept float64 `json:"kept"`
	// Noise is what rounding adds that is not the update: |R(W+D)-R(W)-D| / |D|.
	Noise float64 `json:"noise"`
	// BelowHalfStep is the share of the changed weights whose change is under half the distance to the next number of
	// the type.
	BelowHalfStep float64         `json:"below_half_step"`
	Unchanged     float64         `json:"unchanged"`        // share of the weights that are the same after rounding
	Layers        []LayerRounding `json:"layers,omitempty"` // by their names
}

// LayerRounding is Rounding of one layer.
type LayerRounding struct {
	Layer         string  `json:"layer"`
	Kept          float64 `json:"kept"`
	Noise         float64 `json:"noise"`
	BelowHalfStep float64 `json:"below_half_step"`
	Unchanged     float64 `json:"unchanged"`
	Delta         float64 `json:"delta_rms"`     // root mean square of the update
	HalfStep      float64 `json:"half_step_rms"` // of half the distance to the next number
}

// leastKept is the part of an update below which a merge has lost the adapter.
const leastKept = 0.5

// mostLost and mostLostLayer are the shares of an update from which on a message says that another type keeps it: of
// the whole update, and of one layer's.
const (
	mostLost      = 0.02
	mostLostLayer = 0.10
)

// loses tells whether rounding loses more of an update than goes without saying.
func (r Rounding) loses() bool {
	worst := r.Worst(1)
	return r.Kept < 1-mostLost || len(worst) > 0 && worst[0].Kept < 1-mostLostLayer
}

// betterType says of an update that bf16 loses too much of which type keeps it, by the names that --dtype takes. fp16
// is what fp16 keeps.
func betterType(bf16, fp16 Rounding, half, full string) string {
	worst := bf16.Worst(1)[0]
	text := fmt.Sprintf("bf16 keeps %.1f%% of the adapter's update, and of one layer %.1f%% (%s)", 100*bf16.Kept,
		100*worst.Kept, worst.Layer)
	if fp16.loses() {
		return fmt.Sprintf("%s: --dtype %s keeps all of it", text, full)
	}
	return fmt.Sprintf("%s: --dtype %s keeps %.1f%% in the same size, %s all of it", text, half, 100*fp16.Kept, full)
}

// layerCounts are sums over weights. Their order is that of the tensors, so that they repeat.
type layerCounts struct {
	n, below, unchanged int64
	delta2, along       float64 // <D,D>, <R(W+D)-R(W),D>
	noise2, half2       float64
}

// add counts a piece: the weights before and after, as they are and rounded. half is half a step at a weight.
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

// shares are Kept, Noise, BelowHalfStep and Unchanged. Of an update that is zero nothing is lost.
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

// halfSteps gives half the distance between neighbouring numbers of a type, at a number.
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

// roundingOf sums up the counts of layers.
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

// Worst are the n layers of which least is kept.
func (r Rounding) Worst(n int) []LayerRounding {
	worst := slices.SortedStableFunc(slices.Values(r.Layers), func(a, b LayerRounding) int {
		return cmp.Compare(a.Kept, b.Kept)
	})
	return worst[:min(n, len(worst))]
}

// LossError is a merge that would lose most of the adapter. Nothing was written.
type LossError struct {
	DType    string
	Rounding Rounding
	Drift    *Drift    // set where the texts show it
	FP16     *Rounding // what fp16 leaves where bf16 loses it; nil = not known
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
