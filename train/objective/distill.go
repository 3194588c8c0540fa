package objective

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/logprobs"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// distillName is the objective's name in Objectives, and its section's.
const distillName = "distill"

// DistillConfig is the section of training.objective: distill.
type DistillConfig struct {
	// Logprobs is the folder of the teacher's log-probabilities that trainer logprobs wrote for the rows of this
	// configuration. Set either it or teacher.
	Logprobs string `yaml:"logprobs" form:"path" resume:"steers"`
	// Teacher is a model that is loaded beside the trained one, frozen: a folder, a name such as org/name on the hub, or
	// the folder of an adapter in PEFT's format for the base model, which then is not loaded twice. The divergence is
	// over the whole vocabulary. Teacher and student must have the same tokens.
	Teacher string `yaml:"teacher" form:"path" resume:"steers"`
	// TeacherQuantization is how the teacher's linear layers are stored; none keeps them as numbers. A teacher that is
	// quantised already stays as it is, and one that is an adapter is stored as the base model.
	TeacherQuantization string `yaml:"teacher_quantization" default:"nf4" resume:"steers"`
	// TopK is how many of the folder's tokens for each place take part, the most likely ones. 0 takes all that the
	// folder has.
	TopK int `yaml:"top_k" range:"[0,512]" resume:"steers"`
	// Rest is what becomes of the tokens that are not among a place's top_k. bucket counts them all as one more token,
	// for the teacher and for the student. renormalise leaves them out and makes both distributions sum to one without
	// them. zero gives them the probability 0 in the teacher's distribution and leaves the student's as it is.
	Rest string `yaml:"rest" default:"bucket" choices:"bucket renormalise zero" resume:"steers"`
	// Beta chooses the divergence: 0 is the forward KL(teacher || student), 1 the reverse KL(student || teacher), and
	// numbers between are the generalised Jensen-Shannon divergence of GKD (Agarwal et al. 2024).
	Beta float64 `yaml:"beta" range:"[0,1]" resume:"steers"`
	// Temperature divides the logits of teacher and student for the divergence. The loss is not multiplied by its
	// square.
	Temperature float64 `yaml:"temperature" default:"1" range:"(0,inf)" resume:"steers"`
	// Alpha is the weight of the divergence in the loss.
	Alpha float64 `yaml:"alpha" default:"1" range:"[0,inf)" resume:"steers"`
	// CEAlpha is the weight of the labels' cross-entropy in the loss.
	CEAlpha float64 `yaml:"ce_alpha" range:"[0,inf)" resume:"steers"`
}

// noQuantization is the value of distill.teacher_quantization that keeps a teacher's weights as numbers.
const noQuantization = "none"

// Choices are the names of the ways to store a teacher.
func (DistillConfig) Choices() map[string][]string {
	return map[string][]string{"teacher_quantization": append(quant.Names(), noQuantization)}
}

// TeacherScheme returns how the teacher's linear layers are stored; nil = as numbers.
func (c DistillConfig) TeacherScheme() *quant.Config {
	if c.TeacherQuantization == noQuantization {
		return nil
	}
	scheme := quant.DefaultOf(c.TeacherQuantization)
	return &scheme
}

// inert returns the keys of teachers in the form that the section does not have.
func (c DistillConfig) inert() []inertKey {
	const whole = "with distill.teacher, whose whole distribution is compared"
	return []inertKey{
		{"top_k", c.TopK != 0 && c.Teacher != "", whole},
		{"rest", c.Rest != "bucket" && c.Teacher != "", whole},
		{"teacher_quantization", c.TeacherQuantization != "nf4" && c.Teacher == "", "without distill.teacher"},
	}
}

func (c DistillConfig) problems() (all []error) {
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(distillName+"."+format, args...)) }
	switch {
	case c.Logprobs == "" && c.Teacher == "":
		bad("logprobs: is empty: name the folder of the teacher's log-probabilities, which trainer logprobs writes, " +
			"or set distill.teacher to a model that is loaded beside the trained one")
	case c.Logprobs != "" && c.Teacher != "":
		bad("teacher: is set, and so is distill.logprobs: a run has one teacher, remove one of them")
	}
	if c.Alpha == 0 {
		bad("alpha: is 0, so that nothing is learnt from the teacher: set it above 0, or training.objective: %s",
			Default)
	}
	if c.Rest == "zero" && c.Beta > 0 {
		bad("rest: zero needs beta: 0, it is %v: the divergence is infinite where the teacher's other tokens have no "+
			"probability", c.Beta)
	}
	return all
}

