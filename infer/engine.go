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

// Engine.Start returns these errors, so that a caller can map each to a status of its own.
var (
	ErrTooLong        = errors.New("too long")
	ErrUnknownAdapter = errors.New("unknown adapter")
	ErrSlot           = errors.New("no free slot")
)

// refusal is an error of a kind that a caller can tell by errors.Is.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

// refuse returns the error with which Start refuses a request.
func refuse(kind error, format string, args ...any) error {
	return &refusal{"generate: " + fmt.Sprintf(format, args...), kind}
}

// checkLength returns an error if prompt and more tokens together exceed the model's positions.
func checkLength(s *session.Session, prompt, more int) error {
	if most := s.Base.Config.MaxPositions; prompt+more > most {
		return refuse(ErrTooLong, "%d prompt tokens and %d more exceed the model's %d positions",
			prompt, more, most)
	}
	return nil
}

// Engine decodes several sequences concurrently with one model and any number of adapters. An Engine is not safe for
// concurrent use: one goroutine owns it.
//
// A sequence's tokens depend only on its own prompt, options and adapter. They do not depend on its slot, on the other
// slots' sequences, or on the round in which it starts.
type Engine struct {
	*session.Session
	engineShape
	adapters []NamedAdapter
	// adapterEnds holds the end tokens of each adapter's own generation_config.json, in the order of adapters.
	adapterEnds [][]int32
	only        bool // every sequence uses the one adapter
	memory      *session.Memory
	need        graph.Bytes
	prefill     []*logitsRun // prompt steps, one for each size
	decode      []*logitsRun // decoding steps, one for each size
	score       *logitsRun   // scores prompts; nil without EngineOptions.Score
	rules
	slots   []*sequence // nil = free
	queued  queuedDraws // see drawTokens
	started uint64
}

// NamedAdapter is an adapter folder and the name by which sequences select it.
type NamedAdapter struct {
	Name string // must not be empty
	Dir  string // adapter folder in PEFT's format
}

// EngineOptions sizes an engine. NewEngine allocates the memory for all slots at once.
type EngineOptions struct {
	Slots int // number of concurrent sequences; 0 = DefaultSlots, or fewer if those do not fit
	// most tokens of a sequence, its prompt included; 0 = the model's context length, or less if that does not fit
	MaxLen int
	// Adapters lists the adapters that a sequence may select. Without any, every sequence uses the base model.
	Adapters []NamedAdapter
	// Only makes every sequence use the single adapter of Adapters. Such an adapter may train experts; with several
	// adapters none may.
	Only bool
	// Score allows GenerateOptions.PromptLogprobs.
	Score bool
	// Images allows prompts with images (ShowImages). Every step then holds rows for their embeddings.
	Images bool
}

// DefaultSlots is the default number of an engine's slots.
const DefaultSlots = 8

// NewEngine opens a model with adapters and allocates the engine's memory.
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
		return fmt.Errorf("generate: EngineOptions.Only needs exactly one adapter, got %d", len(o.Adapters))
	}
	for i, a := range o.Adapters {
		if a.Name == "" || slices.ContainsFunc(o.Adapters[:i], func(b NamedAdapter) bool { return a.Name == b.Name }) {
			return fmt.Errorf("generate: adapter %s needs a name that is not empty and not used twice: %q", a.Dir,
				a.Name)
		}
	}
	return nil
}

// engineOn makes an engine for a session. Closing the engine closes the session.
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
	if o.Images {
		if err := readImages(s); err != nil {
			return nil, err
		}
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

// open plans the engine, allocates its memory and loads the weights.
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

// rules holds the tokens that end a text (ends) and the tokens that are never generated (never).
type rules struct{ ends, never map[int32]bool }

// rulesOf reads the rules from config.json, the tokenizer and generation_config.json.
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
			fmt.Errorf("generation_config.json: suppress_tokens lists all %d tokens of the model, which leaves none "+
				"to generate", len(never))
	}
	return rules{ends, never}, nil
}

// adapterEnds returns the end tokens that the generation_config.json in an adapter's folder names, or none if the
// folder has no such file. An adapter trained on conversations ends its answers with the end-of-turn token, which the
// base model's file may not list.
func adapterEnds(dir string) ([]int32, error) {
	g, err := chat.FindGeneration(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("adapter %s: %w", dir, err)
	}
	return g.Stops, nil
}

// Close releases the engine's memory, the mapped weights, the adapters and the device.
func (e *Engine) Close() error { return errors.Join(e.release(), e.Session.Close()) }

