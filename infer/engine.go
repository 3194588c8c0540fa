package infer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Errors of Engine.Start, for those who answer each with a status of their own.
var (
	ErrTooLong        = errors.New("too long")
	ErrUnknownAdapter = errors.New("unknown adapter")
	ErrSlot           = errors.New("no free slot")
)

// refusal is an error of Start.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return "generate: " + r.text }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), kind}
}

// checkLength refuses texts that are longer than the model's positions.
func checkLength(s *session.Session, prompt, more int) error {
	if most := s.Base.Config.MaxPositions; prompt+more > most {
		return refuse(ErrTooLong, "a prompt of %d tokens and %d more are above the model's %d positions",
			prompt, more, most)
	}
	return nil
}

// Engine continues several sequences at once with one model and any number of adapters. One goroutine owns it.
//
// What becomes of a sequence depends on its own prompt, options and adapter alone: not on the slot it is in, nor on
// what the other slots hold, nor on when it is started.
type Engine struct {
	*session.Session
	engineShape
	adapters []NamedAdapter
	// adapterEnds holds the end tokens of each adapter's own generation_config.json, in the order of adapters.
	adapterEnds [][]int32
	only        bool // every sequence has the one adapter
	memory      *session.Memory
	need        graph.Bytes
	prefill     []*logitsRun // by size
	decode      []*logitsRun // by size
	score       *logitsRun   // nil without EngineOptions.Score
	rules
	slots   []*sequence // nil = free
	started uint64
}

// NamedAdapter is an adapter and the name by which sequences ask for it.
type NamedAdapter struct {
	Name string // not empty
	Dir  string // in PEFT's format
}

// EngineOptions say what an engine holds. Memory for all of it is taken when it is made.
type EngineOptions struct {
	Slots  int // sequences at the same time; 0 = DefaultSlots, or fewer where those do not fit
	MaxLen int // tokens of a sequence, its prompt's included; 0 = what the model knows, or less where that does not fit
	// Adapters are those that a sequence may ask for; without one it has the base model alone.
	Adapters []NamedAdapter
	// Only: there is one adapter, which every sequence has. It may be one of experts, which several can't be.
	Only bool
	// Score: GenerateOptions.PromptLogprobs may be asked for.
	Score bool
}

// DefaultSlots is how many sequences an engine holds where nobody says it.
const DefaultSlots = 8

// NewEngine opens a model with adapters.
func NewEngine(ctx context.Context, o session.Options, eo EngineOptions, env session.Env) (*Engine, error) {
	if err := eo.check(); err != nil {
		return nil, err
	}
	s, err := session.Open(ctx, o, env)
	if err != nil {
		return nil, err
	}
	e, err := engineOn(ctx, s, eo)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return e, nil
}

func (o EngineOptions) check() error {
	if o.Slots < 0 || o.Slots > MaxSlots || o.MaxLen < 0 {
		return fmt.Errorf("generate: %d slots of %d tokens: want 1 to %d slots, or 0 for what fits", o.Slots,
			o.MaxLen, MaxSlots)
	}
	if o.Only && len(o.Adapters) != 1 {
		return fmt.Errorf("generate: %d adapters, of which every sequence has the only one", len(o.Adapters))
	}
	for i, a := range o.Adapters {
		if a.Name == "" || slices.ContainsFunc(o.Adapters[:i], func(b NamedAdapter) bool { return a.Name == b.Name }) {
			return fmt.Errorf("generate: the name of adapter %s is empty or another's too: %q", a.Dir, a.Name)
		}
	}
	return nil
}

// engineOn makes an engine of a session that it closes with itself.
func engineOn(ctx context.Context, s *session.Session, o EngineOptions) (*Engine, error) {
	e := &Engine{Session: s, adapters: slices.Clone(o.Adapters), only: o.Only}
	dirs := make([]string, len(o.Adapters))
	for i, a := range o.Adapters {
		dirs[i] = a.Dir
	}
	var err error
	if e.rules, err = rulesOf(s); err != nil {
		return nil, err
	}
	e.adapterEnds = make([][]int32, len(dirs))
	for i, dir := range dirs {
		if e.adapterEnds[i], err = adapterEnds(dir); err != nil {
			return nil, err
		}
	}
	switch {
	case o.Only:
		err = s.UseAdapter(dirs[0])
	case len(dirs) > 0:
		err = s.UseAdapters(dirs)
	}
	if err != nil {
		return nil, err
	}
	if s.Base.Tokenizer.OnlyNumbers() {
		return nil, fmt.Errorf("generate: %w", tokenizer.ErrNumbers)
	}
	return e, e.open(ctx, o)
}

