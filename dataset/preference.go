package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/chat"
)

// supervisedPairs says how a supervised objective can use preference pairs.
const supervisedPairs = "to train on the chosen answers alone write dataset.format: completion with dataset.fields: " +
	"{prompt: prompt, completion: chosen}, or where the answers are lists of messages dataset.format: messages with " +
	"dataset.fields: {messages: chosen}"

// preference reads a pair {prompt, chosen, rejected}: two answers to one prompt, chosen being the better one. A row
// becomes a group of two sequences: prompt and chosen, then prompt and rejected. Answers are texts, messages or lists
// of messages. If a pair has no prompt, both answers begin with it.
var preference = Format{
	Roles: []Role{
		{Name: "prompt", Optional: true, Keys: []string{
			"prompt", "question", "instruction", "query", "input", "messages", "conversations"}},
		{Name: "chosen", Keys: []string{"chosen", "chosen_messages", "chosen_response", "response_j",
			"preferred_output"}},
		{Name: "rejected", Keys: []string{
			"rejected", "rejected_messages", "rejected_response", "response_k", "non_preferred_output"}},
		{Name: "input", Keys: []string{"input"}, Optional: true},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "history", Keys: []string{"history"}, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
		{Name: "margin", Keys: []string{"margin"}, Optional: true},
	},
	Preference: true,
	Trains:     "both answers and what ends them; the prompt is context",
	NoPrompt:   "the prompt is context of both answers",
	Talks:      func(f Fields) bool { return f.talks("prompt", "chosen", "rejected") },
	Render:     func(f Fields, cfg Config) (Example, error) { return readPair(f, cfg, f.textAnswers) },
	AsChat:     func(f Fields, cfg Config) (Example, error) { return readPair(f, cfg, f.chatAnswers) },
	Supervised: supervisedPairs,
}

// readPair reads both answers, and the margin between them where the objective uses it.
func readPair(f Fields, cfg Config, read func(answers ...string) (Example, error)) (Example, error) {
	ex, err := read("chosen", "rejected")
	if err != nil {
		return ex, err
	}
	return ex, readMargin(f, &ex, cfg)
}

// unpaired reads {prompt, completion, label}: an answer to learn or an answer to avoid (KTO). A row becomes a group of
// one sequence with that label.
var unpaired = Format{
	Roles: []Role{
		{Name: "prompt", Keys: []string{"prompt", "question", "instruction", "query", "input"}, Optional: true},
		{Name: "completion", Keys: []string{
			"completion", "answer", "response", "output", "messages", "conversations"}},
		{Name: "label", Keys: []string{"label", "kto_tag"}},
		{Name: "input", Keys: []string{"input"}, Optional: true},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "history", Keys: []string{"history"}, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
	},
	Preference: true,
	Asked:      true,
	Trains:     "the answer and what ends it; the prompt is context",
	NoPrompt:   "the prompt is context of the answer",
	Talks:      func(f Fields) bool { return f.talks("prompt", "completion", "completion") },
	Render:     func(f Fields, _ Config) (Example, error) { return f.labelledAnswer(f.textAnswers) },
	AsChat:     func(f Fields, _ Config) (Example, error) { return f.labelledAnswer(f.chatAnswers) },
	Supervised: "to train on all answers whatever their label write dataset.format: completion, or where they are " +
		"lists of messages dataset.format: chat_completion",
}

// Completions are answers to one prompt. Each becomes a sequence of the row: prompt and answer. They are tokenised as
// in TRL: prompt and answer together. The trained part begins where the ids of the prompt alone first differ from those
// of the prompt with any of the answers.
type Completions struct {
	Prompt  string
	Answers []string
	// Talks are whole conversations, one for each answer, which replace Prompt and Answers. The last Said[k] messages
	// of conversation k are the answer.
	Talks []*chat.Conversation
	Said  []int
	Names []string // display names of the answers, such as chosen and rejected
}

// labelledAnswer reads an answer with its label.
func (f Fields) labelledAnswer(read func(answers ...string) (Example, error)) (Example, error) {
	label, err := f.label("label")
	if err != nil {
		return Example{}, err
	}
	ex, err := read("completion")
	if ex.Completions != nil {
		ex.Desirable, ex.Completions.Names = label, []string{label.String()}
	}
	return ex, err
}

