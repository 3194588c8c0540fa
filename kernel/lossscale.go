package kernel

import "math"

// LossScaling is the state of dynamic loss scaling, f[LossScalingSize]: the gradient that the loss starts is multiplied
// by the scale, so that small gradients stay above what fp16 holds, and divided by it again where they are clipped.
// Kernels that are Scaled take it as their last input.
const (
	LossScaleNow     = iota // the scale, a power of two where it began as one
	LossScaleStreak         // steps done since it changed
	LossScaleSkipped        // steps skipped in all
	LossScalingSize
)

// LossScale follows one step with the scale of the next (torch's GradScaler: growth 2, backoff 0.5).
//
//	scaling f[LossScalingSize], clip f[2] as a Scaled GradNorm gives it, loss f[] -> scaling'
//	gradient not finite: scale/2, streak 0, one more skipped
//	else one more in the streak; at Interval: scale*2 where that is finite, streak 0
//
// Where the loss is not finite, or the gradient at a scale of one or less, the scale is not why: nothing changes, and
// the run ends. The output is in the memory of scaling.
type LossScale struct{ Interval int }

func (LossScale) Name() string { return "lossscale" }

func (LossScale) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[3]", "f[2]", "f[]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2); err != nil {
		return nil, err
	}
	return in[:1], nil
}

func (LossScale) Overwrites() []Alias { return []Alias{{Out: 0, In: 0}} }

func (k LossScale) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], lossScale[float32], lossScale[float64])(k, in, out)
}

func lossScale[F Float](k LossScale, in, out []Tensor) func() {
	clip, loss, s := Floats[F](in[1]), Floats[F](in[2]), Floats[F](out[0])
	return func() {
		overflowed := math.IsNaN(float64(clip[1]))
		switch {
		case !finite(float64(loss[0])) || overflowed && s[LossScaleNow] <= 1:
		case overflowed:
			s[LossScaleNow] /= 2
			s[LossScaleStreak] = 0
			s[LossScaleSkipped]++
		case int(s[LossScaleStreak])+1 < k.Interval:
			s[LossScaleStreak]++
		default:
			s[LossScaleStreak] = 0
			if twice := 2 * s[LossScaleNow]; finite(float64(twice)) {
				s[LossScaleNow] = twice
			}
		}
	}
}

// lossScaling returns the number of a Scaled kernel's last input, n inputs before it; one where the kernel is not
// Scaled.
func lossScaling[F Float](scaled bool, in []Tensor, n int) []F {
	if scaled {
		return Floats[F](in[n])
	}
	return []F{1, 0, 0}
}

// withScaling adds the last input of a Scaled kernel to the patterns of the others.
func withScaling(scaled bool, patterns ...string) []string {
	if scaled {
		return append(patterns, "f[3]")
	}
	return patterns
}

func (LossScale) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

func (LossScale) Stored([]DType) (want, out []DType) { return []DType{F32, F32, F32}, []DType{F32} }

// storedScaling adds the last input of a Scaled kernel to what the others are stored as.
func storedScaling(scaled bool, want ...DType) []DType {
	if scaled {
		return append(want, F32)
	}
	return want
}
