package kernel

import (
	"fmt"
	"math"
)

// TokenForm is a loss as a function of the log-probability l of a token's label, p = exp(l).
type TokenForm uint8

const (
	// TokenDFT is -p l with p held constant: dynamic fine-tuning (Wu et al. 2025).
	TokenDFT TokenForm = iota
	// TokenFocal is -(1-p)^Gamma l, the factor differentiated too (Lin et al. 2017).
	TokenFocal
)

// TokenLoss computes a loss from the log-probability of every token's label, as LinearLogProbs gives it.
//
//	logp f[M], labels i32[M], scale f[1], (weights f[M] if Weighted), (scaling if Scaled)
//	  -> loss f[], (dlogp f[M] if Grad), each f[M], nll f[]
//	each = weight Form(logp), 0 for tokens labelled -100;  loss = scale * sum(each);  nll = sum(-logp), without weights
//
// Grad computes the gradient of the loss for logp in the forward pass, for a gradient of the loss of one, or of the
// loss scale where Scaled. Without Weighted every weight is one.
type TokenLoss struct {
	Form     TokenForm
	Gamma    float64 // the exponent of TokenFocal, 0 or more
	Grad     bool    // computes dlogp
	Scaled   bool    // multiplies the gradient, but not the loss, by the loss scale
	Weighted bool    // multiplies each token's loss and gradient by a weight of its own
}

// Name returns "token_loss".
func (TokenLoss) Name() string { return "token_loss" }

// inputs returns the patterns of the inputs.
func (o TokenLoss) inputs() []string {
	patterns := []string{"f[M]", "i32[M]", "f[1]"}
	if o.Weighted {
		patterns = append(patterns, "f[M]")
	}
	return withScaling(o.Scaled, patterns...)
}

// Shape returns the types of the loss, the gradient, the tokens' losses and the sum.
func (o TokenLoss) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, o.inputs()...); err != nil {
		return nil, err
	}
	for i := 2; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if o.Form > TokenFocal {
		return nil, fmt.Errorf("attribute Form is %d, want 0 to %d", o.Form, TokenFocal)
	}
	if !(o.Gamma >= 0) || math.IsInf(o.Gamma, 0) {
		return nil, fmt.Errorf("attribute Gamma is %v, want 0 or more", o.Gamma)
	}
	out := []Type{T(in[0].DType)}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, in[0], T(in[0].DType)), nil
}

// Terminal marks the end of a graph: the gradient is that of the loss itself.
func (TokenLoss) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o TokenLoss) Grads() Backward {
	grads := make([]Ref, len(o.inputs()))
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// CPU binds the float64 or the float32 body.
func (o TokenLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], tokenLoss[float32], tokenLoss[float64])(o, in, out)
}

func tokenLoss[F Float](o TokenLoss, in, out []Tensor) func() {
	logp, labels, scale := Floats[F](in[0]), in[1].I32(), Floats[F](in[2])
	scaling := lossScaling[F](o.Scaled, in, len(in)-1)
	var weights, dlogp []F
	if o.Weighted {
		weights = Floats[F](in[3])
	}
	if o.Grad {
		dlogp = Floats[F](out[1])
	}
	loss, each, nll := Floats[F](out[0]), Floats[F](out[len(out)-2]), Floats[F](out[len(out)-1])
	return func() {
		sum, ofLabels := 0., 0.
		for m, label := range labels {
			e, d, weight := 0., 0., 1.
			if weights != nil {
				weight = float64(weights[m])
			}
			if label != Untrained {
				e, d = o.of(float64(logp[m]))
				ofLabels -= float64(logp[m])
			} else {
				weight = 0
			}
			each[m] = F(weight * e)
			sum += float64(each[m])
			if dlogp != nil {
				dlogp[m] = F(weight * d * float64(scale[0]) * float64(scaling[LossScaleNow]))
			}
		}
		loss[0], nll[0] = F(sum*float64(scale[0])), F(ofLabels)
	}
}

// of returns the loss of a token and its derivative at the log-probability l of its label.
func (o TokenLoss) of(l float64) (loss, slope float64) {
	if o.Form == TokenDFT {
		p := math.Exp(l)
		return -p * l, -p
	}
	rest := -math.Expm1(l) // 1 - p
	power := math.Pow(rest, o.Gamma)
	if rest == 0 {
		return -power * l, 0
	}
	return -power * l, power * (o.Gamma*l*(1-rest)/rest - 1)
}

// Cost counts three functions for each token.
func (TokenLoss) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 6) }

// Stored keeps everything in fp32.
func (o TokenLoss) Stored([]DType) (want, out []DType) {
	want = []DType{F32, I32, F32}
	if o.Weighted {
		want = append(want, F32)
	}
	out = []DType{F32, F32, F32}
	if o.Grad {
		out = append(out, F32)
	}
	return storedScaling(o.Scaled, want...), out
}

// ScratchGPU returns the bytes of a number for each token.
func (TokenLoss) ScratchGPU(in, _ []Type, _ int) int64 { return rowNumbers(in[0].Shape[0]) }
