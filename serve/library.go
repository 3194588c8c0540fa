package serve

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Model is a name that requests ask for: the base model, or one of its adapters.
type Model struct {
	Name    string
	Adapter string     // the engine's name for it; "" = the base model alone
	Chat    *chat.Chat // how conversations are written; nil: NoChat says why not
	NoChat  error
	// System is the system message of conversations that bring none, "" for none: the one that an adapter was trained
	// with.
	System string
	// TextNote is logged at the first request for a plain text: that the adapter was not trained on those; "" =
	// nothing.
	TextNote string
}

// Library is what an engine answers with.
type Library struct {
	Tokenizer  *tokenizer.Tokenizer
	Vocabulary int     // rows of the model's head: ids that a logit bias may name
	MaxLen     int     // most tokens of a sequence
	Models     []Model // the base model comes first
	Created    time.Time
	tokens     tokens

	longestOnce sync.Once // sets longest
	longest     int       // bytes of the longest token, at least leastLongest
}

// find looks a name up.
func (l *Library) find(name string) (*Model, *Error) {
	i := slices.IndexFunc(l.Models, func(m Model) bool { return m.Name == name })
	if i < 0 {
		e := refused(404, "model_not_found", "model: there is no model %q here; GET /v1/models lists those that are",
			clip(name))
		e.Param = "model"
		return nil, e
	}
	return &l.Models[i], nil
}

// Check refuses names that clients could not tell apart.
func (l *Library) Check() error {
	seen := map[string]bool{}
	for _, m := range l.Models {
		switch {
		case m.Name == "":
			return fmt.Errorf("a model has no name")
		case seen[m.Name]:
			return fmt.Errorf("two models are named %s: give one of them another name", m.Name)
		}
		seen[m.Name] = true
	}
	return nil
}

// prompt is what one sequence continues.
type prompt struct {
	infer.Prompt
	echo  string // its text, where the answer repeats it
	calls *callFormat
	lead  string // what of the answer stands at the prompt's end
}

// tokenText is the text that a token adds behind others.
func (l *Library) tokenText(id int32) string {
	if l.Tokenizer.IsSpecial(id) {
		s, _ := l.Tokenizer.Token(id)
		return s
	}
	stream := l.Tokenizer.NewStream()
	for _, lead := range l.Tokenizer.IDs("a", false) { // the first token of a text may lose a space in front
		stream.Push(lead)
	}
	return stream.Push(id) + stream.Flush()
}