// label reads true or false (also as a string, since CSV files have only strings), or 1 or 0.
func (f Fields) label(role string) (Desirability, error) {
	raw, _ := f.row.lookup(f.keys[role])
	text := string(raw)
	if kindOf(raw) == "a string" {
		text = strings.ToLower(strings.TrimSpace(textOf(raw)))
	}
	switch text {
	case "true", "1":
		return Desirable, nil
	case "false", "0":
		return Undesirable, nil
	}
	return Unlabelled, fmt.Errorf("field %q is %s, want true for an answer to learn or false for one to avoid",
		f.keys[role], words.Clip(string(raw), 40))
}

// talks reports whether the row is a conversation: one of the fields is a message, a list of messages or OpenAI's
// object around one, or both answers are JSON strings of lists of messages.
func (f Fields) talks(prompt, chosen, rejected string) bool {
	if f.messagesIn(chosen) == textOfMessages && f.messagesIn(rejected) == textOfMessages {
		return true
	}
	for _, role := range []string{prompt, chosen, rejected} {
		if raw, ok := f.row.lookup(f.keys[role]); ok && (kindOf(raw) == "a list" || kindOf(raw) == "an object") {
			return true
		}
	}
	return false
}

// plain returns the text of a role in a file of texts.
func (f Fields) plain(role string) (string, error) {
	raw, ok := f.row.lookup(f.keys[role])
	if kind := kindOf(raw); ok && (kind == "a list" || kind == "an object") {
		return "", fmt.Errorf("field %q is %s, and the first row of the file has texts: the rows of a file must all "+
			"be texts or all be conversations, and dataset.as_chat: yes makes conversations of texts", f.keys[role], kind)
	}
	return f.Text(role)
}

// asked returns the text of the prompt: prompt and input, joined by a line break if neither is empty, as in
// LLaMA-Factory.
func (f Fields) asked() (string, error) {
	prompt, err := f.plain("prompt")
	if err != nil || f.keys["input"] == f.keys["prompt"] {
		return prompt, err
	}
	input, err := f.plain("input")
	if err != nil || strings.TrimSpace(input) == "" {
		return prompt, err
	}
	return prompt + "\n" + input, nil
}

// textAnswers reads a row of texts.
func (f Fields) textAnswers(roles ...string) (Example, error) {
	prompt, err := f.asked()
	if err != nil {
		return Example{}, err
	}
	answers := make([]string, len(roles))
	for i, role := range roles {
		if answers[i], err = f.plain(role); err != nil {
			return Example{}, err
		}
	}
	var ex Example
	// fields of conversations only
	for _, role := range []string{"system", "history", "tools", "chat_template_kwargs"} {
		if f.row.filled(f.keys[role]) {
			ex.Unused = append(ex.Unused, f.keys[role])
		}
	}
	if len(answers) == 2 && answers[0] == answers[1] {
		ex.Empty = dropSamePair
		return ex, nil
	}
	if !f.Present("prompt") {
		if len(answers) == 1 {
			return Example{}, fmt.Errorf("field %q is missing: the row has an answer and no prompt", f.keys["prompt"])
		}
		n, ok := sharedPrompt(answers[0], answers[1])
		if !ok {
			ex.Empty = dropPrompts
			return ex, nil
		}
		prompt, answers[0], answers[1] = answers[0][:n], answers[0][n:], answers[1][n:]
	}
	ex.Completions = &Completions{Prompt: prompt, Answers: answers, Names: roles}
	return ex, nil
}

// Marks of the turns in a transcript in the format of HH-RLHF.
const (
	transcriptHuman     = "\n\nHuman:"
	transcriptAssistant = "\n\nAssistant:"
)

// sharedPrompt returns how many bytes of both answers are their common prompt. In transcripts it ends after the mark of
// the last assistant turn that both have; in other texts it is the common prefix, cut as TRL does. It returns false if
// the answers begin differently.
func sharedPrompt(chosen, rejected string) (n int, ok bool) {
	last := 0 // start of the last character before n
	for i, r := range chosen {
		end := i + len(string(r))
		if end > len(rejected) || chosen[i:end] != rejected[i:end] {
			break
		}
		last, n = i, end
	}
	switch {
	case n == 0:
		return 0, false
	case strings.HasPrefix(strings.TrimLeft(chosen, "\n"), strings.TrimLeft(transcriptHuman, "\n")):
		at := strings.LastIndex(chosen[:n], transcriptAssistant)
		return at + len(transcriptAssistant), at > 0
	case n == len(chosen) || n == len(rejected):
		// one text is the beginning of the other: TRL leaves the last common character to the answers
		return last, last > 0
	case chosen[n-1] == ' ':
		return n - 1, n > 1
	}
	return n, true
}

