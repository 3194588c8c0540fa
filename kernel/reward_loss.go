package kernel

import (
	"fmt"
	"math"
	"slices"
)

// RewardLoss computes the loss of a reward model over preference pairs (Bradley and Terry 1952), with the gradient for
// the rewards.
//
//	rewards f[S,1], pairs i32[P,2], margins f[P], scale f[1], (scaling if Scaled)
//	  -> loss f[], (drewards f[S,1] if Grad), means of both rewards f[], accuracy f[], differences f[],
//	     least reward f[], largest reward f[], pairs f[]
//	loss = scale * sum over pairs of softplus(-(c - r - margin)) + Centre (c + r)²
//
// c and r are the rewards of the chosen and of the rejected answer. pairs[k] are their sequences; a negative index
// means that there is no pair k. Nothing scales the scalars after the gradient. The first three are sums over pairs:
// (c + r)/2, one where c > r, and c - r. Then come the least and the largest reward of all pairs, and 1; all three are
// 0 where there is no pair. All arithmetic is in float64.
type RewardLoss struct {
	Centre float64 // weight of the squared sum of both rewards, which pulls rewards to a mean of zero; 0 or more
	Grad   bool    // computes drewards
	Scaled bool    // multiplies the gradient, but not the loss, by the loss scale
}

// The scalars that a RewardLoss computes beside the loss and its gradient, in their order.
const (
	rewardMean     = iota // sum over pairs of the mean of both rewards
	rewardAccuracy        // number of pairs whose chosen answer has the larger reward
	rewardMargin          // sum over pairs of the difference of both rewards
	rewardLeast           // least reward of all pairs
	rewardLargest         // largest reward of all pairs
	rewardAny             // 1 if there is a pair
	rewardSums            // number of these scalars
)

// Name returns "reward_loss".
func (RewardLoss) Name() string { return "reward_loss" }

func (o RewardLoss) patterns() []string {
	return withScaling(o.Scaled, "f[S,1]", "i32[P,2]", "f[P]", "f[1]")
}

// Shape returns the types of the loss, the gradient and the scalars beside them.
func (o RewardLoss) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, o.patterns()...); err != nil {
		return nil, err
	}
	for i := 2; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if !(o.Centre >= 0) || math.IsInf(o.Centre, 0) {
		return nil, fmt.Errorf("attribute Centre is %v, want a finite number of 0 or more", o.Centre)
	}
	one := T(in[0].DType)
	out := []Type{one}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, slices.Repeat([]Type{one}, rewardSums)...), nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (RewardLoss) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o RewardLoss) Grads() Backward {
	grads := make([]Ref, len(o.patterns()))
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// CPU binds the float64 or the float32 body.
func (o RewardLoss) CPU(_ *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rewardLoss[float32], rewardLoss[float64])(o, in, out)
}

func rewardLoss[F Float](o RewardLoss, in, out []Tensor) func() {
	rewards, pairs, margins, scale := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), Floats[F](in[3])
	scaling := lossScaling[F](o.Scaled, in, len(in)-1)
	var drewards []F
	if o.Grad {
		drewards = Floats[F](out[1])
	}
	results := out[len(out)-rewardSums:]
	return func() {
		clear(drewards)
		var loss float64
		var sums [rewardSums]float64
		for k := range len(pairs) / 2 {
			i, j := int(pairs[2*k]), int(pairs[2*k+1])
			if i < 0 || j < 0 || i >= len(rewards) || j >= len(rewards) {
				continue
			}
			c, r := float64(rewards[i]), float64(rewards[j])
			z, sum := c-r-float64(margins[k]), c+r
			loss += softplus(-z) + o.Centre*sum*sum
			if drewards != nil {
				by := float64(scale[0]) * float64(scaling[LossScaleNow])
				drewards[i] += F(by * (2*o.Centre*sum - sigmoid(-z)))
				drewards[j] += F(by * (2*o.Centre*sum + sigmoid(-z)))
			}
			if c > r {
				sums[rewardAccuracy]++
			}
			sums[rewardMean], sums[rewardMargin] = sums[rewardMean]+sum/2, sums[rewardMargin]+c-r
			if sums[rewardAny] == 0 {
				sums[rewardLeast], sums[rewardLargest], sums[rewardAny] = c, c, 1
			}
			sums[rewardLeast] = min(sums[rewardLeast], c, r)
			sums[rewardLargest] = max(sums[rewardLargest], c, r)
		}
		Floats[F](out[0])[0] = F(loss * float64(scale[0]))
		for i, x := range sums {
			Floats[F](results[i])[0] = F(x)
		}
	}
}

// Stored keeps everything in fp32 but the gradient of the rewards, which the head's GEMMs read in ComputeType, and pairs
// as they are.
func (o RewardLoss) Stored(in []DType) (want, out []DType) {
	n := 1 + rewardSums
	if o.Grad {
		n++
	}
	want, out = pairStored(in, 1, n)
	if o.Grad {
		out[1] = ComputeType
	}
	return want, out
}

// ScratchGPU returns the bytes of the gradient in fp32 if it is stored otherwise.
func (o RewardLoss) ScratchGPU(_, out []Type, _ int) int64 {
	if !o.Grad {
		return 0
	}
	return wideGradient(out[1])
}

// Cost counts some functions for each pair.
func (RewardLoss) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(in[1].Shape[0]) * 16}
}
