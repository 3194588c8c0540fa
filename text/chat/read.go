package chat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/jinja"
)

// maxShown is the most bytes of a foreign text that an error repeats.
const maxShown = 40

// roles maps every role name of data sets to the role of a message.
var roles = map[string]string{
	"system": "system", "developer": "developer",
	"user": "user", "human": "user", "prompter": "user",
	"assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant",
	"bard": "assistant", "bing": "assistant",
	"tool": "tool", "observation": "tool", "function_response": "tool", "tool_response": "tool",
	"function": "function", "ipython": "ipython",
}

// messageRoles are the roles that a message may have after reading.
var messageRoles = []string{"system", "developer", "user", "assistant", "tool", "function", "ipython"}

// Roles lists the roles that a message may have.
func Roles() []string { return slices.Clone(messageRoles) }

// Raw holds a row's fields as JSON, with their names for errors. Only Messages is required.
type Raw struct {
	Key      string // name of Messages
	Messages []byte // a list, or a string of such a list
	Tools    []byte // a list of tools, or a string of such a list
	ToolsKey string // name of Tools; "" = tools. FunctionsKey means OpenAI's older format
	Vars     []byte // an object with further variables for the template
	System   string // a system message that comes first
	// WithImages accepts content parts with images. Images are the references of the row's column of images, one for
	// each ImageMark in the texts and each part without a reference; nil = the row has no such column, and ImageMark is
	// text.
	WithImages bool
	Images     []string
	// Completion is a list of messages that follow Messages, and only they are trained; nil = there is none.
	// CompletionKey is its name.
	Completion    []byte
	CompletionKey string
}

// Read makes a conversation from {role, content} messages, or from ShareGPT's {from, value} turns. Errors name the
// invalid message.
func Read(raw Raw) (*Conversation, error) {
	asked, err := listOf(raw.Key, raw.Messages)
	if err != nil {
		return nil, err
	}
	items := asked
	c := &Conversation{key: raw.Key}
	if raw.Completion != nil {
		answers, err := listOf(raw.CompletionKey, raw.Completion)
		if err != nil {
			return nil, err
		}
		items = slices.Concat(asked, answers)
		c.asked, c.completionKey = len(asked), raw.CompletionKey
	}
	if raw.System != "" {
		c.before = 1
		c.Messages = append(c.Messages, Message{Role: "system", Fields: fields("system", jinja.Str(raw.System))})
	}
	column := raw.Images
	for _, item := range items {
		name := c.name(len(c.Messages))
		d, ok := item.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("%s is %s, want an object with role and content", name, typeOf(item))
		}
		if raw.WithImages {
			if d, err = c.takeParts(d, &column); err != nil {
				return nil, fmt.Errorf("%s%w", name, err)
			}
		}
		m, err := message(d, raw.WithImages)
		if err != nil {
			return nil, fmt.Errorf("%s%w", name, err)
		}
		if raw.Images != nil {
			m = c.takeMarks(m, &column)
		}
		c.Messages = append(c.Messages, m)
	}
	if raw.System != "" && c.Messages[1].Role == "system" {
		return nil, fmt.Errorf("%s is a system message, and the row has a field system too: keep one", c.name(1))
	}
	if err := errors.Join(c.checkImages(len(raw.Images), len(column)), c.checkCalls()); err != nil {
		return nil, err
	}
	if c.Tools, err = readTools(raw.Tools, cmp.Or(raw.ToolsKey, "tools")); err != nil {
		return nil, err
	}
	if len(raw.Vars) > 0 {
		if c.Vars, err = Vars(raw.Vars); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// listOf reads a field that must be a non-empty list of messages, or a string of such a list.
func listOf(key string, raw []byte) ([]jinja.Value, error) {
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w", key, err)
	}
	list, ok := v.(*jinja.List)
	if text, is := v.(jinja.Str); is { // a CSV file has no lists
		if inner, err := jinja.FromJSON([]byte(text)); err == nil {
			list, ok = inner.(*jinja.List)
		}
	}
	if !ok {
		return nil, fmt.Errorf("field %q is %s, want a list of messages", key, typeOf(v))
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("field %q is an empty list: a conversation has at least one message", key)
	}
	return list.Items, nil
}

func fields(role string, content jinja.Value) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("role", jinja.Str(role))
	d.Set("content", content)
	return d
}

