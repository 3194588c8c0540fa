package train

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// givenTeacher is distillation from a teacher that is part of the batch: its logits [M,V] and the identity as its head,
// or k tokens with their log-probabilities.
type givenTeacher struct {
	objective.Objective // what a batch of labels needs
	kernel              kernel.LinearDivergence
	k, vocab            int
}

func (o givenTeacher) Numbers() []objective.Number {
	return []objective.Number{{Name: "divergence"}, {Name: "nll"}, {Name: "agreement"}}
}

func (o givenTeacher) Declare(n *nn.Net, prefix string, s session.Shape) objective.Inputs {
	in := o.Objective.Declare(n, prefix, s)
	if o.k == 0 {
		return append(in, n.Batch("teacher", kernel.T(n.Float(), s.Tokens, o.vocab)),
			n.Batch("identity", kernel.T(n.Float(), o.vocab, o.vocab)))
	}
	return append(in, n.Batch("ids", kernel.T(kernel.I32, s.Tokens, o.k)),
		n.Batch("logps", kernel.T(n.Float(), s.Tokens, o.k+1)))
}

func (o givenTeacher) Train(n *nn.Net, at objective.Network, in objective.Inputs) objective.Outcome {
	k := o.kernel
	k.Chunk, k.Grad = 16, true // several chunks
	out := n.ApplyAll(k, append([]*graph.Value{at.Hidden, at.Head}, in...)...)
	if n.Err() != nil {
		return objective.Outcome{}
	}
	return objective.Outcome{Loss: out[0], Sums: out[3:]}
}

// teacherOfGoldens is the teacher of the reference numbers, at each predicting place.
type teacherOfGoldens struct {
	ids, labels     []int32
	dims            []int
	logits, topLogp []float64 // [N,V] and [N,6], at the trained places
	topIDs          []int32   // [N,6]
	ofLabel         []float64 // [N]
	places          []int     // of each trained token, in the batch
	vocab           int
}

func openTeacher(t *testing.T) (g teacherOfGoldens) {
	t.Helper()
	batch := golden.Open(t, golden.Path(t, "distill/batch.safetensors"))
	g = teacherOfGoldens{ids: batch.Ints("input_ids"), labels: batch.Ints("labels"), dims: batch.Shape("input_ids"),
		logits: batch.Floats("teacher_logits"), topLogp: batch.Floats("teacher_topk_logprobs"),
		topIDs: batch.Ints("teacher_topk_ids"), ofLabel: batch.Floats("teacher_logprob_of_the_token"),
		vocab: batch.Shape("teacher_logits")[1]}
	at := batch.Ints("places")
	for i := range len(at) / 2 {
		g.places = append(g.places, int(at[2*i])*g.dims[1]+int(at[2*i+1]))
	}
	return g
}

// logp returns the teacher's log-probability of a token at trained place i.
func (g teacherOfGoldens) logp(i int, id int32) float64 {
	sum := 0.
	for _, z := range g.logits[i*g.vocab:][:g.vocab] {
		sum += math.Exp(z)
	}
	return g.logits[i*g.vocab+int(id)] - math.Log(sum)
}

// support returns tokens and log-probabilities for all M places, given those of trained place i.
func (g teacherOfGoldens) support(k int, of func(i int) (ids []int32, logps []float64)) (ids []int32, logps []float64) {
	ids, logps = slices.Repeat([]int32{-1}, len(g.ids)*k), make([]float64, len(g.ids)*(k+1))
	for i, at := range g.places {
		own, l := of(i)
		copy(ids[at*k:], own)
		copy(logps[at*(k+1):], l)
		rest := 1.
		for _, x := range l {
			rest -= math.Exp(x)
		}
		logps[at*(k+1)+k] = math.Log(rest)
	}
	return ids, logps
}

// top returns the teacher's k most likely tokens.
func (g teacherOfGoldens) top(k int) (ids []int32, logps []float64) {
	return g.support(k, func(i int) ([]int32, []float64) { return g.topIDs[6*i:][:k], g.topLogp[6*i:][:k] })
}

// firstAndLabel returns the teacher's most likely token and the label, or the label alone.
func (g teacherOfGoldens) firstAndLabel(alone bool) (ids []int32, logps []float64) {
	return g.support(2, func(i int) ([]int32, []float64) {
		label := g.labels[g.places[i]+1]
		if first := g.topIDs[6*i]; !alone && first != label {
			return []int32{first, label}, []float64{g.topLogp[6*i], g.ofLabel[i]}
		}
		return []int32{label}, []float64{g.ofLabel[i]}
	})
}

