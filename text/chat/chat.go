package chat

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// Values of Options.TrainOn.
const (
	TrainAssistant = "assistant" // every message of Options.Roles
	TrainLast      = "last"      // the last of them
	TrainAll       = "all"       // every token, the template's too
)

// Values of Options.Turns: what becomes of turns that the template writes otherwise once messages follow.
const (
	SplitAuto   = "auto"   // each such turn is rendered as the last one, in a row of its own
	SplitAlways = "always" // every trained turn has a row of its own
	SplitNever  = "never"  // such a conversation is an error
)

// DefaultDate is what strftime_now tells templates: fixed, so that a run repeats on another day.
var DefaultDate = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// Options say what of a conversation is trained.
type Options struct {
	TrainOn   string
	Roles     []string // whose messages are trained
	Reasoning bool     // train the reasoning too
	ToolCalls bool     // train calls of tools too
	Turns     string
	Allow     []string  // special tokens that stay special in the texts of messages; "all" for all
	Date      time.Time // zero: DefaultDate
}

// DefaultOptions train all of the assistant's turns.
func DefaultOptions() Options {
	return Options{TrainOn: TrainAssistant, Roles: []string{"assistant"}, Reasoning: true, ToolCalls: true, Turns: SplitAuto}
}

// Tokenizer is what the package needs from a tokenizer. It is called from many goroutines.
type Tokenizer interface {
	Locate(text string, o tokenizer.LocateOptions) tokenizer.Located
	IsSpecial(id int32) bool
	ID(token string) (int32, bool)
	Token(id int32) (string, bool)
}

// Chat turns conversations into rows. It is safe for concurrent use.
type Chat struct {
	plain, tools *Template // tools: for conversations with tools
	tok          Tokenizer
	o            Options
	allow        map[int32]bool
	stops        []int32
	known        map[*Template]*traits

	mu     sync.RWMutex
	shapes map[string]*shape
	clean  map[[sha256.Size]byte]struct{} // lists of tools without special tokens
}

// maxShapes bounds the memory of shapes; what is beyond is proved anew.
const maxShapes = 8192

// New compiles the templates that name chooses from the sources ("" = the model's own).
func New(sources *Sources, name string, tok Tokenizer, o Options) (*Chat, error) {
	plain, tools, err := sources.Choose(name)
	if err != nil {
		return nil, err
	}
	if o.Date.IsZero() {
		o.Date = DefaultDate
	}
	c := &Chat{tok: tok, o: o, allow: map[int32]bool{}, stops: sources.Stops, shapes: map[string]*shape{}, clean: map[[sha256.Size]byte]struct{}{}, known: map[*Template]*traits{}}
	for _, token := range o.Allow {
		id, ok := tok.ID(token)
		switch {
		case token == "all":
		case !ok || !tok.IsSpecial(id):
			return nil, fmt.Errorf("dataset.allow_special: %q is no special token of the tokenizer", token)
		default:
			c.allow[id] = true
		}
	}
	tokens := givenEnd(sources.Tokens, plain.Source, tok)
	if c.plain, err = Compile(plain, tokens, o.Date); err != nil {
		return nil, err
	}
	c.tools = c.plain
	if tools != plain {
		if c.tools, err = Compile(tools, sources.Tokens, o.Date); err != nil {
			return nil, err
		}
	}
	for _, t := range []*Template{c.plain, c.tools} {
		known, err := c.probe(t)
		if err != nil {
			return nil, err
		}
		c.known[t] = known
	}
	return c, nil
}

// template is the one that transformers chooses for the conversation.
func (c *Chat) template(conv *Conversation) *Template {
	if conv.Tools != nil {
		return c.tools
	}
	return c.plain
}

// Prompt renders a conversation up to where the model begins to write.
func (c *Chat) Prompt(conv *Conversation) (string, error) {
	t := c.template(conv)
	return t.Text(c.adapt(t, conv), true)
}

// specials finds the special tokens of a text.
func (c *Chat) specials(text string) []tokenizer.Special {
	if text == "" {
		return nil
	}
	return c.tok.Locate(text, tokenizer.LocateOptions{}).Specials
}

// chosen says which messages' turns are looked for: those that are trained, or with TrainAll those that are not.
func (c *Chat) chosen(conv *Conversation) []bool {
	on := make([]bool, len(conv.Messages))
	last := -1
	for i, m := range conv.Messages {
		prompt := conv.asked > 0 && i < conv.before+conv.asked
		if on[i] = slices.Contains(c.o.Roles, m.Role) && !prompt; on[i] {
			last = i
		}
	}
	for i, m := range conv.Messages {
		switch {
		case c.o.TrainOn == TrainAll:
			on[i] = m.Train != nil && !*m.Train
		case m.Train != nil:
			on[i] = *m.Train
		case c.o.TrainOn == TrainLast:
			on[i] = i == last
		}
	}
	return on
}

// EndOfTurn is what ends an assistant's turn.
type EndOfTurn struct {
	Text string  // as the template writes it behind the content; "" where only the next message's first token ends the turn
	IDs  []int32 // single tokens of which any one ends the turn: generation stops at them; ascending
}

// EndOfTurn tells where generation stops. The tokens are those that the template writes and, as a hint of the model's
// authors, those of generation_config.json that are special.
func (c *Chat) EndOfTurn(conv *Conversation) EndOfTurn {
	known := c.known[c.template(conv)]
	e := EndOfTurn{Text: known.end}
	ids := map[int32]bool{}
	for _, id := range known.stops {
		ids[id] = true
	}
	for _, id := range c.stops {
		if c.tok.IsSpecial(id) {
			ids[id] = true
		}
	}
	for id := range ids {
		e.IDs = append(e.IDs, id)
	}
	slices.Sort(e.IDs)
	return e
}

func (c *Chat) endText(t *Template) string { return c.known[t].end }
