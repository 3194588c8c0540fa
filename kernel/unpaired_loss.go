package kernel

import (
	"fmt"
	"math"
	"slices"
)

// UnpairedForm is a loss of single labelled answers, by TRL's name of it.
type UnpairedForm int

// The losses of labelled answers. docs/OBJECTIVES.md has their formulas and sources.
const (
	UnpairedKTO UnpairedForm = iota
	UnpairedAPOZero
	UnpairedForms // the number of forms
)

// UnpairedFormNames are TRL's names of the losses, in the order of UnpairedForm.
var UnpairedFormNames = [UnpairedForms]string{"kto", "apo_zero_unpaired"}

// UnpairedLoss computes the loss of answers that are each labelled desirable or undesirable (KTO), from their summed
// log-probabilities under the policy and under a reference, with the gradient for the policy's sums.
//
//	policy f[S], reference f[S], rows i32[R,3], scale f[1], (scaling if Scaled)
//	  -> loss f[], (dpolicy f[S] if Grad), rewards of the desirable f[], of the undesirable f[],
//	     log-probabilities of the desirable f[], of the undesirable f[],
//	     number of the desirable f[], of the undesirable f[], kl f[]
//
// rows[k] are the sequence of the answer of row k, the sequence of the same prompt with another row's answer, and the
// label: 1 = desirable, -1 = undesirable. A negative first index or a label of 0 means that there is no row k, a
// negative second index that the row has no mismatched sequence. No sequence is in two rows.
//
// UnpairedKTO compares each log-ratio d = policy - reference with z, the mean log-ratio of the mismatched sequences of
// the batch, at least 0, which estimates the divergence of the policy from the reference. z is a constant for the
// gradient, so that mismatched sequences get none. loss is scale times the sum over rows; kl is z times the number of
// rows, and the other scalars are sums over rows that nothing scales. All arithmetic is in float64.
type UnpairedLoss struct {
	Form        UnpairedForm
	Beta        float64 // strength of the pull to the reference, above 0
	Desirable   float64 // factor of the loss of desirable answers, 0 or more
	Undesirable float64 // factor of the loss of undesirable answers, 0 or more
	Grad        bool    // computes dpolicy
	Scaled      bool    // multiplies the gradient, but not the loss, by the loss scale
}

// unpairedSums is the number of sums over rows beside the loss.
const unpairedSums = 7

// Name returns "unpaired_loss".
func (UnpairedLoss) Name() string { return "unpaired_loss" }

// Shape returns the types of the loss, the gradient and the seven sums.
func (o UnpairedLoss) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(o.Scaled, "f[S]", "f[S]", "i32[R,3]", "f[1]")...)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(in); i++ {
		if i != 2 && in[i].DType != in[0].DType {
			return nil, fmt.Errorf("input %d is %v, input 0 is %v: they must have one element type", i, in[i], in[0])
		}
	}
	weight := func(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
	switch {
	case o.Form < 0 || o.Form >= UnpairedForms:
		return nil, fmt.Errorf("attribute Form is %d, want 0 to %d", o.Form, UnpairedForms-1)
	case !(o.Beta > 0) || math.IsInf(o.Beta, 0):
		return nil, fmt.Errorf("attribute Beta is %v, want a number above 0", o.Beta)
	case !weight(o.Desirable) || !weight(o.Undesirable):
		return nil, fmt.Errorf("attributes Desirable and Undesirable are %v and %v, want numbers of at least 0",
			o.Desirable, o.Undesirable)
	}
	one := T(in[0].DType)
	out := []Type{one}
	if o.Grad {
		out = append(out, T(in[0].DType, d.At('S')))
	}
	return append(out, slices.Repeat([]Type{one}, unpairedSums)...), nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (UnpairedLoss) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o UnpairedLoss) Grads() Backward {
	grads := make([]Ref, 4, 5)
	if o.Scaled {
		grads = grads[:5]
	}
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// CPU binds the float64 or the float32 body.
func (o UnpairedLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindUnpairedLoss[float32], bindUnpairedLoss[float64])(c, o, in, out)
}

// unpairedLoss is a bound UnpairedLoss.
type unpairedLoss[F Float] struct {
	UnpairedLoss
	policy, reference []F
	rows              []int32
	scale, scaling    []F
	loss, dpolicy     []F // no gradient = it is not wanted
	sums              [unpairedSums][]F
}

func bindUnpairedLoss[F Float](_ *CPU, o UnpairedLoss, in, out []Tensor) func() {
	u := &unpairedLoss[F]{UnpairedLoss: o, policy: Floats[F](in[0]), reference: Floats[F](in[1]), rows: in[2].I32(),
		scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, 4), loss: Floats[F](out[0])}
	rest := out[1:]
	if o.Grad {
		u.dpolicy, rest = Floats[F](rest[0]), rest[1:]
	}
	for i := range u.sums {
		u.sums[i] = Floats[F](rest[i])
	}
	return u.run
}

// ratio returns the log-ratio of a sequence; ok is false if there is no such sequence.
func (u *unpairedLoss[F]) ratio(sequence int32) (d float64, ok bool) {
	if sequence < 0 || int(sequence) >= len(u.policy) {
		return 0, false
	}
	return float64(u.policy[sequence]) - float64(u.reference[sequence]), true
}

// divergence returns z, which is 0 for a form without it and for a batch without mismatched sequences.
func (u *unpairedLoss[F]) divergence() float64 {
	var sum, n float64
	for k := 0; k < len(u.rows) && u.Form == UnpairedKTO; k += 3 {
		_, is := u.ratio(u.rows[k])
		if d, ok := u.ratio(u.rows[k+1]); ok && is && u.rows[k+2] != 0 {
			sum, n = sum+d, n+1
		}
	}
	if n == 0 || sum <= 0 {
		return 0
	}
	return sum / n
}

func (u *unpairedLoss[F]) run() {
	clear(u.dpolicy)
	by := float64(u.scale[0]) * float64(u.scaling[LossScaleNow])
	z := u.divergence()
	var all float64
	var sums [unpairedSums]float64
	for k := 0; k < len(u.rows); k += 3 {
		sequence, label := u.rows[k], float64(u.rows[k+2])
		d, ok := u.ratio(sequence)
		if !ok || label == 0 {
			continue
		}
		side, weight := 0, u.Desirable
		if label < 0 {
			side, weight = 1, u.Undesirable
		}
		x := label * u.Beta * (d - z)
		all += weight * sigmoid(-x)
		if u.dpolicy != nil {
			u.dpolicy[sequence] = F(-by * weight * label * u.Beta * sigmoidSlope(x))
		}
		sums[side] += u.Beta * d
		sums[2+side] += float64(u.policy[sequence])
		sums[4+side]++
		sums[6] += z
	}
	u.loss[0] = F(all * float64(u.scale[0]))
	for i, x := range sums {
		u.sums[i][0] = F(x)
	}
}

// Stored keeps everything in fp32, and rows as they are.
func (o UnpairedLoss) Stored(in []DType) (want, out []DType) {
	results := 1 + unpairedSums
	if o.Grad {
		results++
	}
	return pairStored(in, 2, results)
}

// Cost counts some functions for each row.
func (UnpairedLoss) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(in[2].Shape[0]) * 24}
}