func (e *Engine) release() error {
	if e.memory == nil {
		return nil
	}
	err := e.memory.Close()
	e.memory, e.prefill, e.decode, e.score = nil, nil, nil, nil
	return err
}

// Slots returns the number of concurrent sequences.
func (e *Engine) Slots() int { return e.engineShape.Slots }

// MaxLen returns the most tokens of a sequence, its prompt included.
func (e *Engine) MaxLen() int { return e.engineShape.MaxLen }

// Adapters returns the names that Start takes. The name "" selects the base model.
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

// Free returns the first free slot, or -1 if all slots are in use.
func (e *Engine) Free() int {
	return slices.Index(e.slots, nil)
}

// Start assigns a sequence to a free slot. The following calls of Step read its prompt.
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
	if err := e.start(slot, which, prompt.IDs, ends, stop, o); err != nil {
		return err
	}
	e.slots[slot].show(prompt.Images)
	return nil
}

// which returns the index of an adapter; -1 is the base model.
func (e *Engine) which(adapter string) (int32, error) {
	if i := slices.IndexFunc(e.adapters, func(a NamedAdapter) bool { return a.Name == adapter }); i >= 0 {
		return int32(i), nil
	}
	if adapter == "" && !e.only {
		return -1, nil
	}
	return -1, refuse(ErrUnknownAdapter, "there is no adapter %q: there are %q", adapter, e.Adapters())
}

// start is Start with resolved arguments: the adapter's index, the prompt's tokens and everything that ends the text.
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
			"generate: prompt log-probabilities need an engine made with EngineOptions.Score")
	}
	if err := checkLength(e.Session, len(ids), o.MaxTokens); err != nil {
		return err
	}
	if len(ids)+o.MaxTokens > e.MaxLen() {
		return refuse(ErrTooLong, "%d prompt tokens and %d more exceed the %d tokens that a cache slot holds",
			len(ids), o.MaxTokens, e.MaxLen())
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.Base.Config.VocabSize {
			return fmt.Errorf("generate: prompt token %d is %d, outside the model's vocabulary of 0 to %d", i, id,
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

// Stop frees a slot at once and discards its sequence, if it has one.
func (e *Engine) Stop(slot int) {
	if slot >= 0 && slot < len(e.slots) {
		e.slots[slot] = nil
	}
}

// Busy reports whether any slot has a sequence for Step to continue.
func (e *Engine) Busy() bool {
	return slices.ContainsFunc(e.slots, func(s *sequence) bool { return s != nil })
}

// Step runs one round: it reads a piece of the prompt of the sequence that waits longest, and computes the next token
// of every sequence whose prompt was read in an earlier round. It returns a token that follows a prompt first and the
// others in slot order. A sequence that ended has freed its slot. After an error, from the machine or from ctx, the
// engine cannot be used any more.
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

// waiting returns the earliest started sequence whose prompt is not fully read, or nil.
func (e *Engine) waiting() (first *sequence) {
	for _, s := range e.slots {
		if s != nil && s.read < len(s.prompt) && (first == nil || s.order < first.order) {
			first = s
		}
	}
	return first
}

// ready returns the sequences whose prompt is read, so that the next token follows from their last one.
func (e *Engine) ready() (all []*sequence) {
	for _, s := range e.slots {
		if s != nil && s.read == len(s.prompt) {
			all = append(all, s)
		}
	}
	return all
}

// readPiece reads the next piece of a prompt. The piece's length depends only on the number of prompt tokens left.
// After the last piece it returns the answer's first token.
func (e *Engine) readPiece(ctx context.Context, s *sequence) ([]Token, error) {
	if s.o.PromptLogprobs {
		return e.readScored(ctx, s)
	}
	left := len(s.prompt) - s.read
	run := smallest(e.prefill, left)
	n, err := session.Uncut(s.prompt[s.read:], run.step.tokens, s.images)
	if err != nil {
		return nil, err
	}
	p := piece{slot: s.slot, start: s.read, ids: s.prompt[s.read:][:n], adapter: s.adapter}
	p.images, p.before = s.images, s.prompt[:s.read]
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

// smallest returns the smallest step that takes the given number of tokens, or the largest step if none does. steps are
// sorted from the largest to the smallest.
func smallest(steps []*logitsRun, tokens int) *logitsRun {
	for _, r := range slices.Backward(steps) {
		if tokens <= r.step.tokens {
			return r
		}
	}
	return steps[0]
}

// Text encodes a prompt with the model's tokenizer and without a chat template.
func (e *Engine) Text(prompt string) Prompt { return textPrompt(e.Session, prompt) }
