package infer

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// logitsStep computes the logits of selected rows of a batch of pieces. A piece is a run of consecutive tokens of one
// sequence. A cache with a slot for each sequence keeps the keys and values of earlier tokens.
type logitsStep struct {
	session.Program
	logits *graph.Value // f[R,V]
	best   *graph.Value // i32[R], the likeliest token of each row; nil if a piece may have several tokens
	drawn  *graph.Value // i32[R], a drawn token of each row, and
	logp   *graph.Value // f[R], its log-probability; nil without logitsShape.draws
	prefix string
	logitsShape
	// spreads reports whether the step can write a piece's keys and values to several slots.
	spreads bool
}

// logitsShape is the fixed size of a logitsStep.
type logitsShape struct {
	tokens int  // tokens of all pieces together
	pieces int  // most pieces
	rows   int  // rows of logits
	copies int  // slots to which a piece's keys and values may be written; 0 = 1
	slots  int  // slots of the cache
	maxLen int  // most tokens of a sequence: rows of a slot
	shared int  // most tokens of a sequence, for a step that shares its memory with a training step; 0 = not shared
	draws  bool // draws a token of each row
}

// answersOwner is the owner of the cache of a step that draws tokens. It lies in memory that training uses at other
// times, unlike that of a step which shows samples of a run beside it.
const answersOwner = "answers "

// newLogitsStep plans a step.
//
// A piece's queries attend to the keys of its slot, from the slot's first row to the token's own. Attention takes such
// ranges as packed sequences: every second range is a piece, and the ranges between hold the keys between two pieces
// and have no queries.
func newLogitsStep(nw session.Network, prefix string, s logitsShape, on graph.Machine) (*logitsStep, error) {
	bounds := 2 * s.pieces
	n, trained, in := nw.Declare(prefix, session.Shape{Tokens: s.tokens, Sequences: bounds - 1, MaxLen: s.maxLen})
	in.Real = nil // a token's result does not depend on padding elsewhere
	in.CuK = n.Batch(prefix+"cu_keys", kernel.T(kernel.I32, bounds))
	s.copies = max(1, s.copies)
	in.Cache = &nn.Cache{Rows: s.slots * s.maxLen, Tokens: s.maxLen, At: n.Batch(prefix+"cache rows",
		kernel.T(kernel.I32, s.tokens*s.copies)), Longest: s.shared}
	if s.draws {
		in.Cache.Owner = answersOwner
		graph.Transient(n.Builder, answersOwner+nn.CacheGroup)
	}
	rows := n.Batch(prefix+"logit rows", kernel.T(kernel.I32, s.rows))
	hidden := nw.Hidden(n, in)                                        // [T,C]
	hidden = n.Apply(kernel.Embedding{Float: nw.Float}, rows, hidden) // [R,C]
	l := &logitsStep{prefix: prefix, logitsShape: s, spreads: s.copies > 1 && !in.Cache.States}
	l.logits = n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, hidden, nw.Head(n)) // [R,C] [V,C]ᵀ -> [R,V]
	if cap := nw.Config.LogitCap; cap > 0 {
		l.logits = n.Apply(kernel.SoftCap{Cap: cap}, l.logits)
	}
	outputs := []*graph.Value{l.logits}
	if s.pieces == s.tokens {
		n.RowsApart()
	}
	switch {
	case s.draws:
		draws := n.Batch(prefix+nameDraws, kernel.T(n.Float(), s.rows, 2))
		if out := n.ApplyAll(kernel.Draw{}, l.logits, draws); n.Err() == nil {
			l.drawn, l.logp = out[0], out[1]
			outputs = append(outputs, l.drawn, l.logp)
		}
	case s.pieces == s.tokens:
		l.best = n.Apply(kernel.Likeliest{}, l.logits)
		outputs = append(outputs, l.best)
	}
	plan, err := on.Compile(n.Builder, outputs...)
	if err != nil {
		return nil, fmt.Errorf("plan generation: %w", err)
	}
	l.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return l, nil
}