// distill is the mean over the trained tokens of a divergence of the model's distribution from a teacher's.
type distill struct {
	crossEntropy
	DistillConfig
}

func newDistill(c Config) Objective { return distill{DistillConfig: settings(c.Distill)} }

func (o distill) withWeights() Objective {
	o.weighted = true
	return o
}

// Numbers are the divergence without weights, the likelihood of the labels, and how often the most likely tokens of
// teacher and student are the same.
func (distill) Numbers() []Number {
	return []Number{
		{Name: "divergence", Unit: "nats/token", Per: Tokens}, {Name: "nll", Unit: "nats/token", Per: Tokens},
		perplexity("nll"), {Name: "agreement", Per: Tokens, HigherIsBetter: true},
	}
}

// Names of a micro-batch's data beside those of crossEntropy.
const (
	nameTeacherIDs   = "teacher ids"
	nameTeacherLogps = "teacher log-probabilities"
)

// TrainsHead reports that the divergence has no gradient for the vocabulary head.
func (distill) TrainsHead() bool { return false }

// Taught reports whether the teacher is a model in the computation.
func (o distill) Taught() bool { return o.Teacher != "" }

// support returns the number of tokens of each place.
func (o distill) support() (int, error) {
	have, err := logprobs.ReadSubject(o.Logprobs)
	if err != nil {
		return 0, fmt.Errorf("%s.logprobs: %w", distillName, err)
	}
	return o.supportOf(have)
}

func (o distill) supportOf(have logprobs.Subject) (int, error) {
	if o.TopK > have.TopK {
		return 0, fmt.Errorf("%s.top_k: is %d, and %s has %d tokens for each place: lower it, or write the folder "+
			"again with "+
			"--top-k %d", distillName, o.TopK, o.Logprobs, have.TopK, o.TopK)
	}
	if o.TopK > 0 {
		return o.TopK, nil
	}
	return have.TopK, nil
}

// Declare adds what crossEntropy needs, and the teacher's tokens with their log-probabilities.
func (o distill) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	in := o.crossEntropy.Declare(n, prefix, s)
	if o.Taught() {
		return in
	}
	k, err := o.support()
	if err != nil {
		n.Fail(err)
		return in
	}
	return append(in, n.Batch(prefix+nameTeacherIDs, kernel.T(kernel.I32, s.Tokens, k)),
		n.Batch(prefix+nameTeacherLogps, kernel.T(n.Float(), s.Tokens, k+1)))
}

// values returns the inputs of the kernel: weights stand behind the teacher.
func (o distill) values(at Network, in Inputs) []*graph.Value {
	values := append([]*graph.Value{at.Hidden, at.Head}, in[:2]...)
	if o.Taught() {
		return append(append(values, at.Teacher, at.TeacherHead), in[2:]...)
	}
	values = append(values, in[len(in)-2:]...)
	return append(values, in[2:len(in)-2]...)
}

// kernel returns the operation that computes the loss.
func (o distill) kernel(at Network) kernel.LinearDivergence {
	k := kernel.LinearDivergence{Chunk: at.LossRows, Cap: at.LogitCap, Weighted: o.weighted, Beta: o.Beta,
		Temperature: o.Temperature, Alpha: o.Alpha, CrossEntropy: o.CEAlpha, Teacher: teacherForms[o.Rest]}
	if o.Taught() {
		k.Teacher, k.TeacherCap = kernel.TeacherDense, at.TeacherCap
	}
	return k
}

// teacherForms maps the choices of distill.rest to the forms of a teacher.
var teacherForms = map[string]kernel.Teacher{
	"bucket": kernel.TeacherBucket, "renormalise": kernel.TeacherRenormalised, "zero": kernel.TeacherZero,
}

