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
	TrainLast      = "last"      // only the last message of Options.Roles
	TrainAll       = "all"       // every token, including what the template adds
)

// Values of Options.Turns: what happens to turns that the template renders differently once messages follow.
const (
	SplitAuto   = "auto"   // each such turn is rendered as the last one, in a row of its own
	SplitAlways = "always" // every trained turn has a row of its own
	SplitNever  = "never"  // such a conversation is an error
)

// DefaultDate is the date that strftime_now returns in templates. It is fixed so that a run is repeatable on another
// day.
var DefaultDate = time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)

// Options decide what is trained of a conversation.
type Options struct {
	TrainOn   string
	Roles     []string // roles whose messages are trained
	Reasoning bool     // train the reasoning
	ToolCalls bool     // train tool calls
	Turns     string
	Allow     []string  // special tokens that stay special in the texts of messages; "all" for all
	Date      time.Time // date for templates; zero means DefaultDate
}

// DefaultOptions returns options that train every turn of the assistant.
func DefaultOptions() Options {
	return Options{TrainOn: TrainAssistant, Roles: []string{"assistant"}, Reasoning: true, ToolCalls: true,
		Turns: SplitAuto}
}

// Tokenizer is what the package needs from a tokenizer. It must be safe for concurrent use.
type Tokenizer interface {
	Locate(text string, o tokenizer.LocateOptions) tokenizer.Located
	IsSpecial(id int32) bool
	ID(token string) (int32, bool)
	Token(id int32) (string, bool)
}

// Chat turns conversations into rows. It is safe for concurrent use.
type Chat struct {
	plain, tools *Template // templates for conversations without and with tools
	tok          Tokenizer
	o            Options
	allow        map[int32]bool
	stops        []int32
	known        map[*Template]*traits

	mu     sync.RWMutex
	shapes map[string]*shape
	clean  map[[sha256.Size]byte]struct{} // lists of tools known to hold no special tokens
}

// maxShapes bounds the memory of shapes. Conversations of further shapes are proved one by one.
const maxShapes = 8192

// New compiles the templates that name selects from the sources ("" = the model's own).
func New(sources *Sources, name string, tok Tokenizer, o Options) (*Chat, error) {
	plain, tools, err := sources.Choose(name)
	if err != nil {
		return nil, err
	}
	if o.Date.IsZero() {
		o.Date = DefaultDate
	}
	c := &Chat{tok: tok, o: o, allow: map[int32]bool{}, stops: sources.Stops, shapes: map[string]*shape{},
		clean: map[[sha256.Size]byte]struct{}{}, known: map[*Template]*traits{}}
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
	if c.plain, err = sources.compile(plain, tokens, o.Date); err != nil {
		return nil, err
	}
	c.tools = c.plain
	if tools != plain {
		if c.tools, err = sources.compile(tools, sources.Tokens, o.Date); err != nil {
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

// template returns the template that transformers chooses for the conversation.
func (c *Chat) template(conv *Conversation) *Template {
	if conv.Tools != nil {
		return c.tools
	}
	return c.plain
}

// Prompt renders a conversation up to the point where the model begins to write.
func (c *Chat) Prompt(conv *Conversation) (string, error) {
	t := c.template(conv)
	return t.Text(c.adapt(t, conv), true)
}

// specials returns the special tokens in a text.
func (c *Chat) specials(text string) []tokenizer.Special {
	if text == "" {
		return nil
	}
	return c.tok.Locate(text, tokenizer.LocateOptions{}).Specials
}

// chosen reports for each message whether its turn must be located: those that are trained, or with TrainAll those that
// are not.
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

// EndOfTurn is what ends a turn of the assistant.
type EndOfTurn struct {
	// Text is what the template writes after the content; "" if only the first token of the next message ends the turn.
	Text string
	IDs  []int32 // IDs are the single tokens that each end the turn, ascending. Generation stops at them.
}

// EndOfTurn returns where generation stops: the tokens that the template writes after a turn and, as a hint from the
// model's authors, the special tokens among the stop tokens of generation_config.json.
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
