package kernel

import (
	"fmt"
	"math"
	"slices"
)

// ClassForm is the loss of a row of scores for a target.
type ClassForm uint8

// The losses of a ClassLoss.
const (
	ClassSingle     ClassForm = iota // cross-entropy of one class; the target is its index
	ClassMulti                       // binary cross-entropy of each label; targets are 0 to 1, the loss their mean
	ClassRegression                  // squared error; targets are numbers, the loss their mean
)

// ClassLoss computes the loss of rows of scores, such as those of a classification head, with its gradient.
//
//	scores f[S,L], labels i32[S], targets f[S,L] unless Form is ClassSingle, bias f[L] if Bias, scale f[1],
//	(scaling if Scaled)
//	  -> loss f[], (dscores f[S,L] if Grad), (dbias f[L] if Grad and Bias), each f[S], right f[], errors f[]
//	loss = scale * sum(each)
//
// labels are the classes of ClassSingle; for the other forms 0 or more means that the row has targets. A row labelled
// -100 does not count. bias is added to every row of scores. right is the number of rows that are predicted as their
// targets say: the largest score has the class; every score is above 0 exactly where its target is above 0.5; 0 for
// ClassRegression. errors is the sum over rows of the mean absolute error of scores, which is 0 for the other forms.
// All arithmetic is in float64.
type ClassLoss struct {
	Form   ClassForm
	Bias   bool // adds a bias to the scores
	Grad   bool // computes the gradients
	Scaled bool // multiplies the gradients, but not the loss, by the loss scale
}

// Name returns "class_loss".
func (ClassLoss) Name() string { return "class_loss" }

func (o ClassLoss) patterns() []string {
	p := []string{"f[S,L]", "i32[S]"}
	if o.Form != ClassSingle {
		p = append(p, "f[S,L]")
	}
	if o.Bias {
		p = append(p, "f[L]")
	}
	return withScaling(o.Scaled, append(p, "f[1]")...)
}

// bias returns the index of the input with the bias.
func (o ClassLoss) bias() int {
	if o.Form == ClassSingle {
		return 2
	}
	return 3
}

// Shape returns the types of the loss, the gradients, the rows' losses and the two sums.
func (o ClassLoss) Shape(in []Type) ([]Type, error) {
	if o.Form > ClassRegression {
		return nil, fmt.Errorf("attribute Form is %d, want 0 to %d", o.Form, ClassRegression)
	}
	d, err := Want(in, o.patterns()...)
	if err != nil {
		return nil, err
	}
	for i := 2; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if d.At('L') == 0 {
		return nil, fmt.Errorf("input 0 is %v: it has no scores", in[0])
	}
	one := T(in[0].DType)
	out := []Type{one}
	if o.Grad {
		out = append(out, in[0])
	}
	if o.Grad && o.Bias {
		out = append(out, T(in[0].DType, d.At('L')))
	}
	return append(out, T(in[0].DType, d.At('S')), one, one), nil
}

// Terminal marks the end of a graph: the gradients belong to the loss itself.
func (ClassLoss) Terminal() {}

// Grads returns the gradients that the forward pass computed.
func (o ClassLoss) Grads() Backward {
	grads := make([]Ref, len(o.patterns()))
	if o.Grad {
		grads[0] = Out(1)
	}
	if o.Grad && o.Bias {
		grads[o.bias()] = Out(2)
	}
	return Backward{Grads: grads}
}

// CPU binds the float64 or the float32 body.
func (o ClassLoss) CPU(_ *CPU, in, out []Tensor) func() {
	return byFloat(in[0], classLoss[float32], classLoss[float64])(o, in, out)
}