// Train builds the loss with its gradient.
func (o distill) Train(n *nn.Net, at Network, in Inputs) Outcome {
	if n.Err() != nil {
		return Outcome{}
	}
	k, values := o.kernel(at), o.values(at, in)
	k.Grad, k.Scaled = true, at.Scaling != nil
	if k.Scaled {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(k, values...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: balanced(n, out[0], at, in), Sums: out[3:]}
}

// Eval builds the same loss without a gradient.
func (o distill) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	if n.Err() != nil {
		return Outcome{}
	}
	out := n.ApplyAll(o.kernel(at), o.values(at, in)...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Each: out[1], Sums: out[2:]}
}

// CheckData refuses a folder that does not belong to the model and the rows.
func (o distill) CheckData(ctx context.Context, set *dataset.Set, tok dataset.Tokenizer, vocabulary int) error {
	if o.Taught() {
		return nil
	}
	f, err := logprobs.Open(o.Logprobs)
	if err != nil {
		return fmt.Errorf("%s.logprobs: %w", distillName, err)
	}
	defer f.Close() //nolint:errcheck // read only
	if _, err := o.supportOf(f.Subject); err != nil {
		return err
	}
	if f.Temperature != o.Temperature && (o.Rest != "renormalise" || f.Temperature != 1) {
		return fmt.Errorf("%s.temperature: is %v, and %s was made at temperature %v: write the folder again with "+
			"--temperature %v, or, with --temperature 1, set rest: renormalise", distillName, o.Temperature, o.Logprobs,
			f.Temperature, o.Temperature)
	}
	if err := f.Check(set, tok, vocabulary); err != nil {
		return fmt.Errorf("%s.logprobs: %w", distillName, err)
	}
	if err := f.Verify(ctx, vocabulary); err != nil {
		return fmt.Errorf("%s.logprobs: %w", distillName, err)
	}
	return nil
}

// Bind finds labels, scale, weights and the teacher's numbers in the memory of a plan, and opens the folder.
func (o distill) Bind(b *session.Batch) (Filler, error) {
	own, err := o.crossEntropy.Bind(b)
	if err != nil || o.Taught() {
		return own, err
	}
	f := &distillFiller{labelled: own.(*labelled), cold: 1}
	if f.ids, err = b.Int32s(nameTeacherIDs); err != nil {
		return nil, err
	}
	if f.logps, err = b.Float32s(nameTeacherLogps); err != nil {
		return nil, err
	}
	if f.folder, err = logprobs.Open(o.Logprobs); err != nil {
		return nil, fmt.Errorf("%s.logprobs: %w", distillName, err)
	}
	runtime.AddCleanup(f, func(folder *logprobs.Folder) { folder.Close() }, f.folder) //nolint:errcheck // read only
	if f.k, err = o.supportOf(f.folder.Subject); err != nil {
		return nil, err
	}
	f.cold = f.folder.Temperature / o.Temperature
	return f, nil
}

// distillFiller writes a micro-batch's data of a teacher.
type distillFiller struct {
	*labelled
	folder *logprobs.Folder
	k      int       // tokens of each place
	cold   float64   // multiplies the folder's log-probabilities
	ids    []int32   // [M,k]
	logps  []float32 // [M,k+1]
}

// Fill writes the labels and the teacher's numbers of a part of a batch.
func (f *distillFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.labelled.Fill(b, own)
	from, to := 0, len(f.ids)/f.k
	if own != (session.Part{}) {
		from, to = own.From, own.To
	}
	for i := range f.ids {
		f.ids[i] = -1
	}
	clear(f.logps)
	for row := range b.Rows {
		ids, labels := b.Row(row)
		at := b.Starts[row] - 1 // the place that predicts the row's next token
		next := func() {
			for at++; labels[at+1-b.Starts[row]] == dataset.Ignore; at++ {
			}
		}
		found := f.folder.Tokens(ids, labels, f.k, func(tokens []int32, logps []float32) {
			next()
			if at < from || at >= to {
				return
			}
			copy(f.ids[(at-from)*f.k:], tokens)
			f.place((at-from)*(f.k+1), logps)
		})
		if !found {
			panic(fmt.Errorf("distill.logprobs: the folder has no row for %v", b.Where()[row]))
		}
	}
	return trained
}

// place writes the log-probabilities of a place.
func (f *distillFiller) place(at int, logps []float32) {
	for i, l := range logps {
		f.logps[at+i] = float32(float64(l) * f.cold)
	}
}
