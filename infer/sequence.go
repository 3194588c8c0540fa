package infer

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// Token is what a round of an Engine gives for one sequence.
type Token struct {
	Slot int
	ID   int32
	// Text is what of the answer can be shown now: what may be the beginning of a stop text is kept back until it is
	// known.
	Text string
	// Part tells whether the token is one of the answer's: all are but the token that ends a text or turn.
	Part    bool
	Logprob float64    // of the token, where GenerateOptions.Logprobs asks for it: before temperature and penalties
	Top     []TopToken // the likeliest tokens, where GenerateOptions.TopLogprobs asks for them
	// why the sequence ended: one of the values of Generated.Stopped, or StoppedError; "" = it goes on
	Ended   string
	EndedBy string        // the token or the text that ended it
	Prompt  []ScoredToken // with GenerateOptions.PromptLogprobs and the first token: prompt[1:] in order
	Err     error         // of a sequence that ended because of it; the others go on
}

// TopToken is one of the likeliest tokens at a place.
type TopToken struct {
	ID      int32
	Logprob float64
}

// StoppedError is the value of Token.Ended for a sequence that could not go on.
const StoppedError = "error"

// sequence is what a slot of an Engine holds.
type sequence struct {
	order   uint64 // of the start
	slot    int
	adapter int32
	prompt  []int32
	read    int // tokens of the prompt that are in the cache
	ids     []int32
	ends    map[int32]bool
	stop    *stopper
	stream  *tokenizer.Stream
	tok     *tokenizer.Tokenizer
	o       GenerateOptions
	sampler *sampler
	scored  []ScoredToken // with GenerateOptions.PromptLogprobs: prompt[1:], as far as it is read
}

func newSequence(order uint64, slot int, which int32, prompt []int32, ends map[int32]bool, stop *stopper,
	tok *tokenizer.Tokenizer, o GenerateOptions) *sequence {
	s := &sequence{order: order, slot: slot, adapter: which, prompt: slices.Clone(prompt), ends: ends, stop: stop,
		stream: tok.NewStream(), tok: tok, o: o,
		sampler: newSampler(o, prompt)}
	s.sampler.ends = ends
	return s
}

// take chooses the next token by its logits and says whether it ends the sequence.
func (s *sequence) take(logits []float32) Token {
	t := Token{Slot: s.slot, ID: -1}
	if i := notFinite(logits); i >= 0 {
		t.Ended = StoppedError
		t.Err = fmt.Errorf("after %d tokens the logit of token %d is %v: %w", len(s.prompt)+len(s.ids), i,
			logits[i], ErrNotFinite)
		return t
	}
	if s.o.Logprobs {
		t.Top = topLogprobs(logits, s.o.TopLogprobs)
	}
	if t.ID = s.sampler.choose(logits); t.ID < 0 {
		t.Ended, t.Err = StoppedError, fmt.Errorf(
			"after %d tokens of the answer no token of the model continues its JSON", len(s.ids))
		return t
	}
	if s.o.Logprobs {
		t.Logprob = logprob(logits, t.ID)
	}
	s.goOn(&t)
	return t
}

// wantsLogits tells whether the next token, or what is said of it, depends on more than which is the likeliest.
func (s *sequence) wantsLogits() bool {
	return s.o.Logprobs || s.o.Temperature > 0 || s.o.Form != nil || s.sampler.changes()
}

// takeLikeliest is take for a sequence that wants no logits.
func (s *sequence) takeLikeliest(id int32) Token {
	t := Token{Slot: s.slot, ID: id}
	s.sampler.note(id)
	s.goOn(&t)
	return t
}

// goOn says what the token that was chosen adds to the answer, and whether it ends the sequence.
func (s *sequence) goOn(t *Token) {
	if s.ends[t.ID] {
		t.Ended = StoppedEnd
		t.EndedBy, _ = s.tok.Token(t.ID)
		if slices.Contains(s.o.Stop, t.EndedBy) {
			t.Ended = StoppedText
		}
		t.Text = s.rest()
	} else {
		s.ids, t.Part = append(s.ids, t.ID), true
		t.Text = s.stop.push(s.stream.Push(t.ID))
		if s.o.Form != nil && s.sampler.form.Done() {
			t.Ended = StoppedEnd
			t.Text += s.rest()
		} else if s.stop.found == "" && len(s.ids) == s.o.MaxTokens {
			t.Ended = StoppedLength
			t.Text += s.rest()
		}
	}
	if s.stop.found != "" { // which what was held back may complete
		t.Ended, t.EndedBy = StoppedText, s.stop.found
		if s.stop.found == s.stop.turn && !slices.Contains(s.o.Stop, s.stop.found) {
			t.Ended = StoppedEnd
		}
	}
}

// rest is the text that is still held back when the sequence ends.
func (s *sequence) rest() string {
	text := s.stop.push(s.stream.Flush())
	if s.stop.found == "" {
		text += s.stop.rest()
	}
	return text
}
