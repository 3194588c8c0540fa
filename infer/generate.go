package infer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset/tokenizer"
	"github.com/tierlora/tierlora/session"
)

// GenerateOptions steer the choice of tokens.
type GenerateOptions struct {
	MaxTokens   int
	Temperature float64 // 0 = the likeliest token
	TopP        float64 // least part of the probability to choose from; 0 or 1 = all
	TopK        int     // most tokens to choose from; 0 = all
	Seed        uint64
	Stop        []string // texts that end the answer; they are not part of it
}

// Values of Generated.Stopped.
const (
	StoppedEnd    = "end"    // at a token that ends the text or the turn
	StoppedText   = "stop"   // at one of GenerateOptions.Stop
	StoppedLength = "length" // at GenerateOptions.MaxTokens
)

// Generated is one answer.
type Generated struct {
	Text            string        `json:"text"`
	IDs             []int32       `json:"ids"` // of all that was computed, what ended the answer too if it is a text
	PromptTokens    int           `json:"prompt_tokens"`
	Stopped         string        `json:"stopped"`
	StoppedBy       string        `json:"stopped_by,omitempty"` // the token or the text that ended it
	Duration        time.Duration `json:"duration_ns"`
	TokensPerSecond float64       `json:"tokens_per_second"`
}

// Generator continues prompts with a model and, if given, an adapter. It is for one goroutine.
type Generator struct {
	*session.Session
	memory     *session.Memory // nil before the first text
	adapterDir string          // "" = none
	eos        map[int32]bool

	maxLen          int
	shared          bool // memory is another's: see SamplePlan
	prefill, decode *logitsRun
	random          []candidate // scratch of the choice
}

// prefillTokens is how many tokens of a prompt go through the model at a time.
const prefillTokens = 64

// NewGenerator opens a model and the adapter of a PEFT folder, no adapter where that is empty.
func NewGenerator(ctx context.Context, o session.Options, adapterDir string, env session.Env) (*Generator, error) {
	s, err := session.Open(ctx, o, env)
	if err != nil {
		return nil, err
	}
	if err := s.UseAdapter(adapterDir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	g, err := newGenerator(s, adapterDir)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return g, nil
}

// newGenerator is without memory yet.
func newGenerator(s *session.Session, adapterDir string) (*Generator, error) {
	if s.Base.Tokenizer.OnlyNumbers() {
		return nil, fmt.Errorf("generate: %w", tokenizer.ErrNumbers)
	}
	g := &Generator{Session: s, adapterDir: adapterDir, eos: map[int32]bool{}}
	for _, id := range s.Base.Config.EOS {
		g.eos[int32(id)] = true
	}
	if id, ok := s.Base.Tokenizer.EOS(); ok {
		g.eos[id] = true
	}
	return g, nil
}

// Close releases memory, mapped weights and the device.
func (g *Generator) Close() error { return errors.Join(g.release(), g.Session.Close()) }

// release gives back the memory of earlier texts.
func (g *Generator) release() error {
	if g.memory == nil {
		return nil
	}
	err := g.memory.Close()
	g.memory, g.maxLen = nil, 0
	return err
}

// generateIDs continues token ids until one of ends, which is not among what it returns. emit sees every new id at once
// and may be nil; it returns false to end the text. ended is the id that ended it, -1 without one.
func (g *Generator) generateIDs(ctx context.Context, prompt []int32, o GenerateOptions, ends map[int32]bool, emit func(int32) bool) (ids []int32, ended int32, err error) {
	if len(prompt) == 0 {
		return nil, -1, errors.New("generate: the prompt has no token")
	}
	if o.MaxTokens < 1 {
		return nil, -1, fmt.Errorf("generate: max tokens is %d, want at least 1", o.MaxTokens)
	}
	if n := len(prompt) + o.MaxTokens; n > g.Base.Config.MaxPositions {
		return nil, -1, fmt.Errorf("generate: a prompt of %d tokens and %d more are above the model's %d positions", len(prompt), o.MaxTokens, g.Base.Config.MaxPositions)
	}
	if err := g.prepare(ctx, len(prompt)+o.MaxTokens); err != nil {
		return nil, -1, err
	}
	logits, err := g.read(prompt)
	if err != nil {
		return nil, -1, err
	}
	pcg := rand.NewPCG(o.Seed, 0)
	var out []int32
	for at := len(prompt); ; at++ {
		if err := ctx.Err(); err != nil {
			return out, -1, err
		}
		if i := notFinite(logits); i >= 0 {
			return out, -1, fmt.Errorf("generate: %w", g.BlameNotFinite(ctx, fmt.Errorf("after %d tokens the logit of token %d is %v: %w", at, i, logits[i], ErrNotFinite)))
		}
		id := g.choose(logits, o, pcg)
		if ends[id] {
			return out, id, nil
		}
		out = append(out, id)
		if emit != nil && !emit(id) || len(out) == o.MaxTokens {
			return out, -1, nil
		}
		if logits, err = g.decode.next([]int32{id}, at); err != nil {
			return out, -1, err
		}
	}
}

// read takes a prompt into the cache and returns the logits of what follows it.
func (g *Generator) read(prompt []int32) ([]float32, error) {
	at := 0
	for ; len(prompt)-at > prefillTokens; at += prefillTokens {
		if err := g.prefill.forward(prompt[at:at+prefillTokens], at); err != nil {
			return nil, err
		}
	}
	return g.prefill.next(prompt[at:], at)
}

// prepare plans and loads for sequences of at least n tokens; what an earlier call made serves if it is
// large enough.
func (g *Generator) prepare(ctx context.Context, n int) error {
	if n <= g.maxLen {
		return nil
	}
	maxLen := min(max(n, 256), g.Base.Config.MaxPositions)
	prefill, err := newLogitsStep(g.Net, "prompt ", prefillTokens, 1, maxLen, g.On)
	if err != nil {
		return err
	}
	decode, err := newLogitsStep(g.Net, "", 1, 1, maxLen, g.On)
	if err != nil {
		return err
	}
	if err := g.release(); err != nil {
		return err
	}
	if err := g.CheckFits(&prefill.Program, &decode.Program); err != nil {
		return err
	}
	if g.memory, err = g.Hold(ctx, &prefill.Program, &decode.Program); err != nil {
		return err
	}
	if g.prefill, err = prefill.bind(g.memory, g.memory.Runs[0]); err != nil {
		return err
	}
	if g.decode, err = decode.bind(g.memory, g.memory.Runs[1]); err != nil {
		return err
	}
	g.maxLen = maxLen
	return nil
}

// notFinite is the first number that is none, -1 where all are.
func notFinite(x []float32) int {
	for i, v := range x {
		if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
			return i
		}
	}
	return -1
}