// open takes the memory.
func (e *Engine) open(ctx context.Context, o EngineOptions) error {
	e.Net.KeepHalves(e.Base, e.On)
	p, err := planEngine(e.Session, o.Slots, o.MaxLen, o.Score)
	if err != nil {
		return err
	}
	e.engineShape, e.slots = p.engineShape, make([]*sequence, p.Slots)
	if e.need, err = p.need(); err != nil {
		return err
	}
	if e.memory, err = e.Hold(ctx, p.programs()...); err != nil {
		return err
	}
	if e.prefill, e.decode, err = p.bind(e.memory, e.memory.Runs); err != nil {
		return errors.Join(err, e.release())
	}
	if n := len(e.decode) - 1; o.Score {
		e.decode, e.score = e.decode[:n], e.decode[n]
	}
	return nil
}

// rules are the tokens that end a text of a model, and those that no text has.
type rules struct{ ends, never map[int32]bool }

// rulesOf are those of config.json, the tokenizer and generation_config.json.
func rulesOf(s *session.Session) (rules, error) {
	g, err := chat.FindGeneration(s.Base.Folder)
	if err != nil {
		return rules{}, err
	}
	ends, never := map[int32]bool{}, map[int32]bool{}
	for _, id := range s.Base.Config.EOS {
		ends[int32(id)] = true
	}
	if id, ok := s.Base.Tokenizer.EOS(); ok {
		ends[id] = true
	}
	for _, id := range g.Stops {
		ends[id] = true
	}
	for _, id := range g.Never {
		if id >= 0 && int(id) < s.Base.Config.VocabSize {
			never[id] = true
		}
	}
	if len(never) == s.Base.Config.VocabSize {
		return rules{},
			fmt.Errorf("generation_config.json: suppress_tokens has all %d tokens of the model, so there is none to "+
				"generate", len(never))
	}
	return rules{ends, never}, nil
}

// adapterEnds returns the end tokens that the generation_config.json in an adapter's folder names. An adapter that was
// trained on conversations ends its answers with the token that ends a turn, which the base model may not name. It
// returns none for a folder without that file.
func adapterEnds(dir string) ([]int32, error) {
	g, err := chat.FindGeneration(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("adapter %s: %w", dir, err)
	}
	return g.Stops, nil
}

// Close releases memory, mapped weights, adapters and the device.
func (e *Engine) Close() error { return errors.Join(e.release(), e.Session.Close()) }

func (e *Engine) release() error {
	if e.memory == nil {
		return nil
	}
	err := e.memory.Close()
	e.memory, e.prefill, e.decode, e.score = nil, nil, nil, nil
	return err
}

// Slots is how many sequences there may be at the same time.
func (e *Engine) Slots() int { return e.engineShape.Slots }

// MaxLen is how many tokens a sequence may have, its prompt's included.
func (e *Engine) MaxLen() int { return e.engineShape.MaxLen }

// Adapters are the names that Start takes; "" is the base model alone.
func (e *Engine) Adapters() []string {
	var names []string
	if !e.only {
		names = append(names, "")
	}
	for _, a := range e.adapters {
		names = append(names, a.Name)
	}
	return names
}

// Free is the first slot without a sequence, -1 where there is none.
func (e *Engine) Free() int {
	return slices.Index(e.slots, nil)
}

// Start puts a sequence in a free slot. Step then reads its prompt.
func (e *Engine) Start(slot int, adapter string, prompt Prompt, o GenerateOptions) error {
	which, err := e.which(adapter)
	if err != nil {
		return err
	}
	ends := maps.Clone(e.ends)
	for _, id := range prompt.Ends {
		ends[id] = true
	}
	if which >= 0 {
		for _, id := range e.adapterEnds[which] {
			ends[id] = true
		}
	}
	stop, err := newStopper(e.Base.Tokenizer, o.turn(prompt), o.Stop, ends)
	if err != nil {
		return err
	}
	return e.start(slot, which, prompt.IDs, ends, stop, o)
}

// which is an adapter's number, -1 for none.
func (e *Engine) which(adapter string) (int32, error) {
	if i := slices.IndexFunc(e.adapters, func(a NamedAdapter) bool { return a.Name == adapter }); i >= 0 {
		return int32(i), nil
	}
	if adapter == "" && !e.only {
		return -1, nil
	}
	return -1, refuse(ErrUnknownAdapter, "there is no adapter %q: there are %q", adapter, e.Adapters())
}