// ofStudent returns the student's k most likely tokens with the teacher's log-probabilities of them.
func (g teacherOfGoldens) ofStudent(logits []float64, k int) (ids []int32, logps []float64) {
	return g.support(k, func(i int) (own []int32, l []float64) {
		z := logits[g.places[i]*g.vocab:][:g.vocab]
		order := make([]int32, g.vocab)
		for v := range order {
			order[v] = int32(v)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			if z[a] > z[b] {
				return -1
			}
			return 1
		})
		for _, id := range order[:k] {
			own, l = append(own, id), append(l, g.logp(i, id))
		}
		return own, l
	})
}

// distillCase is a case of the reference numbers.
type distillCase struct {
	kernel kernel.LinearDivergence
	k      int
	tokens func(g teacherOfGoldens, logits []float64) ([]int32, []float64)
}

func distillCases() map[string]distillCase {
	top := func(g teacherOfGoldens, _ []float64) ([]int32, []float64) { return g.top(6) }
	student := func(k int) func(g teacherOfGoldens, logits []float64) ([]int32, []float64) {
		return func(g teacherOfGoldens, logits []float64) ([]int32, []float64) { return g.ofStudent(logits, k) }
	}
	first := func(g teacherOfGoldens, _ []float64) ([]int32, []float64) { return g.firstAndLabel(false) }
	label := func(g teacherOfGoldens, _ []float64) ([]int32, []float64) { return g.firstAndLabel(true) }
	of := func(beta float64, teacher kernel.Teacher) kernel.LinearDivergence {
		return kernel.LinearDivergence{Beta: beta, Temperature: 1, Alpha: 1, Teacher: teacher}
	}
	warm := of(0.25, kernel.TeacherDense)
	warm.Temperature = 2
	return map[string]distillCase{
		"forward_kl":                {kernel: of(0, kernel.TeacherDense)},
		"reverse_kl":                {kernel: of(1, kernel.TeacherDense)},
		"jsd":                       {kernel: of(0.5, kernel.TeacherDense)},
		"jsd_temperature":           {kernel: warm},
		"topk_teacher_forward":      {of(0, kernel.TeacherRenormalised), 6, top},
		"topk_teacher_forward_tail": {of(0, kernel.TeacherBucket), 6, top},
		"topk_student_forward":      {of(0, kernel.TeacherRenormalised), 8, student(8)},
		"topk_student_jsd_tail":     {of(0.5, kernel.TeacherBucket), 5, student(5)},
		"topk_student_reverse_tail": {of(1, kernel.TeacherBucket), 8, student(8)},
		"top1_jsd":                  {of(0.5, kernel.TeacherBucket), 2, first},
		"top1_reverse":              {of(1, kernel.TeacherBucket), 2, label},
	}
}

// TestDivergencesEqualTRL compares the divergences with TRL's: loss, gradient norm and the gradients of layer 0.
func TestDivergencesEqualTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	var cases map[string]lossCase
	golden.JSON(t, golden.Path(t, "distill/cases.json"), &cases)
	g := openTeacher(t)
	if all := distillCases(); len(all) != len(cases) {
		t.Errorf("%d cases, the reference has %d", len(all), len(cases))
	}
	logits := distillLogits(t, b, g)
	for name, c := range distillCases() {
		for _, p := range []struct {
			float        kernel.DType
			loss, tensor float64
		}{{kernel.F32, 1e-5, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
			t.Run(name+" "+p.float.String(), func(t *testing.T) {
				ts := distilled(t, b, g, c, p.float, logits)
				ts.equals(t, "distill", name, cases[name], p.loss, p.tensor)
				if name == "forward_kl" { // divided by a number of items that TRL is given
					ts.ofItems(t, 100, lossCase{0.16045412535619538, 0.20464304527277608}, p.loss)
				}
			})
		}
	}
}

