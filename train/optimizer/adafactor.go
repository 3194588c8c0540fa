package optimizer

import (
	"math"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// AdafactorSettings are the keys that adafactor reads besides learning rate and weight decay. Their defaults are those
// of transformers' optim: adafactor.
type AdafactorSettings struct {
	// AdafactorBeta1 makes adafactor keep a running mean of its updates, with this decay rate; 0 keeps none.
	AdafactorBeta1 float64 `yaml:"adafactor_beta1" range:"[0,1)" resume:"fixed"`
	// AdafactorClipThreshold is the root mean square above which adafactor scales down a tensor's update.
	AdafactorClipThreshold float64 `yaml:"adafactor_clip_threshold" default:"1" range:"(0,inf)" resume:"steers"`
	// AdafactorScaleParameter multiplies adafactor's learning rate by the root mean square of a tensor, at least 0.001.
	AdafactorScaleParameter bool `yaml:"adafactor_scale_parameter" resume:"steers"`
	// AdafactorRelativeStep replaces learning rate and schedule by min(0.01, 1/sqrt(step)) in adafactor.
	AdafactorRelativeStep bool `yaml:"adafactor_relative_step" resume:"steers"`
	// AdafactorWarmupInit starts the rate of adafactor_relative_step at 1e-6 times the step instead of 0.01.
	AdafactorWarmupInit bool `yaml:"adafactor_warmup_init" resume:"steers"`
}

// adafactor is Adafactor (Shazeer and Stern 2018) as transformers computes it. Of a matrix's second moments it keeps
// the means of rows and columns.
type adafactor struct{ Config }

func newAdafactor(c Config) Optimizer { return adafactor{c} }

// Numbers returns the learning rate, the decay rate of second moments, and t as the bits of a float32 for a device that
// computes that rate itself.
func (a adafactor) Numbers(lr float64, t int) [NumbersSize]float64 {
	if a.AdafactorRelativeStep {
		most := 1e-2
		if a.AdafactorWarmupInit {
			most = 1e-6 * float64(t)
		}
		lr = min(most, 1/math.Sqrt(float64(t)))
	}
	b2 := 1 - math.Pow(float64(t), kernel.AdafactorDecay)
	return [...]float64{lr, b2, 0, float64(math.Float32frombits(uint32(t)))}
}

// Apply declares the means of squares and, with AdafactorBeta1, the running mean of updates.
func (a adafactor) Apply(u Update) []string {
	var matrices []kernel.Matrix
	for _, t := range u.Tensors {
		matrices = append(matrices, t.matrices()...)
	}
	rows, cols := kernel.AdafactorStates(matrices)
	moments := 1
	if a.AdafactorBeta1 > 0 {
		moments = u.Grads.Type.Elems()
	}
	var in []*graph.Value
	var names []string
	for i, elems := range []int{rows, cols, moments} {
		name := u.named([]string{"mean squares of rows", "mean squares of columns", "mean update"}[i])
		group := []string{"adafactor v", "adafactor v", "adafactor m"}[i]
		in, names = append(in, u.moments(group, name, kernel.T(u.Grads.Type.DType, elems))), append(names, name)
	}
	k := kernel.Adafactor{Matrices: matrices, Beta1: a.AdafactorBeta1, ClipThreshold: a.AdafactorClipThreshold,
		WeightDecay: u.decay(a.WeightDecay), ScaleParameter: a.AdafactorScaleParameter, Scaled: u.Scaling != nil}
	table := u.matrixTable(matrices, kernel.AdafactorPlaces)
	u.Net.Apply(k, u.scaled(append(append([]*graph.Value{u.Params, u.Grads}, in...), table, u.Norm, u.Numbers)...)...)
	return names
}
