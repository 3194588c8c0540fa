package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
)

// Generator continues prompts with a model and, if given, an adapter. It is for one goroutine.
type Generator struct {
	base  *base
	net   network
	saved *adapter.Saved
	on    graph.Machine
	store graph.Store // nil before the first text
	eos   map[int32]bool

	maxLen          int
	prefill, decode *logitsRun
	random          []candidate // scratch of the choice
}

// prefillTokens is how many tokens of a prompt go through the model at a time.
const prefillTokens = 64

// NewGenerator opens a model and the adapter of a PEFT folder, no adapter where that is empty, for a device
// as in Spec.
func NewGenerator(ctx context.Context, modelDir, adapterDir, device string, env Env) (*Generator, error) {
	g := &Generator{eos: map[int32]bool{}}
	if err := g.open(ctx, modelDir, adapterDir, device, env); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Generator) open(ctx context.Context, modelDir, adapterDir, device string, env Env) error {
	var err error
	if g.on, err = openMachine(device, precisionAuto, env); err != nil {
		return err
	}
	b, err := openBase(ctx, modelDir, env)
	if err != nil {
		return err
	}
	g.base = b
	nw, err := networkOf(Spec{}, b)
	if err != nil {
		return err
	}
	if g.saved, err = nw.withAdapter(adapterDir); err != nil {
		return err
	}
	g.net = nw
	for _, id := range b.config.EOS {
		g.eos[int32(id)] = true
	}
	if id, ok := b.tokenizer.EOS(); ok {
		g.eos[id] = true
	}
	return nil
}

// Close releases memory, mapped weights and the device.
func (g *Generator) Close() error {
	err := g.release()
	if g.saved != nil {
		err = errors.Join(err, g.saved.Close())
	}
	if g.base != nil {
		err = errors.Join(err, g.base.close())
	}
	if g.on != nil {
		err = errors.Join(err, g.on.Close())
	}
	return err
}

// release gives back the memory of earlier texts.
func (g *Generator) release() error {
	if g.store == nil {
		return nil
	}
	err := g.store.Close()
	g.store, g.maxLen = nil, 0
	return err
}

// generateIDs continues token ids. emit sees every new id at once and may be nil.
func (g *Generator) generateIDs(ctx context.Context, prompt []int32, o GenerateOptions, stopAtEOS bool, emit func(int32)) ([]int32, error) {
	if len(prompt) == 0 {
		return nil, errors.New("generate: the prompt has no token")
	}
	if o.MaxTokens < 1 {
		return nil, fmt.Errorf("generate: max tokens is %d, want at least 1", o.MaxTokens)
	}
	if n := len(prompt) + o.MaxTokens; n > g.base.config.MaxPositions {
		return nil, fmt.Errorf("generate: a prompt of %d tokens and %d more are above the model's %d positions", len(prompt), o.MaxTokens, g.base.config.MaxPositions)
	}
	if err := g.prepare(ctx, len(prompt)+o.MaxTokens); err != nil {
		return nil, err
	}
	at := 0
	for ; len(prompt)-at > prefillTokens; at += prefillTokens {
		if err := g.prefill.forward(prompt[at:at+prefillTokens], at); err != nil {
			return nil, err
		}
	}
	logits, err := g.prefill.next(prompt[at:], at)
	if err != nil {
		return nil, err
	}
	pcg := rand.NewPCG(o.Seed, 0)
	var out []int32
	for at = len(prompt); ; at++ {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		id := g.choose(logits, o, pcg)
		if stopAtEOS && g.eos[id] {
			return out, nil
		}
		out = append(out, id)
		if emit != nil {
			emit(id)
		}
		if len(out) == o.MaxTokens {
			return out, nil
		}
		if logits, err = g.decode.next([]int32{id}, at); err != nil {
			return out, err
		}
	}
}

// prepare plans and loads for sequences of at least n tokens; what an earlier call made serves if it is
// large enough.
func (g *Generator) prepare(ctx context.Context, n int) error {
	if n <= g.maxLen {
		return nil
	}
	maxLen := min(max(n, 256), g.base.config.MaxPositions)
	prefill, err := newLogitsStep(g.net, "prompt ", prefillTokens, 1, maxLen, g.on)
	if err != nil {
		return err
	}
	decode, err := newLogitsStep(g.net, "", 1, 1, maxLen, g.on)
	if err != nil {
		return err
	}
	if err := g.base.check(prefill.net); err != nil {
		return err
	}
	if err := g.release(); err != nil {
		return err
	}
	need, err := graph.Need(prefill.plan, decode.plan)
	if err != nil {
		return err
	}
	if err := checkRoom(g.on, need.Total()); err != nil {
		return err
	}
	m, err := g.on.NewStore(prefill.plan, decode.plan)
	if err != nil {
		return err
	}
	g.store = m
	if err := g.base.load(ctx, prefill.net, m, g.on.Workers()); err != nil {
		return err
	}
	if err := loadAdapter(g.saved, prefill.trained, m); err != nil {
		return err
	}
	if g.prefill, err = prefill.bind(m, g.on); err != nil {
		return err
	}
	if g.decode, err = decode.bind(m, g.on); err != nil {
		return err
	}
	g.maxLen = maxLen
	return nil
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

// Generate continues a prompt and gives emit every piece of text as it comes; emit may be nil.
func (g *Generator) Generate(ctx context.Context, prompt string, o GenerateOptions, emit func(piece string)) (Generated, error) {
	ids := g.base.tokenizer.IDs(prompt, true)
	stream := g.base.tokenizer.NewStream()
	var text strings.Builder
	began := time.Now()
	out, err := g.generateIDs(ctx, ids, o, true, func(id int32) {
		piece := stream.Push(id)
		text.WriteString(piece)
		if emit != nil && piece != "" {
			emit(piece)
		}
	})
	if err != nil {
		return Generated{}, err
	}
	if rest := stream.Flush(); rest != "" {
		text.WriteString(rest)
		if emit != nil {
			emit(rest)
		}
	}
	r := Generated{Text: text.String(), IDs: out, PromptTokens: len(ids), Stopped: "length", Duration: time.Since(began)}
	if len(out) < o.MaxTokens {
		r.Stopped = "end"
	}
	r.TokensPerSecond = float64(len(out)) / r.Duration.Seconds()
	return r, nil
}
