package infer

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Token is the result of a round of an Engine for one sequence.
type Token struct {
	Slot int
	ID   int32
	// Text is the part of the answer that can be shown now. Characters that may begin a stop text are held back until
	// the next tokens decide.
	Text string
	// Part reports whether the token belongs to the answer. Only the token that ends a text or turn does not.
	Part    bool
	Logprob float64    // log-probability before temperature and penalties, if GenerateOptions.Logprobs is set
	Top     []TopToken // the likeliest tokens, if GenerateOptions.TopLogprobs is above 0
	// Ended is the reason why the sequence ended: a value of Generated.Stopped or StoppedError; "" = it continues.
	Ended   string
	EndedBy string // the token or the text that ended the sequence
	// the scores of prompt[1:], with the first token of an answer if GenerateOptions.PromptLogprobs is set
	Prompt []ScoredToken
	Err    error // error that ended this sequence; other sequences continue
}

// TopToken is one of the likeliest tokens at a position.
type TopToken struct {
	ID      int32
	Logprob float64
}

// StoppedError is the value of Token.Ended for a sequence that an error ended.
const StoppedError = "error"

// sequence is the text that a slot of an Engine generates.
type sequence struct {
	order   uint64 // serial number of the start
	slot    int
	adapter int32
	prompt  []int32
	images  *dataset.RowImages // of the prompt; nil = none
	shift   int                // position of a token after the prompt minus its number
	read    int                // prompt tokens that are in the cache
	ids     []int32
	ends    map[int32]bool
	stop    *stopper
	stream  *tokenizer.Stream
	tok     *tokenizer.Tokenizer
	o       GenerateOptions
	sampler *sampler
	scored  []ScoredToken // scores of prompt[1:] so far, if GenerateOptions.PromptLogprobs is set
}

func newSequence(order uint64, slot int, which int32, prompt []int32, ends map[int32]bool, stop *stopper,
	tok *tokenizer.Tokenizer, o GenerateOptions) *sequence {
	s := &sequence{order: order, slot: slot, adapter: which, prompt: slices.Clone(prompt), ends: ends, stop: stop,
		stream: tok.NewStream(), tok: tok, o: o,
		sampler: newSampler(o, prompt)}
	s.sampler.ends = ends
	return s
}

// show makes the prompt show images; nil = none.
func (s *sequence) show(images *dataset.RowImages) {
	s.images = images
	if images != nil {
		_, next := session.Coordinates(s.prompt, images)
		s.shift = int(next) - len(s.prompt)
	}
}

// take chooses the next token from its logits and determines whether it ends the sequence.
func (s *sequence) take(logits []float32) Token {
	t := s.choose(logits)
	if t.Ended == "" {
		s.goOn(&t)
	}
	return t
}

// choose chooses the next token from its logits, or returns the error that ends the sequence.
func (s *sequence) choose(logits []float32) Token {
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
			"after %d tokens of the answer, no token of the model can continue its JSON", len(s.ids))
		return t
	}
	if s.o.Logprobs {
		t.Logprob = logprob(logits, t.ID)
	}
	if s.o.logprobsOfDraw {
		t.Logprob = logprobAt(logits, t.ID, s.o.Temperature)
	}
	return t
}

// wantsLogits reports whether the next token, or a number reported with it, depends on more than which token is the
// likeliest.
func (s *sequence) wantsLogits() bool {
	return s.o.Logprobs || s.o.Temperature > 0 || s.o.Form != nil || s.sampler.changes()
}

// takeLikeliest replaces take for a sequence that does not want logits.
func (s *sequence) takeLikeliest(id int32) Token {
	t := Token{Slot: s.slot, ID: id}
	s.sampler.note(id)
	s.goOn(&t)
	return t
}

// goOn sets the text that a chosen token adds to the answer, and whether it ends the sequence.
func (s *sequence) goOn(t *Token) {
	s.count(t)
	s.writeText(t)
}

// count adds a chosen token to the answer and decides whether the token or the length ends the sequence. Only
// writeText knows whether the text does.
func (s *sequence) count(t *Token) {
	if s.ends[t.ID] {
		t.Ended = StoppedEnd
		t.EndedBy, _ = s.tok.Token(t.ID)
		if slices.Contains(s.o.Stop, t.EndedBy) {
			t.Ended = StoppedText
		}
		return
	}
	s.ids, t.Part = append(s.ids, t.ID), true
	if len(s.ids) == s.o.MaxTokens {
		t.Ended = StoppedLength
	}
}

// writeText sets the text of a token that was counted, and ends the sequence if its text is a stop text.
func (s *sequence) writeText(t *Token) {
	if t.Err != nil {
		return
	}
	if !t.Part {
		t.Text = s.rest()
	} else {
		t.Text = s.stop.push(s.stream.Push(t.ID))
		if s.o.Form != nil && s.sampler.form.Done() {
			t.Ended = StoppedEnd
		}
		if t.Ended == StoppedEnd || s.stop.found == "" && t.Ended == StoppedLength {
			t.Text += s.rest()
		}
	}
	if s.stop.found != "" { // the held back text may complete a stop text
		t.Ended, t.EndedBy = StoppedText, s.stop.found
		if s.stop.found == s.stop.turn && !slices.Contains(s.o.Stop, s.stop.found) {
			t.Ended = StoppedEnd
		}
	}
}

// rest returns the text that is still held back when the sequence ends.
func (s *sequence) rest() string {
	text := s.stop.push(s.stream.Flush())
	if s.stop.found == "" {
		text += s.stop.rest()
	}
	return text
}