// message reads {role, content, …}. Its errors continue after the name of the message. images accepts the parts of
// takeParts.
func message(d *jinja.Dict, images bool) (Message, error) {
	if _, has := d.Get("role"); !has {
		if _, has := d.Get("from"); has {
			return turn(d)
		}
	}
	role, err := roleOf(d, "role")
	if err != nil {
		return Message{}, err
	}
	m := Message{Role: role, Fields: d}
	if m.has("function_call") {
		return Message{}, errors.New(
			`.function_call is the older form of a call: write tool_calls: [{"type": "function", "function": {"name": …, "arguments": …}}], and give the message with the result the role tool`)
	}
	if err = m.trainOf(d); err != nil {
		return Message{}, err
	}
	if name, _ := d.Get("role"); m.Train != nil || name != jinja.Str(role) {
		m.Fields = d.Copy()
		m.Fields.Set("role", jinja.Str(role))
		for _, key := range trainKeys {
			m.Fields.Delete(key)
		}
	}
	if _, null := d.Get("function_call"); null {
		m.Fields = m.Fields.Copy()
		m.Fields.Delete("function_call")
	}
	if err := readCalls(&m); err != nil {
		return Message{}, err
	}
	return m, readContent(&m, images)
}

// turn reads {from, value}.
func turn(d *jinja.Dict) (Message, error) {
	from, _ := d.Get("from")
	value, _ := d.Get("value")
	text, ok := value.(jinja.Str)
	switch {
	case value == nil:
		return Message{}, fmt.Errorf(" has no value; it has %s", keyList(d))
	case !ok:
		return Message{}, fmt.Errorf(".value is %s, want a string", typeOf(value))
	}
	var m Message
	if err := m.trainOf(d); err != nil {
		return Message{}, err
	}
	if from == jinja.Str("function_call") || from == jinja.Str("tool_call") {
		m.Role, m.Fields = "assistant", fields("assistant", jinja.Str(""))
		calls, err := callsOf(string(text))
		if err != nil {
			return Message{}, fmt.Errorf(".value: %w", err)
		}
		m.Fields.Set("tool_calls", calls)
		return m, readCalls(&m)
	}
	role, err := roleOf(d, "from")
	if err != nil {
		return Message{}, err
	}
	m.Role, m.Fields = role, fields(role, text)
	return m, nil
}

func roleOf(d *jinja.Dict, key string) (string, error) {
	v, ok := d.Get(key)
	if !ok {
		return "", fmt.Errorf(" has no %s; it has %s", key, keyList(d))
	}
	s, ok := v.(jinja.Str)
	if !ok {
		return "", fmt.Errorf(".%s is %s, want a string", key, typeOf(v))
	}
	role, ok := roles[string(s)]
	if !ok {
		if role, ok = roles[strings.ToLower(strings.TrimSpace(string(s)))]; !ok {
			return "", fmt.Errorf(".%s is %q, want one of %s", key, words.Clip(string(s), maxShown),
				strings.Join(messageRoles, ", "))
		}
	}
	return role, nil
}

// trainKeys are the keys with which a message decides whether it is trained: OpenAI's weight, Axolotl's train and
// training, LLaMA-Factory's loss_weight.
var trainKeys = []string{"train", "training", "weight", "loss_weight"}

// MaxWeight is the largest factor of the loss that a message or a row may have.
const MaxWeight = 1000

// trainOf reads the trainKeys of a message. If it has two of them, they must agree.
func (m *Message) trainOf(d *jinja.Dict) error {
	said, given := "", -1. // the key that was read last, and the number that a key gave
	for _, key := range trainKeys {
		v, ok := d.Get(key)
		if !ok {
			continue
		}
		var on bool
		weight := 1.
		switch v := v.(type) {
		case jinja.None:
			continue
		case jinja.Bool:
			on = bool(v)
		case jinja.Int:
			weight = float64(v)
		case jinja.Float:
			weight = float64(v)
		default:
			return fmt.Errorf(".%s is %s, want true, false or a number", key, typeOf(v))
		}
		_, truth := v.(jinja.Bool)
		if !truth {
			if !(weight >= 0 && weight <= MaxWeight) {
				return fmt.Errorf(".%s is %v, want 0 to %d", key, weight, MaxWeight)
			}
			on = weight > 0
		}
		if m.Train != nil && *m.Train != on || !truth && given >= 0 && given != weight {
			return fmt.Errorf(" says %s and %s, which contradict each other", said, key)
		}
		if !truth {
			given = weight
		}
		if m.Train, said = &on, key; on && weight != 1 {
			m.Weight, m.weightKey = weight, key
		}
	}
	return nil
}