func classLoss[F Float](o ClassLoss, in, out []Tensor) func() {
	scores, labels, L := Floats[F](in[0]), in[1].I32(), in[0].Shape[1]
	var targets, bias, dscores, dbias []F
	if o.Form != ClassSingle {
		targets = Floats[F](in[2])
	}
	if o.Bias {
		bias = Floats[F](in[o.bias()])
	}
	last := len(o.patterns()) - 1
	if o.Scaled {
		last--
	}
	scale, scaling := Floats[F](in[last]), lossScaling[F](o.Scaled, in, len(in)-1)
	if o.Grad {
		dscores = Floats[F](out[1])
	}
	if o.Grad && o.Bias {
		dbias = Floats[F](out[2])
	}
	each := Floats[F](out[len(out)-3])
	row, slope, ofBias := make([]float64, L), make([]float64, L), make([]float64, L)
	return func() {
		var loss, right, errors float64
		clear(dscores)
		clear(ofBias)
		by := float64(scale[0]) * float64(scaling[LossScaleNow])
		for s, label := range labels {
			if each[s] = 0; label == Untrained {
				continue
			}
			for l := range row {
				if row[l] = float64(scores[s*L+l]); bias != nil {
					row[l] += float64(bias[l])
				}
			}
			var target []F
			if targets != nil {
				target = targets[s*L:][:L]
			}
			v, hit, far := classRow(o.Form, row, slope, int(label), target)
			each[s] = F(v)
			loss += float64(each[s])
			if errors += far; hit {
				right++
			}
			for l, g := range slope {
				if dscores != nil {
					dscores[s*L+l] = F(g * by)
				}
				ofBias[l] += g * by
			}
		}
		for l := range dbias {
			dbias[l] = F(ofBias[l])
		}
		Floats[F](out[0])[0] = F(loss * float64(scale[0]))
		Floats[F](out[len(out)-2])[0], Floats[F](out[len(out)-1])[0] = F(right), F(errors)
	}
}

// classRow returns the loss of a row of scores, whether it is predicted right, and its mean absolute error. It writes
// the gradient to slope. A class outside the scores gives NaN: the data set checks classes.
func classRow[F Float](form ClassForm, row, slope []float64, label int, target []F) (loss float64, right bool,
	far float64) {
	n := float64(len(row))
	if form == ClassSingle {
		if label < 0 || label >= len(row) {
			fill(slope, math.NaN())
			return math.NaN(), false, 0
		}
		top := slices.Max(row)
		sum := 0.
		for _, x := range row {
			sum += math.Exp(x - top)
		}
		for l, x := range row {
			slope[l] = math.Exp(x-top) / sum
		}
		slope[label]--
		return top + math.Log(sum) - row[label], slices.Index(row, top) == label, 0
	}
	right = form == ClassMulti
	for l, x := range row {
		y := float64(target[l])
		if form == ClassMulti {
			loss += (softplus(x) - x*y) / n
			slope[l] = (sigmoid(x) - y) / n
			right = right && (x > 0) == (y > 0.5)
			continue
		}
		d := x - y
		loss += d * d / n
		far += math.Abs(d) / n
		slope[l] = 2 * d / n
	}
	return loss, right, far
}

// fill sets all numbers to x.
func fill(all []float64, x float64) {
	for i := range all {
		all[i] = x
	}
}

// Stored keeps everything in fp32 but the gradient of the scores, which the head's GEMMs read in ComputeType, and labels
// as they are.
func (o ClassLoss) Stored(in []DType) (want, out []DType) {
	n := 4
	if o.Grad {
		n++
	}
	if o.Grad && o.Bias {
		n++
	}
	want, out = pairStored(in, 1, n)
	if o.Grad {
		out[1] = ComputeType
	}
	return want, out
}

// ScratchGPU returns the bytes of two numbers for each row, and of the gradient in fp32 if it is stored otherwise.
func (o ClassLoss) ScratchGPU(in, out []Type, _ int) int64 {
	n := 2 * rowNumbers(in[0].Shape[0])
	if o.Grad {
		n += wideGradient(out[1])
	}
	return n
}

// wideGradient returns the scratch bytes of the fp32 numbers that a gradient is rounded from; 0 for one in fp32.
func wideGradient(grad Type) int64 {
	if grad.DType == F32 {
		return 0
	}
	return rowNumbers(grad.Elems())
}

// Cost counts some functions for each score.
func (ClassLoss) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 8) }