// TestDivergencesAreNotOthers shows that common mistakes do not pass for the reference numbers.
func TestDivergencesAreNotOthers(t *testing.T) {
	b := stories(t)
	var cases map[string]lossCase
	golden.JSON(t, golden.Path(t, "distill/cases.json"), &cases)
	g := openTeacher(t)
	logits, all := distillLogits(t, b, g), distillCases()
	for _, wrong := range []struct {
		of, mistake string
		change      func(c *distillCase)
	}{
		{"forward_kl", "reverse divergence", func(c *distillCase) { c.kernel.Beta = 1 }},
		{"jsd", "factor temperature squared", func(c *distillCase) { c.kernel.Alpha = 4 }},
		{"jsd_temperature", "no temperature", func(c *distillCase) { c.kernel.Temperature = 1 }},
		{"jsd_temperature", "beta for the student's part", func(c *distillCase) { c.kernel.Beta = 0.75 }},
		{"topk_teacher_forward", "student not renormalised",
			func(c *distillCase) { c.kernel.Teacher = kernel.TeacherZero }},
		{"topk_teacher_forward_tail", "other tokens left out",
			func(c *distillCase) { c.kernel.Teacher = kernel.TeacherRenormalised }},
		{"topk_student_forward", "the teacher's tokens", func(c *distillCase) { *c = all["topk_teacher_forward"] }},
		{"top1_reverse", "the first token too", func(c *distillCase) { c.tokens = all["top1_jsd"].tokens }},
		{"forward_kl", "with cross-entropy", func(c *distillCase) { c.kernel.CrossEntropy = 0.1 }},
	} {
		t.Run(wrong.of+", "+wrong.mistake, func(t *testing.T) {
			c := all[wrong.of]
			wrong.change(&c)
			ts := distilled(t, b, g, c, kernel.F64, logits)
			if got, want := ts.read(t, ts.Loss)[0], cases[wrong.of].Loss; math.Abs(got-want) <= 1e-3*want {
				t.Errorf("the loss is %v, the reference's %v", got, want)
			}
		})
	}
}

// distilled returns a step after the gradient of a case.
func distilled(t *testing.T, b *session.Base, g teacherOfGoldens, c distillCase, float kernel.DType,
	logits []float64) *testStep {
	t.Helper()
	o := givenTeacher{objective.Of(objective.Default, objective.Config{}), c.kernel, c.k, g.vocab}
	dir := golden.Path(t, "distill/adapter")
	cfg, run, on := peftConfigOf(t, dir), Default(), graph.NewCPU(2)
	planned, err := step.Plan(network(t, b, float, nil, &cfg),
		session.Shape{Tokens: len(g.ids), Sequences: g.dims[0], MaxLen: g.dims[1]}, run.Step(o), step.Summing{}, on)
	if err != nil {
		t.Fatal(err)
	}
	ts := bound(t, on, b, planned, run, dir)
	trained := ts.fill(t, g.ids, g.labels, g.dims[1])
	if trained != len(g.places) {
		t.Fatalf("%d trained tokens, the reference has %d", trained, len(g.places))
	}
	ts.set(t, "loss scale", 1/float64(trained))
	if c.k == 0 {
		dense, identity := make([]float64, len(g.ids)*g.vocab), make([]float64, g.vocab*g.vocab)
		for i, at := range g.places {
			copy(dense[at*g.vocab:], g.logits[i*g.vocab:][:g.vocab])
		}
		for v := range g.vocab {
			identity[v*(g.vocab+1)] = 1
		}
		ts.set(t, "teacher", dense...)
		ts.set(t, "identity", identity...)
	} else {
		ids, logps := c.tokens(g, logits)
		copy(ts.ints(t, "ids"), ids)
		ts.set(t, "logps", logps...)
	}
	ts.run.Run(step.SegmentBegin)
	ts.run.Run(step.SegmentMicro)
	return ts
}

// distillLogits returns the student's logits in float64.
func distillLogits(t *testing.T, b *session.Base, g teacherOfGoldens) []float64 {
	t.Helper()
	dir := golden.Path(t, "distill/adapter")
	cfg, on := peftConfigOf(t, dir), graph.NewCPU(2)
	nw := network(t, b, kernel.F64, nil, &cfg)
	n, trained, in := nw.Declare("", session.Shape{Tokens: len(g.ids), Sequences: g.dims[0], MaxLen: g.dims[1]})
	data := objective.Of(objective.Default, objective.Config{}).Declare(n, "", session.Shape{Tokens: len(g.ids)})
	hidden, head := nw.Hidden(n, in), nw.Head(n)
	logits := n.Apply(kernel.MatMul{TransB: true}, hidden, head)
	keep := n.ApplyAll(kernel.LinearCrossEntropy{Chunk: 16}, append([]*graph.Value{hidden, head}, data...)...)
	plan, err := on.Compile(n.Builder, logits, keep[0])
	if err != nil {
		t.Fatal(err)
	}
	ts := bound(t, on, b, &step.Step{Program: session.Program{Net: n, Trained: trained, Plan: plan}}, Default(), dir)
	ts.fill(t, g.ids, g.labels, g.dims[1])
	ts.set(t, "loss scale", 1)
	if err := ts.run.Run("main"); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(ts.read(t, logits))
}