// chatAnswers reads a row as conversations.
func (f Fields) chatAnswers(roles ...string) (Example, error) {
	prompt, err := f.promptMessages()
	if err != nil {
		return Example{}, err
	}
	answers := make([][]json.RawMessage, len(roles))
	for i, role := range roles {
		if answers[i], err = f.answerMessages(role); err != nil {
			return Example{}, err
		}
	}
	if len(answers) == 2 && sameMessages(answers[0], answers[1]) {
		return Example{Empty: dropSamePair}, nil
	}
	whole := asks(answers[0][0])
	said := make([]int, len(answers))
	for i := range answers {
		said[i] = len(answers[i])
	}
	switch last := answers[len(answers)-1]; {
	case whole:
		if reason, err := f.sharedMessages(answers, said, roles); err != nil || reason != "" {
			return Example{Empty: reason}, err
		}
	case asks(last[0]):
		return Example{Empty: dropPrompts}, nil
	case prompt.messages == nil && isString(f, roles[0]):
		return Example{}, fmt.Errorf("field %q is a string, and the row has no prompt before it: give a list of "+
			"messages, or a prompt", f.keys[roles[0]])
	case prompt.messages == nil:
		return Example{}, fmt.Errorf(
			"field %q begins with the assistant's message, and the row has no prompt before it",
			f.keys[roles[0]])
	}
	ex := Example{Completions: &Completions{Said: said, Names: roles}}
	for i, role := range roles {
		talk, unused, err := f.talk(prompt, answers[i], whole, role)
		if err != nil {
			return Example{}, err
		}
		ex.Unused = unused
		ex.Completions.Talks = append(ex.Completions.Talks, talk)
	}
	return ex, nil
}

// sharedMessages finds the prompt in conversations that include it: a pair is divided where its answers begin to
// differ, a single conversation before its last message. It sets said to the number of messages of each answer, or
// returns a reason to drop the pair.
func (f Fields) sharedMessages(answers [][]json.RawMessage, said []int, roles []string) (reason string, err error) {
	n := len(answers[0]) - 1
	if len(answers) == 2 {
		n = min(n, len(answers[1])-1) // each answer has at least one message
		for i := range n {
			if !sameMessage(answers[0][i], answers[1][i]) {
				n = i
				break
			}
		}
	}
	for i := range answers {
		if said[i] = len(answers[i]) - n; n == 0 || asks(answers[i][n]) {
			if len(answers) == 2 {
				return dropPrompts, nil
			}
			return "", fmt.Errorf("field %q does not end with a message of the assistant, which the label is about",
				f.keys[roles[0]])
		}
	}
	return "", nil
}

// talk makes the conversation of an answer: the answer is a whole conversation, or follows the prompt.
func (f Fields) talk(prompt messageList, answer []json.RawMessage, whole bool, role string) (
	conv *chat.Conversation, unused []string, err error) {
	raw := chat.Raw{Key: f.Key(role), Messages: joinMessages(answer), ToolsKey: f.Key("tools")}
	if !whole {
		raw.Key, raw.CompletionKey = prompt.key, raw.Key
		raw.Messages, raw.Completion = joinMessages(prompt.messages), raw.Messages
	}
	if raw.Tools, err = f.JSON("tools"); err != nil {
		return nil, nil, err
	}
	if raw.Tools == nil {
		raw.Tools = prompt.tools
	}
	if raw.Vars, err = f.JSON("chat_template_kwargs"); err != nil {
		return nil, nil, err
	}
	system, err := f.Text("system")
	if err != nil {
		return nil, nil, err
	}
	if conv, err = chat.Read(raw); err != nil {
		return nil, nil, err
	}
	own, has := conv.System()
	if conv.GiveSystem(system); has && system != "" && strings.TrimSpace(own) != strings.TrimSpace(system) {
		unused = []string{f.Key("system")}
	}
	return conv, unused, nil
}

// messageList holds the messages of a field as JSON.
type messageList struct {
	key      string
	messages []json.RawMessage
	tools    json.RawMessage // tools beside the messages in the field
}