// nameDraws is the input of a step that draws tokens: kernel.Draw has its layout.
const nameDraws = "draws"

// logitsRun is a logitsStep bound to memory.
type logitsRun struct {
	step                                             *logitsStep
	run                                              graph.Runner
	store                                            graph.Store
	ids, positions, cuQ, cuK, places, rows, adapters []int32
	draws                                            []float32 // [R,2]
	names, sent                                      []string  // inputs that Put writes, and those of the last Put
	images                                           *session.ImageRows
}

func (l *logitsStep) bind(m graph.Store, run graph.Runner) (*logitsRun, error) {
	r := &logitsRun{step: l, run: run, store: m}
	for name, dst := range map[string]*[]int32{
		"input_ids": &r.ids, "positions": &r.positions, "cu_seqlens": &r.cuQ, "cu_keys": &r.cuK,
		"cache rows": &r.places, "logit rows": &r.rows, session.AdapterRows: &r.adapters,
	} {
		t, err := m.Tensor(l.prefix + name)
		// a model whose layers need no positions or cache, or a network with one adapter, has no such input
		if err != nil && (name == "positions" || name == "cache rows" || name == session.AdapterRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		*dst = t.I32()
		r.names = append(r.names, l.prefix+name)
	}
	if l.draws {
		t, err := m.Tensor(l.prefix + nameDraws)
		if err != nil {
			return nil, err
		}
		r.draws, r.names = t.F32(), append(r.names, l.prefix+nameDraws)
	}
	var names []string
	r.images, names = session.ImageRowsOf(m, l.prefix)
	r.names = append(r.names, names...)
	slices.Sort(r.names)
	return r, run.Prepare(segmentMain)
}

// segmentMain is the name of a plan's default segment.
const segmentMain = "main"

// piece is a run of consecutive tokens of one sequence.
type piece struct {
	slot    int
	start   int // tokens of the sequence that the cache holds already
	ids     []int32
	adapter int32      // index into session.Network.Several; -1 = none
	draw    [2]float32 // random number and one over the temperature of the token that follows, for a step that draws
	// images are those of the sequence, and before are its tokens before ids; nil = it has no images.
	images *dataset.RowImages
	before []int32
	shift  int // what is added to a token's number to get its position, after images whose positions repeat
	// followers are other sequences with the same tokens so far, whose slots get the piece's keys and values too.
	followers []follower
}

// follower is a sequence that shares a piece with another.
type follower struct {
	slot int
	draw [2]float32 // as piece.draw
}

// imageTokensBefore returns how many tokens of images the sequence has before the piece.
func (p piece) imageTokensBefore() (n int) {
	for _, id := range p.before {
		if id == p.images.Token {
			n++
		}
	}
	return n
}

// forward runs pieces of different slots, at most the step's number of tokens in all. Each piece, and then each of its
// followers, has a row of logits, those after its last token. With one such row in all, the rows before the last one
// belong to the tokens before.
func (r *logitsRun) forward(pieces ...piece) error {
	clear(r.ids)
	clear(r.positions)
	for t := range r.places {
		r.places[t] = -1
	}
	for t := range r.adapters {
		r.adapters[t] = -1
	}
	r.images.Clear()
	at, row := 0, 0
	for i, p := range pieces {
		if p.images != nil {
			if err := r.images.Place(p.ids, at, p.imageTokensBefore(), p.images); err != nil {
				return err
			}
		}
		r.setPositions(p, at)
		first := p.slot * r.step.maxLen
		r.cuQ[2*i], r.cuK[2*i] = int32(at), int32(first)
		for k, id := range p.ids {
			r.ids[at] = id
			if r.adapters != nil {
				r.adapters[at] = p.adapter
			}
			if r.places != nil {
				to := r.places[at*r.step.copies:]
				to[0] = int32(first + p.start + k)
				for j, f := range p.followers {
					to[j+1] = int32(f.slot*r.step.maxLen + p.start + k)
				}
			}
			at++
		}
		r.cuQ[2*i+1], r.cuK[2*i+1] = int32(at), int32(first+p.start+len(p.ids))
		for range 1 + len(p.followers) {
			if row < len(r.rows) {
				r.rows[row] = int32(at - 1)
			}
			row++
		}
	}
	for i := 2 * len(pieces); i < len(r.cuQ); i++ {
		r.cuQ[i], r.cuK[i] = int32(at), r.cuK[i-1]
	}
	for i := row; i < len(r.rows); i++ {
		r.rows[i] = 0
	}
	if row == 1 {
		for i := range r.rows {
			r.rows[i] = int32(max(0, at-len(r.rows)+i))
		}
	}
	r.setDraws(pieces, row)
	r.sent = append(append(r.sent[:0], r.names...), r.images.Named()...)
	if err := r.store.Put(r.sent...); err != nil {
		return err
	}
	return r.run.Run(segmentMain)
}

// setPositions sets the positions of a piece's tokens, which begin at token at of the batch.
func (r *logitsRun) setPositions(p piece, at int) {
	if r.positions == nil {
		return
	}
	turns := r.images.Turns()
	for k := range p.ids {
		position := int32(p.start + p.shift + k)
		if turns {
			r.images.SetPosition(at+k, position)
			position = int32(at + k)
		}
		r.positions[at+k] = position
	}
	if turns && p.images != nil {
		r.images.SetPositions(slices.Concat(p.before, p.ids), p.start, at, p.images)
	}
}

// setDraws sets what the tokens after pieces, and after their followers, are drawn with; rows is the number of these.
func (r *logitsRun) setDraws(pieces []piece, rows int) {
	if r.draws == nil {
		return
	}
	row := 0
	set := func(draw [2]float32) {
		if row < len(r.rows) {
			copy(r.draws[2*r.row(row, rows):], draw[:])
		}
		row++
	}
	for _, p := range pieces {
		set(p.draw)
		for _, f := range p.followers {
			set(f.draw)
		}
	}
}

// logits returns rows of the vocabulary's size. They are valid until the next call of forward.
func (r *logitsRun) logits() (kernel.Tensor, error) { return r.run.Read(r.step.logits) }

// likeliest returns the likeliest token of each piece that forward ran, or -1 - i if logit i is not finite. The step's
// pieces must be one token each.
func (r *logitsRun) likeliest(pieces int) ([]int32, error) {
	t, err := r.run.Read(r.step.best)
	if err != nil {
		return nil, err
	}
	return t.I32()[:pieces], nil
}

// row returns which row of the logits is row i of those that forward's pieces and followers have.
func (r *logitsRun) row(i, rows int) int {
	if rows == 1 {
		return len(r.rows) - 1
	}
	return i
}

// drawn returns the tokens that were drawn after the pieces that forward ran and their followers, with their
// log-probabilities. A token is -1 - i where logit i is the first that is not finite.
func (r *logitsRun) drawn(rows int) (ids []int32, logp []float32, err error) {
	t, err := r.run.Read(r.step.drawn)
	if err != nil {
		return nil, nil, err
	}
	ids = slices.Clone(t.I32())
	if t, err = r.run.Read(r.step.logp); err != nil {
		return nil, nil, err
	}
	from := r.row(0, rows)
	return ids[from:][:rows], t.F32()[from:][:rows], nil
}

// next runs forward and returns the logits [V] of each piece's last token.
func (r *logitsRun) next(pieces ...piece) ([][]float32, error) {
	if err := r.forward(pieces...); err != nil {
		return nil, err
	}
	return r.rowsOf(len(pieces))
}

// rowsOf returns the logits of each piece that forward ran.
func (r *logitsRun) rowsOf(pieces int) ([][]float32, error) {
	t, err := r.logits()
	if err != nil {
		return nil, err
	}
	all, vocab := t.F32(), t.Shape[1]
	rows := make([][]float32, pieces)
	for i := range rows {
		rows[i] = all[r.row(i, pieces)*vocab:][:vocab]
	}
	return rows, nil
}
