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

// Model is a model that requests can select: the base model or an adapter.
type Model struct {
	Name    string
	Adapter string     // name in the engine; "" = the base model
	Chat    *chat.Chat // renders conversations; nil: NoChat explains why not
	NoChat  error
	// System is the default system message, with which an adapter was trained; "" = none.
	System string
	// TextNote is logged at the first plain completion request: it warns that the adapter was not trained on plain
	// text; "" = no warning.
	TextNote string
	// Head is what a model gives that gives scores or vectors of texts; nil = it writes text. Index is its place in the
	// Predictor.
	Head  *infer.PredictorModel
	Index int
}

// Library holds the models and the tokenizer of an engine.
type Library struct {
	Tokenizer  *tokenizer.Tokenizer
	Vocabulary int     // rows of the model's head: the ids that a logit bias may name
	MaxLen     int     // most tokens of a sequence
	Models     []Model // the base model is the first
	Created    time.Time
	Width      int // numbers of a vector of a text
	// ShowImages puts image files in the places that a prompt has for them; nil = the models read text alone.
	ShowImages func(p infer.Prompt, files [][]byte) (infer.Prompt, error)
	tokens     tokens

	longestOnce sync.Once // sets longest
	longest     int       // bytes of the longest token, at least leastLongest
}

// Heads reports whether the models give scores or vectors of texts. A library's models are all alike in this.
func (l *Library) Heads() bool { return len(l.Models) > 0 && l.Models[0].Head != nil }

// find returns the model called name.
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

// Check returns an error for names that clients could not distinguish.
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

// prompt is the input of one sequence.
type prompt struct {
	infer.Prompt
	echo  string // the prompt's text, if the answer repeats it
	calls *callFormat
	lead  string // beginning of the answer that is already part of the prompt
}

// tokenText returns the text that a token adds after other tokens.
func (l *Library) tokenText(id int32) string {
	if l.Tokenizer.IsSpecial(id) {
		s, _ := l.Tokenizer.Token(id)
		return s
	}
	stream := l.Tokenizer.NewStream()
	for _, lead := range l.Tokenizer.IDs("a", false) { // the first token of a text may lose a leading space
		stream.Push(lead)
	}
	return stream.Push(id) + stream.Flush()
}
