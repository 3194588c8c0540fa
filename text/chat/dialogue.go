package chat

import (
	"github.com/tierlora/tierlora/text/jinja"
)

// Dialogue makes a conversation from texts that user and assistant write in turn, the user first, after a system
// message if system is not empty. The result equals that of Read for the same messages.
func Dialogue(system string, turns ...string) *Conversation {
	c := &Conversation{Messages: make([]Message, 0, len(turns)+1)}
	for i, text := range turns {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		c.Messages = append(c.Messages, Message{Role: role, Fields: fields(role, jinja.Str(text))})
	}
	c.GiveSystem(system)
	return c
}

// GiveSystem adds a system message to a conversation that begins with none. An empty text changes nothing.
func (c *Conversation) GiveSystem(text string) {
	if _, has := c.System(); has || text == "" {
		return
	}
	m := Message{Role: "system", Fields: fields("system", jinja.Str(text))}
	c.Messages = append([]Message{m}, c.Messages...)
	c.before++
}

// System returns the text of the system (or developer) message that begins the conversation. has is false if there is
// none.
func (c *Conversation) System() (text string, has bool) {
	if len(c.Messages) == 0 {
		return "", false
	}
	m := c.Messages[0]
	if m.Role != "system" && m.Role != "developer" {
		return "", false
	}
	content, _ := m.Fields.Get("content")
	switch v := content.(type) {
	case jinja.Str:
		return string(v), true
	case *jinja.List:
		return joinParts(v), true
	}
	return "", true
}