// CheckWeights refuses a message with another weight than 0 or 1, where the caller multiplies no loss by weights.
func (c *Conversation) CheckWeights() error {
	for i, m := range c.Messages {
		if m.Weight != 0 {
			return fmt.Errorf("%s.%s is %v, want 0 or 1: other weights of the loss need dataset.weights: true", c.name(i),
				m.weightKey, m.Weight)
		}
	}
	return nil
}

// readContent checks the content: a string, a list of text parts, or none if the message calls a tool.
func readContent(m *Message, images bool) error {
	v, ok := m.Fields.Get("content")
	for _, key := range reasoningKeys {
		if r, ok := m.Fields.Get(key); ok {
			switch r.(type) {
			case jinja.Str, jinja.None:
			default:
				return fmt.Errorf(".%s is %s, want a string", key, typeOf(r))
			}
		}
	}
	_, null := v.(jinja.None)
	switch v := v.(type) {
	case jinja.Str:
	case *jinja.List:
		parts, err := readParts(v, images)
		if err != nil {
			return err
		}
		m.Fields = m.Fields.Copy()
		m.Fields.Set("content", parts)
	default:
		if ok && !null {
			return fmt.Errorf(".content is %s, want a string or a list of text parts", typeOf(v))
		}
		if m.Role == "assistant" && m.has("tool_calls") {
			return nil
		}
		if !ok {
			return fmt.Errorf(" has no content; it has %s", keyList(m.Fields))
		}
		return fmt.Errorf(".content is null: only a message with tool_calls may go without")
	}
	return nil
}

// readParts checks content parts. LLaMA-Factory has a part's text under value; templates read text.
func readParts(list *jinja.List, images bool) (*jinja.List, error) {
	out := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		part, ok := item.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf(".content[%d] is %s, want an object like {\"type\": \"text\", \"text\": …}", i,
				typeOf(item))
		}
		if images && isImagePart(part) {
			out[i] = part
			continue
		}
		if t, ok := part.Get("type"); ok && t != jinja.Str("text") {
			name, _ := t.(jinja.Str)
			why := "only text is trained on"
			if slices.Contains(imageTypes, string(name)) {
				why += noImages
			}
			return nil, fmt.Errorf(".content[%d] is of type %q: %s", i, words.Clip(string(name), maxShown), why)
		}
		text, ok := part.Get("text")
		if !ok {
			if text, ok = part.Get("value"); !ok {
				return nil, fmt.Errorf(".content[%d] has no text; it has %s", i, keyList(part))
			}
			part = part.Copy()
			part.Delete("value")
			part.Set("text", text)
		}
		if _, ok := text.(jinja.Str); !ok {
			return nil, fmt.Errorf(".content[%d].text is %s, want a string", i, typeOf(text))
		}
		out[i] = part
	}
	return jinja.NewList(out...), nil
}

// typeOf returns the JSON name of a value's type.
func typeOf(v jinja.Value) string {
	switch v.(type) {
	case jinja.None:
		return "null"
	case jinja.Bool:
		return "a boolean"
	case jinja.Str:
		return "a string"
	case *jinja.List:
		return "a list"
	case *jinja.Dict:
		return "an object"
	}
	return "a number"
}

// keyList lists the keys of an object for an error.
func keyList(d *jinja.Dict) string {
	if d.Len() == 0 {
		return "no key"
	}
	var shown []string
	for i := range d.Len() {
		if i == 8 {
			shown = append(shown, fmt.Sprintf("and %d more", d.Len()-i))
			break
		}
		k, _ := d.At(i)
		s, _ := k.(jinja.Str)
		shown = append(shown, words.Clip(string(s), maxShown))
	}
	return strings.Join(shown, ", ")
}

// Asks reports whether messages of a role, by any of its names, are ones that the assistant answers: the user's and the
// system's.
func Asks(role string) bool {
	name, ok := roles[role]
	if !ok {
		name = roles[strings.ToLower(strings.TrimSpace(role))]
	}
	return name == "user" || name == "system" || name == "developer"
}
