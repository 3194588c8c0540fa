package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/dataset/jinja"
	"github.com/tierlora/tierlora/dataset/tokenizer"
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
	c := &Chat{tok: tok, o: o, allow: map[int32]bool{}, stops: sources.Stops, shapes: map[string]*shape{}, known: map[*Template]*traits{}}
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
	if c.plain, err = Compile(plain, sources.Tokens, o.Date); err != nil {
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
		if on[i] = slices.Contains(c.o.Roles, m.Role); on[i] {
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

// traits are what a template is found to do.
type traits struct {
	end       string    // what ends a turn of the assistant
	prompt    string    // what the generation prompt adds; "" without one
	next      [2]string // the special token with which a user's and a tool's message begins, where end is ""
	stops     []int32   // the same and others, as single tokens
	textOnly  bool      // contents must be strings, not lists of parts
	partsOnly bool      // contents must be lists of parts
	callText  bool      // a call's arguments must be a string of JSON
}

// probeLimits are ample for conversations of three messages.
var probeLimits = jinja.Limits{Steps: 1_000_000, Output: 16 << 20, Memory: 64 << 20}

// probe tries a template on conversations of its own. Only a template that runs away is an error.
func (c *Chat) probe(full *Template) (*traits, error) {
	known := &traits{}
	t := *full
	t.limits = probeLimits
	if _, err := t.Text(&Conversation{Messages: []Message{{Role: "user", Fields: fields("user", jinja.Str("x"))}}}, false); err != nil {
		if e := (*jinja.Error)(nil); errors.As(err, &e) && e.Kind == "LimitError" {
			return nil, err
		}
	}
	c.try(&t, known)
	return known, nil
}

// try fills in what the template does with talks between a user and an assistant.
func (c *Chat) try(t *Template, known *traits) {
	user, answer := "\uE000user\uE000", "\uE001answer\uE001"
	system := false
	talk := func(content func(string) jinja.Value, more ...string) *Conversation {
		conv := &Conversation{}
		if system {
			conv.Messages = append(conv.Messages, Message{Role: "system", Fields: fields("system", content("x"))})
		}
		for i, s := range append([]string{user, answer}, more...) {
			role := []string{"user", "assistant"}[i%2]
			conv.Messages = append(conv.Messages, Message{Role: role, Fields: fields(role, content(s))})
		}
		return conv
	}
	writes := func(content func(string) jinja.Value) bool {
		text, err := t.Text(talk(content), false)
		return err == nil && strings.Contains(text, user) && strings.Contains(text, answer) && !strings.Contains(text, "'"+user+"'")
	}
	asText := func(s string) jinja.Value { return jinja.Str(s) }
	content := asText
	texts, parts := writes(asText), writes(asParts)
	if !texts && !parts {
		system = true // some want a system message
		texts, parts = writes(asText), writes(asParts)
	}
	switch {
	case !texts && !parts:
		return // it refuses such a conversation: nothing is known
	case !texts:
		known.partsOnly, content = true, asParts
	case !parts:
		known.textOnly = true
	}
	known.callText = c.probeCalls(t)
	asked := talk(content)
	asked.Messages = asked.Messages[:len(asked.Messages)-1]
	if prompt, err := t.Text(asked, true); err == nil {
		if before, err := t.Text(asked, false); err == nil && strings.HasPrefix(prompt, before) {
			known.prompt = prompt[len(before):]
		}
	}

	text, _ := t.Text(talk(content), false)
	_, end, _ := strings.Cut(text, answer)
	known.end = trimRight(end)
	middle := ""
	if longer, err := t.Text(talk(content, user), false); err == nil {
		_, middle, _ = strings.Cut(longer, answer)
	}
	stop := func(s []tokenizer.Special) {
		if len(s) > 0 {
			known.stops = append(known.stops, s[len(s)-1].ID)
		}
	}
	if trimSpace(known.end) == "" {
		known.end = ""
		first := func(n int, text string) {
			text = strings.TrimLeft(text, "\n")
			if s := c.specials(text); len(s) > 0 && s[0].Start == 0 {
				known.next[n] = text[:s[0].End]
				known.stops = append(known.stops, s[0].ID)
			}
		}
		first(0, middle)
		conv := talk(content)
		conv.Messages = append(conv.Messages, Message{Role: "tool", Fields: fields("tool", content(user))})
		if text, err := t.Text(conv, false); err == nil {
			_, after, _ := strings.Cut(text, answer)
			first(1, after)
		}
		return
	}
	stop(c.specials(known.end))
	// What stands behind a turn in the middle: the same, or the beginning of it (Phi-3.5 closes the last one once more).
	n := 0
	for _, s := range c.specials(known.end) {
		if strings.HasPrefix(middle, known.end[:s.End]) {
			n = s.End
		}
	}
	for i := range known.end { // for a tokenizer that does not know the mark: a line is whole
		if known.end[i] == '\n' && i > n && strings.HasPrefix(middle, known.end[:i+1]) {
			n = i
		}
	}
	if n > 0 && n < len(known.end) {
		stop(c.specials(known.end[:n]))
		known.end = known.end[:n]
	}
}

func asParts(s string) jinja.Value {
	part := jinja.NewDict()
	part.Set("type", jinja.Str("text"))
	part.Set("text", jinja.Str(s))
	return jinja.NewList(part)
}

// probeCalls reports whether a template writes a call's arguments only if they are a string of JSON.
func (c *Chat) probeCalls(t *Template) bool {
	try := func(arguments jinja.Value) bool {
		function, call, schema, tool := jinja.NewDict(), jinja.NewDict(), jinja.NewDict(), jinja.NewDict()
		function.Set("name", jinja.Str("look"))
		function.Set("arguments", arguments)
		call.Set("id", jinja.Str("abcdefghi"))
		call.Set("type", jinja.Str("function"))
		call.Set("function", function)
		m := fields("assistant", jinja.Str(""))
		m.Set("tool_calls", jinja.NewList(call))
		schema.Set("name", jinja.Str("look"))
		schema.Set("description", jinja.Str("x"))
		schema.Set("parameters", jinja.NewDict())
		tool.Set("type", jinja.Str("function"))
		tool.Set("function", schema)
		text, err := t.Text(&Conversation{
			Messages: []Message{{Role: "user", Fields: fields("user", jinja.Str("x"))}, {Role: "assistant", Fields: m}},
			Tools:    jinja.NewList(tool),
		}, false)
		return err == nil && strings.Contains(text, "\uE002") && !strings.Contains(text, `'at'`) && !strings.Contains(text, `\"at`)
	}
	object := jinja.NewDict()
	object.Set("at", jinja.Str("\uE002"))
	return !try(object) && try(jinja.Str("{\"at\": \"\uE002\"}"))
}

// adapt gives the conversation the form that the template takes: contents as strings or as lists of parts, arguments of
// calls as objects or as strings. What it takes in either form stays as it is.
func (c *Chat) adapt(t *Template, conv *Conversation) *Conversation {
	known := c.known[t]
	if known == nil {
		return conv
	}
	out := conv
	for i, m := range conv.Messages {
		f := m.Fields
		content, _ := f.Get("content")
		switch v := content.(type) {
		case *jinja.List:
			if known.textOnly {
				f = f.Copy()
				f.Set("content", jinja.Str(joinParts(v)))
			}
		case jinja.Str:
			if known.partsOnly {
				f = f.Copy()
				f.Set("content", asParts(string(v)))
			}
		}
		if known.callText && m.has("tool_calls") {
			f = callsAsText(f)
		}
		if f == m.Fields {
			continue
		}
		if out == conv {
			whole := *conv
			whole.Messages = slices.Clone(conv.Messages)
			out = &whole
		}
		out.Messages[i].Fields = f
	}
	return out
}

func joinParts(list *jinja.List) string {
	var b strings.Builder
	for _, item := range list.Items {
		if part, ok := item.(*jinja.Dict); ok {
			text, _ := part.Get("text")
			s, _ := text.(jinja.Str)
			b.WriteString(string(s))
		}
	}
	return b.String()
}

// callsAsText writes the arguments of every call as json.dumps does.
func callsAsText(f *jinja.Dict) *jinja.Dict {
	v, _ := f.Get("tool_calls")
	list, _ := v.(*jinja.List)
	if list == nil {
		return f
	}
	items := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		items[i] = item
		call, _ := item.(*jinja.Dict)
		if call == nil {
			continue
		}
		inner, in := call, ""
		if fv, _ := call.Get("function"); fv != nil {
			if d, ok := fv.(*jinja.Dict); ok {
				inner, in = d, "function"
			}
		}
		arguments, _ := inner.Get("arguments")
		if d, ok := arguments.(*jinja.Dict); ok {
			inner = inner.Copy()
			inner.Set("arguments", jinja.Str(dumps(d)))
			if items[i] = inner; in != "" {
				call = call.Copy()
				call.Set(in, inner)
				items[i] = call
			}
		}
	}
	f = f.Copy()
	f.Set("tool_calls", jinja.NewList(items...))
	return f
}

var dumpsTemplate = sync.OnceValue(func() *jinja.Template {
	t, err := jinja.Compile("{{ x | tojson }}")
	if err != nil {
		panic(err)
	}
	return t
})

// dumps is Python's json.dumps(v, ensure_ascii=False).
func dumps(v jinja.Value) string {
	vars := jinja.NewDict()
	vars.Set("x", v)
	out, err := dumpsTemplate().Render(vars, jinja.Options{})
	if err != nil {
		return ""
	}
	return out.Text
}