// start is Start with all that ends the text.
func (e *Engine) start(slot int, which int32, ids []int32, ends map[int32]bool, stop *stopper,
	o GenerateOptions) error {
	switch {
	case slot < 0 || slot >= len(e.slots):
		return refuse(ErrSlot, "slot %d of %d", slot, len(e.slots))
	case e.slots[slot] != nil:
		return refuse(ErrSlot, "slot %d is in use", slot)
	case len(ids) == 0:
		return errors.New("generate: the prompt has no token")
	case o.MaxTokens < 1:
		return fmt.Errorf("generate: max tokens is %d, want at least 1", o.MaxTokens)
	case o.PromptLogprobs && e.score == nil:
		return errors.New(
			"generate: log-probabilities of the prompt are wanted of an engine that was not made for them")
	}
	if err := checkLength(e.Session, len(ids), o.MaxTokens); err != nil {
		return err
	}
	if len(ids)+o.MaxTokens > e.MaxLen() {
		return refuse(ErrTooLong, "a prompt of %d tokens and %d more are above the %d that a slot of the cache holds",
			len(ids), o.MaxTokens, e.MaxLen())
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.Base.Config.VocabSize {
			return fmt.Errorf("generate: token %d of the prompt is %d, the model knows 0 to %d", i, id,
				e.Base.Config.VocabSize-1)
		}
	}
	if err := o.Check(e.Base.Config.VocabSize); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	e.started++
	e.slots[slot] = newSequence(e.started, slot, which, ids, ends, stop, e.Base.Tokenizer, o)
	e.slots[slot].sampler.never = e.never
	return nil
}

// Stop frees a slot at once, whatever it holds.
func (e *Engine) Stop(slot int) {
	if slot >= 0 && slot < len(e.slots) {
		e.slots[slot] = nil
	}
}

// Busy tells whether there is a sequence that Step would go on with.
func (e *Engine) Busy() bool {
	return slices.ContainsFunc(e.slots, func(s *sequence) bool { return s != nil })
}

// Step is one round: a piece of the prompt of the sequence that waits longest, and the next token of every sequence
// whose prompt was read in an earlier round. Tokens come in the order of their slots, that of a prompt first. A
// sequence that ended has left its slot. An error is of the machine or of ctx: no slot is of use then.
func (e *Engine) Step(ctx context.Context) ([]Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ready := e.ready()
	var tokens []Token
	if s := e.waiting(); s != nil {
		first, err := e.readPiece(ctx, s)
		if err != nil {
			return nil, err
		}
		tokens = first
	}
	most := e.decode[0].step.tokens
	for len(ready) > 0 {
		now := ready[:min(most, len(ready))]
		ready = ready[len(now):]
		more, err := e.nextTokens(ctx, now)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	return tokens, nil
}

// waiting is the sequence that was started first of those whose prompt is not read; nil = none.
func (e *Engine) waiting() (first *sequence) {
	for _, s := range e.slots {
		if s != nil && s.read < len(s.prompt) && (first == nil || s.order < first.order) {
			first = s
		}
	}
	return first
}

// ready are the sequences whose next token follows from their last.
func (e *Engine) ready() (all []*sequence) {
	for _, s := range e.slots {
		if s != nil && s.read == len(s.prompt) {
			all = append(all, s)
		}
	}
	return all
}

// readPiece reads the next piece of a prompt: its length depends on what is left of the prompt alone. After the last
// one comes a token.
func (e *Engine) readPiece(ctx context.Context, s *sequence) ([]Token, error) {
	if s.o.PromptLogprobs {
		return e.readScored(ctx, s)
	}
	left := len(s.prompt) - s.read
	run := smallest(e.prefill, left)
	p := piece{slot: s.slot, start: s.read, ids: s.prompt[s.read:][:min(left, run.step.tokens)], adapter: s.adapter}
	s.read += len(p.ids)
	if s.read < len(s.prompt) {
		return nil, run.forward(p)
	}
	logits, err := run.next(p)
	if err != nil {
		return nil, err
	}
	t := s.take(logits[0])
	e.taken(ctx, s, &t)
	return []Token{t}, nil
}

// smallest is the smallest of steps, the largest first, that takes so many tokens; the largest where none does.
func smallest(steps []*logitsRun, tokens int) *logitsRun {
	for _, r := range slices.Backward(steps) {
		if tokens <= r.step.tokens {
			return r
		}
	}
	return steps[0]
}

// Text is a prompt as the model's tokenizer encodes it by itself.
func (e *Engine) Text(prompt string) Prompt { return textPrompt(e.Session, prompt) }