// promptMessages reads the prompt: a text, which becomes the user's message after those of history, a list of messages,
// or OpenAI's object with such a list and tools. The list is empty if the row has no prompt.
func (f Fields) promptMessages() (messageList, error) {
	p := messageList{key: f.Key("prompt")}
	raw, err := f.JSON("prompt")
	if err != nil || raw == nil {
		return p, err
	}
	if kindOf(raw) == "an object" {
		o, err := splitObject(raw)
		if err != nil {
			return p, err
		}
		inner := Fields{row: o, keys: map[string]string{"messages": "messages", "tools": "tools"}}
		if !inner.Present("messages") {
			return p, fmt.Errorf("field %q is an object without messages, it has %s", p.key, o.keyList())
		}
		raw, _ = o.lookup("messages")
		p.key += ".messages"
		p.tools, _ = inner.JSON("tools")
	}
	if f.messagesIn("prompt") == textOfMessages {
		raw = []byte(textOf(raw))
	}
	switch kindOf(raw) {
	case "a list":
		p.messages = splitList(raw)
		return p, f.checkMessages(p.key, p.messages)
	case "a string":
	default:
		return p, fmt.Errorf("field %q is %s, want a text or a list of messages", p.key, kindOf(raw))
	}
	text, err := f.asked()
	if err != nil {
		return p, err
	}
	earlier, err := f.turns("history")
	if err != nil {
		return p, err
	}
	for _, t := range earlier {
		p.messages = append(p.messages, message("user", t[0]), message("assistant", t[1]))
	}
	p.messages = append(p.messages, message("user", text))
	return p, nil
}

// isString reports whether a field holds a text that is not a list of messages.
func isString(f Fields, role string) bool {
	raw, err := f.JSON(role)
	return err == nil && kindOf(raw) == "a string" && f.messagesIn(role) != textOfMessages
}

// answerMessages reads an answer: a text, which becomes the assistant's message, a message, or a list of messages.
func (f Fields) answerMessages(role string) ([]json.RawMessage, error) {
	raw, err := f.JSON(role)
	if err != nil {
		return nil, err
	}
	if f.messagesIn(role) == textOfMessages {
		raw = bytes.TrimSpace([]byte(textOf(raw)))
	}
	switch kindOf(raw) {
	case "a string":
		return []json.RawMessage{message("assistant", textOf(raw))}, nil
	case "an object":
		return []json.RawMessage{raw}, nil
	case "a list":
		list := splitList(raw)
		return list, f.checkMessages(f.keys[role], list)
	}
	return nil, fmt.Errorf("field %q is %s, want a text, a message or a list of messages", f.keys[role], kindOf(raw))
}

// checkMessages rejects lists that are empty or too long.
func (f Fields) checkMessages(key string, list []json.RawMessage) error {
	switch {
	case len(list) == 0:
		return fmt.Errorf("field %q is an empty list of messages", key)
	case len(list) > maxElements:
		return fmt.Errorf("field %q has %d elements, more than %d", key, len(list), maxElements)
	}
	for i, m := range list {
		if kind := kindOf(m); kind != "an object" {
			return fmt.Errorf("%s[%d] is %s, want an object with role and content", key, i, kind)
		}
	}
	return nil
}

// message makes a message from a text.
func message(role, text string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"role": role, "content": text})
	if err != nil {
		panic("dataset: a message is always JSON: " + err.Error())
	}
	return raw
}

func joinMessages(list []json.RawMessage) []byte {
	return append(append([]byte("["), bytes.Join(rawLists(list), []byte(","))...), ']')
}

func rawLists(list []json.RawMessage) [][]byte {
	parts := make([][]byte, len(list))
	for i, m := range list {
		parts[i] = m
	}
	return parts
}

// asks reports whether a message is one that the assistant answers: neither its own nor a tool's. A message without a
// role is not; reading it as a conversation reports the missing role.
func asks(m json.RawMessage) bool {
	if kindOf(m) != "an object" {
		return false
	}
	o, err := splitObject(m)
	if err != nil {
		return false
	}
	for _, key := range []string{"role", "from"} {
		if raw, ok := o.value(key); ok && kindOf(raw) == "a string" {
			return chat.Asks(textOf(raw))
		}
	}
	return false
}

// sameMessages reports whether two lists hold equal messages, regardless of JSON formatting.
func sameMessages(a, b []json.RawMessage) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !sameMessage(a[i], b[i]) {
			return false
		}
	}
	return true
}

func sameMessage(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
