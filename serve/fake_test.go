package serve

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// fakeEngine answers by a hash of prompt, adapter and seed: an answer says whose it is.
type fakeEngine struct {
	t      testing.TB
	maxLen int
	slots  []*fakeSequence
	words  func(prompt infer.Prompt, adapter string, o Sampling, n int) string // "" ends the answer
	gate   chan struct{}                                                       // each step waits for it; nil = none
	fail   func(step int) error
	steps  int
	most   atomic.Int64 // sequences at once
}

type fakeSequence struct {
	adapter string
	prompt  infer.Prompt
	o       Sampling
	n       int
}

func newFake(t testing.TB, slots int) *fakeEngine {
	return &fakeEngine{t: t, maxLen: 512, slots: make([]*fakeSequence, slots), words: hashWords}
}

// hashWords ends an answer after 1 to 24 words.
func hashWords(p infer.Prompt, adapter string, o Sampling, n int) string {
	h := fnv.New64a()
	fmt.Fprint(h, p.IDs, adapter, o.Seed, o.Temperature)
	sum := h.Sum64()
	if n == int(sum%24)+1 {
		return ""
	}
	return fmt.Sprintf(" %x.%d", sum>>40, n)
}

func (f *fakeEngine) Slots() int  { return len(f.slots) }
func (f *fakeEngine) MaxLen() int { return f.maxLen }

func (f *fakeEngine) Start(slot int, adapter string, prompt infer.Prompt, o Sampling) error {
	if f.slots[slot] != nil {
		f.t.Errorf("slot %d is started while it is in use", slot)
	}
	if adapter == "broken" {
		return errors.New("secret: the adapter's file is gone")
	}
	f.slots[slot] = &fakeSequence{adapter: adapter, prompt: prompt, o: o}
	return nil
}

func (f *fakeEngine) Stop(slot int) { f.slots[slot] = nil }

func (f *fakeEngine) Step(ctx context.Context) ([]Token, error) {
	f.steps++
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.fail != nil {
		if err := f.fail(f.steps); err != nil {
			return nil, err
		}
	}
	var all []Token
	for i, s := range f.slots {
		if s == nil {
			continue
		}
		word := f.words(s.prompt, s.adapter, s.o, s.n)
		t := Token{Slot: i, ID: int32(100 + s.n), Text: word, Part: true, Logprob: -0.5}
		if s.o.PromptLogprobs && s.n == 0 {
			for k, id := range s.prompt.IDs[1:] {
				t.Prompt = append(t.Prompt, scored(id, -float64(k), []TopToken{{ID: id, Logprob: -float64(k)}}))
			}
		}
		if s.o.TopLogprobs > 0 {
			t.Top = []TopToken{{ID: t.ID, Logprob: -0.5}, {ID: 7, Logprob: math.Log(0.1)}}[:min(2, s.o.TopLogprobs)]
		}
		s.n++
		switch {
		case word == "":
			t.ID, t.Part, t.Ended, t.EndedBy = 2, false, infer.StoppedEnd, "</s>"
		case s.n == s.o.MaxTokens:
			t.Ended = infer.StoppedLength
		}
		if t.Ended != "" {
			f.slots[i] = nil
		}
		all = append(all, t)
	}
	f.most.Store(max(f.most.Load(), int64(len(all))))
	return all, nil
}

const talkTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}{% if tools " +
	"%}<tool_call>{% endif %}{% if add_generation_prompt %}assistant:{% endif %}"

// library has the small model's tokenizer, a base model, two adapters and one without a template.
func library(t testing.TB, template string) *Library {
	t.Helper()
	dir := golden.StoriesDir(t)
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := chat.Find(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	sources.Templates["default"] = template
	c, err := chat.New(sources, "", tok, chat.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := &Library{Tokenizer: tok, Vocabulary: tok.VocabSize(), MaxLen: 512, Created: time.Unix(1700000000, 0)}
	l.Models = []Model{{Name: "base", Chat: c}, {Name: "one", Adapter: "one", Chat: c},
		{Name: "two", Adapter: "two", Chat: c},
		{Name: "broken", Adapter: "broken", Chat: c}, {Name: "mute", NoChat: errors.New("it has no chat template")}}
	return l
}

// site is a server on a free port.
type site struct {
	*Server
	url  string
	addr string
	done chan error
}

func open(t testing.TB, l *Library, e Engine, o Options) *site {
	t.Helper()
	s, err := New(l, e, o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Run()
	w := &site{Server: s, addr: listener.Addr().String(), done: make(chan error, 1)}
	w.url = "http://" + w.addr
	go func() { w.done <- s.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
		http.DefaultClient.CloseIdleConnections()
	})
	return w
}
