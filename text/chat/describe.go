package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Description is what a template does with sample conversations.
type Description struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // hash of the template's source
	Bytes  int    `json:"bytes"`
	// Generation reports whether {% generation %} blocks mark what the assistant wrote.
	Generation bool   `json:"generation_blocks"`
	Masks      string `json:"masks"` // Masks says how the trained turns of a conversation are located.
	// EndOfTurn is the text after an answer; "" if the next message ends the turn.
	EndOfTurn string   `json:"end_of_turn"`
	Stops     []string `json:"stops"` // tokens at which generation stops
	Prompt    string   `json:"generation_prompt"`
	Contents  string   `json:"contents"` // accepted contents of messages: text, parts, or both
	Writes    []string `json:"writes"`   // kinds of messages that the template renders
	Omits     []string `json:"omits"`    // kinds that it rejects or leaves out
}

// samples are conversations, each with a text that a template writes if it supports their kind.
var samples = []struct{ kind, messages, tools, mark string }{
	{"system", `[{"role":"system","content":"qqsys"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`,
		"", "qqsys"},
	{"tools", `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, sampleTools, "qqtool"},
	{"tool calls", sampleCall, sampleTools, "qqtown"},
	{"tool results", sampleCall, sampleTools, "qqresult"},
	{"reasoning", `[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"qqwhy","content":"b"}]`, "",
		"qqwhy"},
}

const (
	sampleTools = `[{"type":"function","function":{"name":"qqtool","description":"d","parameters":{"type":"object","properties":{"town":{"type":"string","description":"t"}},"required":["town"]}}}]`
	sampleCall  = `[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"qqtool","arguments":{"town":"qqtown"}}}]},` +
		`{"role":"tool","tool_call_id":"abcdefghi","name":"qqtool","content":"qqresult"},{"role":"assistant","content":"b"}]`
	sampleTurns = `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]`
)

// Describe tries the templates: the one for conversations without tools, and the one for conversations with tools if it
// is different.
func (c *Chat) Describe() []Description {
	all := []Description{c.describe(c.plain)}
	if c.tools != c.plain {
		all = append(all, c.describe(c.tools))
	}
	return all
}

func (c *Chat) describe(t *Template) Description {
	known := c.known[t]
	sum := sha256.Sum256([]byte(t.source))
	d := Description{
		Name: t.Name, SHA256: hex.EncodeToString(sum[:]), Bytes: len(t.source), Generation: t.jinja.HasGeneration(),
		EndOfTurn: known.end, Prompt: known.prompt, Contents: "text or parts", Stops: []string{}, Writes: []string{},
		Omits: []string{},
	}
	switch {
	case known.textOnly:
		d.Contents = "text"
	case known.partsOnly:
		d.Contents = "parts"
	}
	end := &Conversation{}
	if t == c.tools && t != c.plain {
		end.Tools = readSample(sampleTurns, sampleTools).Tools
	}
	for _, id := range c.EndOfTurn(end).IDs {
		name, _ := c.tok.Token(id)
		d.Stops = append(d.Stops, name)
	}
	for _, s := range samples {
		conv := readSample(s.messages, s.tools)
		if text, err := t.Text(c.adapt(t, conv), false); err == nil && strings.Contains(text, s.mark) {
			d.Writes = append(d.Writes, s.kind)
		} else {
			d.Omits = append(d.Omits, s.kind)
		}
	}
	d.Masks = c.describeMasks(d.Generation, end.Tools != nil)
	return d
}

// describeMasks says how the trained turns of a conversation of two turns are located.
func (c *Chat) describeMasks(blocks, tools bool) string {
	given := ""
	if tools {
		given = sampleTools
	}
	rows, err := c.Rows(readSample(sampleTurns, given))
	switch {
	case err != nil:
		return "refused: " + err.Error()
	case len(rows) > 1:
		return "a row for each turn: the template writes earlier turns otherwise once messages follow"
	case blocks:
		return "by the template's {% generation %} blocks"
	}
	return "by renderings of the conversation before and with each turn"
}

func readSample(messages, tools string) *Conversation {
	conv, err := Read(Raw{Key: "messages", Messages: []byte(messages), Tools: []byte(tools)})
	if err != nil {
		panic(err)
	}
	return conv
}