type candidate struct {
	id     int32
	weight float64
}

// choose picks the next token: the likeliest at temperature 0, else by softmax(logits/temperature) among
// the TopK likeliest and the fewest of them that hold TopP of the probability.
func (g *Generator) choose(logits []float32, o GenerateOptions, pcg *rand.PCG) int32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	if o.Temperature <= 0 {
		return int32(best)
	}
	all := g.random[:0]
	for i, l := range logits {
		all = append(all, candidate{int32(i), math.Exp(float64(l-logits[best]) / o.Temperature)})
	}
	g.random = all
	slices.SortStableFunc(all, func(a, b candidate) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return 0
	})
	if o.TopK > 0 && o.TopK < len(all) {
		all = all[:o.TopK]
	}
	sum := 0.0
	for _, c := range all {
		sum += c.weight
	}
	if o.TopP > 0 && o.TopP < 1 {
		held, n := 0.0, 0
		for n < len(all) && held < o.TopP*sum {
			held += all[n].weight
			n++
		}
		all, sum = all[:n], held
	}
	point := float64(pcg.Uint64()>>11) / (1 << 53) * sum
	for _, c := range all {
		if point -= c.weight; point < 0 {
			return c.id
		}
	}
	return all[len(all)-1].id
}

// Prompt is what a model continues.
type Prompt struct {
	IDs  []int32
	Ends []int32 // tokens that end the text beside the model's own end tokens
	End  string  // a text that ends it where no token does; "" = none
}

// Text is a prompt as the model's tokenizer encodes it by itself.
func (g *Generator) Text(prompt string) Prompt {
	return Prompt{IDs: g.Base.Tokenizer.IDs(prompt, true)}
}

// Generate continues a text and gives emit every piece of the answer as it comes; emit may be nil.
func (g *Generator) Generate(ctx context.Context, prompt string, o GenerateOptions, emit func(piece string)) (Generated, error) {
	return g.Continue(ctx, g.Text(prompt), o, emit)
}

// Continue continues a prompt and gives emit every piece of the answer as it comes; emit may be nil.
func (g *Generator) Continue(ctx context.Context, prompt Prompt, o GenerateOptions, emit func(piece string)) (Generated, error) {
	ends := maps.Clone(g.eos)
	for _, id := range prompt.Ends {
		ends[id] = true
	}
	texts := slices.Clone(o.Stop)
	if prompt.End != "" {
		texts = append(texts, prompt.End)
	}
	stop, err := g.stops(texts, ends)
	if err != nil {
		return Generated{}, err
	}
	stream := g.Base.Tokenizer.NewStream()
	var text strings.Builder
	give := func(piece string) {
		text.WriteString(piece)
		if emit != nil && piece != "" {
			emit(piece)
		}
	}
	began := time.Now()
	out, ended, err := g.generateIDs(ctx, prompt.IDs, o, ends, func(id int32) bool {
		give(stop.push(stream.Push(id)))
		return stop.found == ""
	})
	if err != nil {
		return Generated{}, err
	}
	if stop.found == "" {
		give(stop.push(stream.Flush()))
		give(stop.rest())
	}
	r := Generated{Text: text.String(), IDs: out, PromptTokens: len(prompt.IDs), Stopped: StoppedLength, Duration: time.Since(began)}
	switch {
	case stop.found != "":
		r.Stopped, r.StoppedBy = StoppedText, stop.found
		if stop.found == prompt.End && !slices.Contains(o.Stop, stop.found) {
			r.Stopped = StoppedEnd
		}
	case ended >= 0:
		r.Stopped = StoppedEnd
		r.StoppedBy, _ = g.Base.Tokenizer.Token(ended)
		if slices.Contains(o.Stop, r.StoppedBy) {
			r.Stopped = StoppedText
		}
	}
	r.TokensPerSecond = float64(len(out)) / r.Duration.Seconds()
	return r, nil
}
