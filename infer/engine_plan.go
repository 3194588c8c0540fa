package infer

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// engineShape is an engine's number of slots and the most tokens of each.
type engineShape struct {
	Slots, MaxLen int
	shared        int  // see logitsShape.shared
	draws         bool // see logitsShape.draws
}

// MaxSlots is the largest EngineOptions.Slots.
const MaxSlots = 256

// leastMaxLen is the shortest sequence length, in tokens, that an engine chooses by itself.
const leastMaxLen = 256

// stepSizes lists the sizes of an engine's steps in tokens, the largest first: prefill holds the lengths of prompt
// pieces, decode the numbers of sequences that are decoded together.
type stepSizes struct {
	prefill, decode []int
	prompts         int // most prompts of a step that reads prompts
	answers         int // most sequences that follow the prompts of such a step
}

// sizesOn returns the step sizes for a machine. A step's size must not change the bits of a row's result. On a CPU,
// GEMMs with up to four rows sum each row alike (kernel/gemm) and larger ones sum in another order; on a GPU, GEMMs
// with up to 256 rows are computed row by row (kernel.RowsApart).
func sizesOn(on graph.Machine, s engineShape) stepSizes {
	sizes := stepSizes{prefill: []int{64, 16}, decode: []int{4, 3, 2, 1}, prompts: 1, answers: 1}
	if s.draws {
		sizes.answers = 4
	}
	if on.Capabilities().SeparateHost {
		sizes = stepSizes{prefill: []int{512, 64}, decode: []int{256, 128, 64, 32, 16, 8, 4, 2, 1}, prompts: 1,
			answers: 1}
		if s.draws {
			sizes.prefill, sizes.prompts, sizes.answers = sizes.prefill[:1], promptsTogether, answersTogether
		}
	}
	for len(sizes.prefill) > 1 && sizes.prefill[1] >= s.MaxLen {
		sizes.prefill = sizes.prefill[1:]
	}
	for len(sizes.decode) > 1 && sizes.decode[1] >= s.Slots {
		sizes.decode = sizes.decode[1:]
	}
	return sizes
}

// promptsTogether is the most prompts that an engine which draws tokens reads in one step on a GPU. Its steps over
// prompts have one size, for an engine of one slot too, so GEMMs and attention give each row the same bits wherever it
// lies.
const promptsTogether = 16

// answersTogether is the most sequences whose prompts such a step reads. Sequences with equal prompts have them read
// once, and the step writes their keys and values to the slots of all.
const answersTogether = 32

// enginePlan is a planned engine whose memory is not allocated yet.
type enginePlan struct {
	engineShape
	steps    []*logitsStep
	prefills int // the first of them read prompts
}

func (p *enginePlan) programs() []*session.Program {
	all := make([]*session.Program, len(p.steps))
	for i, s := range p.steps {
		all[i] = &s.Program
	}
	return all
}

// planEngine plans an engine with the given slots and tokens. For a zero it plans as many as fit.
func planEngine(s *session.Session, slots, maxLen int, score bool) (*enginePlan, error) {
	shape := engineShape{Slots: slots, MaxLen: maxLen}
	most := s.Base.Config.MaxPositions
	if maxLen > most {
		return nil, refuse(ErrTooLong, "sequences of %d tokens exceed the model's %d positions", maxLen, most)
	}
	if maxLen == 0 {
		shape.MaxLen = most
	}
	if slots == 0 {
		shape.Slots = DefaultSlots
	}
	for {
		p, err := newEnginePlan(s.Net, s.On, shape)
		if err == nil && score {
			err = p.addScore(s)
		}
		if err != nil {
			return nil, err
		}
		if err = p.fits(s); err == nil {
			return p, nil
		}
		switch {
		case maxLen == 0 && shape.MaxLen/2 >= leastMaxLen:
			shape.MaxLen /= 2
		case slots == 0 && shape.Slots > 1:
			shape.Slots /= 2
		default:
			return nil, err
		}
	}
}

func newEnginePlan(nw session.Network, on graph.Machine, shape engineShape) (*enginePlan, error) {
	if int64(shape.Slots)*int64(shape.MaxLen) > math.MaxInt32 {
		return nil, fmt.Errorf("generate: %d slots of %d tokens exceed a cache's limit of %d tokens", shape.Slots,
			shape.MaxLen, math.MaxInt32)
	}
	p := &enginePlan{engineShape: shape}
	sizes := sizesOn(on, shape)
	p.prefills = len(sizes.prefill)
	add := func(prefix string, l logitsShape) error {
		if shape.draws {
			prefix = answersOwner + prefix
		}
		l.slots, l.maxLen, l.shared, l.draws = shape.Slots, shape.MaxLen, shape.shared, shape.draws
		step, err := newLogitsStep(nw, prefix, l, on)
		p.steps = append(p.steps, step)
		return err
	}
	for _, n := range sizes.prefill {
		shape := logitsShape{tokens: n, pieces: sizes.prompts, rows: sizes.answers, copies: sizes.answers}
		if err := add(fmt.Sprintf("prompt %d ", n), shape); err != nil {
			return nil, err
		}
	}
	for _, n := range sizes.decode {
		if err := add(fmt.Sprintf("decode %d ", n), logitsShape{tokens: n, pieces: n, rows: n, copies: 1}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// bind assigns memory and a runner to each step.
func (p *enginePlan) bind(m graph.Store, runs []graph.Runner) (prefill, decode []*logitsRun, err error) {
	all := make([]*logitsRun, len(p.steps))
	for i, step := range p.steps {
		if all[i], err = step.bind(m, runs[i]); err != nil {
			return nil, nil, err
		}
	}
	return all[:p.prefills], all[p.prefills:], nil
}

// need returns the memory that the plan's steps share.
func (p *enginePlan) need() (graph.Bytes, error) {
	plans := make([]*graph.Plan, len(p.steps))
	for i, step := range p.steps {
		plans[i] = step.Plan
	}
	return graph.Need(plans...)
}

// Need returns the engine's memory in bytes, by category.
func (e *Engine) Need() graph.Bytes { return e.need }

// fits compares the plan with the checkpoint and with the free memory.
func (p *enginePlan) fits(s *session.Session) error {
	if err := s.Base.Check(p.steps[0].Net); err != nil {
		return err
	}
	need, err := p.need()
	if err != nil {
		return err
	}
	free, known, err := s.On.FreeMemory()
	if err == nil && known && need.Total() > free {
		cache := need.State[nn.CacheGroup]
		err = fmt.Errorf("%w: the model and a cache of %d slots of %d tokens need %s, of which the cache takes %s "+
			"(%s per slot), and %s has %s available; ask for fewer slots or shorter texts",
			session.ErrDoesNotFit, p.Slots, p.MaxLen, session.FormatBytes(need.Total()), session.FormatBytes(cache),
			session.FormatBytes(cache/int64(p.Slots)), s.On.Name(), session.FormatBytes(free))
	}
	return err
}
