// Package optimizer holds the rules by which a step changes trained parameters. Each optimizer is one file, with the
// configuration keys that it alone reads, and one line of Optimizers.
package optimizer

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Optimizers are the values of training.optimizer.
var Optimizers = map[string]func(Config) Optimizer{
	"adafactor":           newAdafactor,
	"adamw":               newAdamW,
	"adamw_8bit":          newAdamW8Bit,
	"lion":                newLion,
	"lion_8bit":           newLion8Bit,
	"muon":                newMuon,
	"schedule_free_adamw": newScheduleFree,
	"sgd":                 newSGD,
}

// Paged gives the optimizer that a name of bitsandbytes with paged states stands for: the states of every optimizer may
// lie in host memory.
var Paged = map[string]string{
	"paged_adamw": "adamw", "paged_adamw_32bit": "adamw", "paged_adamw_8bit": "adamw_8bit",
	"paged_lion": "lion", "paged_lion_32bit": "lion", "paged_lion_8bit": "lion_8bit",
}

// Config is what a run's configuration says of its optimizer.
type Config struct {
	Beta1, Beta2, Epsilon, WeightDecay float64
	Settings
}

// Settings are the keys of single optimizers.
type Settings struct {
	AdafactorSettings `yaml:",inline"`
	MuonSettings      `yaml:",inline"`
	SGDSettings       `yaml:",inline"`
}

// Optimizer is a rule of updating parameters.
type Optimizer interface {
	// Numbers are what step t, from 1, reads besides the gradients at a learning rate: data, so that one plan serves
	// all steps.
	Numbers(lr float64, t int) [NumbersSize]float64
	// Apply declares the optimizer's states and adds the update to the plan. It returns the states' names, which a
	// checkpoint keeps.
	Apply(u Update) (states []string)
}

// Checker is an optimizer that cannot train every selection of tensors.
type Checker interface {
	// Check returns an error if the optimizer cannot train the tensors, all of a run's.
	Check(tensors []Tensor) error
}

// Slicing is an optimizer whose states may lie in slices, one on each rank.
type Slicing interface {
	// Unit returns how many numbers, one after the other, an update reads the states of together: slices begin at
	// multiples of it. 0 = these parameters need all of their states at once.
	Unit(u Update) int
}

// Averaging is an optimizer that takes gradients at other weights than it evaluates and saves.
type Averaging interface {
	// Show adds the kernels that write one kind of weights into the parameters: the average, which is evaluated and
	// saved, or those to train.
	Show(u Update, average bool)
}

// NumbersSize is how many numbers an optimizer may read in a step.
const NumbersSize = 4

// Update is parameters to be changed by their gradients.
type Update struct {
	Net           *nn.Net
	Params, Grads *graph.Value // f[P]: all parameters as one vector, or one tensor
	Tensor        string       // its name, which the names of its states end in; empty for all parameters
	Extents       []Extent     // where the tensors of PEFT's lie in Params, for optimizers that tell them apart
	Tensors       []Tensor     // the trained tensors in Params, for optimizers that need their shapes
	Norm          *graph.Value // f[2]: global norm of the gradients, clip factor; a factor that is not finite means no update
	Numbers       *graph.Value // f[NumbersSize]
	Scaling       *graph.Value // state of loss scaling; nil = none
	Offload       bool         // states lie in host memory
	// Slice says which slice of a tensor Params and Grads are; nil = they are whole.
	Slice *Slice
	// Decay is the weight decay of these parameters if OwnDecay says so; else they have the configuration's.
	Decay    float64
	OwnDecay bool
}

// Slice is a rank's slice of parameters, and what an optimizer's states would be without slices.
type Slice struct {
	kernel.Slices
	Rank    int            // this rank
	Numbers int            // numbers of the whole parameters
	States  map[string]int // states that lie in slices: how many elements a state has over all ranks
}

// Extent is where a tensor lies in a vector: its numbers from place From on.
type Extent struct{ From, Numbers int }

// decay returns the weight decay of these parameters where the configuration has the given one.
func (u Update) decay(configured float64) float64 {
	if u.OwnDecay {
		return u.Decay
	}
	return configured
}

// state declares a tensor of the parameters' shape that lives from step to step. Group is what the plan lists it under.
func (u Update) state(group, name string) (*graph.Value, string) {
	name = u.named(name)
	if u.Slice != nil {
		u.Slice.States[name] = u.Slice.Numbers
	}
	return u.moments(group, name, u.Grads.Type), name
}

// moments declares a tensor that lives from step to step, in host memory if Offload says so.
func (u Update) moments(group, name string, t kernel.Type) *graph.Value {
	return u.Net.State(group, name, t).Movable(u.Offload)
}

// named is the name of a state, or of a table, of this update.
func (u Update) named(name string) string {
	if u.Tensor != "" {
		name += " of " + u.Tensor
	}
	return name
}

// scaled adds the state of loss scaling to a kernel's inputs, where there is one.
func (u Update) scaled(in ...*graph.Value) []*graph.Value {
	if u.Scaling == nil {
		return in
	}
	return append(in, u.Scaling)
}
