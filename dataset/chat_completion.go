package dataset

import (
	"bytes"
	"fmt"
)

// chatCompletion reads {prompt: [{role, content}], completion: [{role, content}]}: TRL's conversational prompt and
// completion. The messages of the completion follow those of the prompt. Only the completion is trained, including what
// the template writes after its last message.
var chatCompletion = Format{
	Roles: []Role{
		{Name: "prompt", Keys: completion.Roles[0].Keys},
		{Name: "completion", Keys: completion.Roles[1].Keys},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
	},
	Chat:     true,
	NoPrompt: "dataset.train_on says what is trained",
	Fits:     Fields.conversational,
	Other: "prompt and completion are no lists of messages: set dataset.format: completion, which takes texts, or " +
		"leave dataset.format out",
	Render: renderChatCompletion,
}

func renderChatCompletion(f Fields, _ Config) (Example, error) {
	prompt, completion := f.messagesIn("prompt"), f.messagesIn("completion")
	if prompt != noMessages && completion != noMessages {
		return conversation(f, "prompt", "completion", false)
	}
	list, text, role := "prompt", "completion", "assistant"
	switch {
	case prompt == noMessages && completion == noMessages:
		return Example{}, fmt.Errorf("field %q and field %q are no lists of messages, such as [{\"role\": \"user\", "+
			"\"content\": …}]", f.Key("prompt"), f.Key("completion"))
	case completion != noMessages:
		list, text, role = text, list, "user"
	}
	raw, _ := f.row.lookup(f.keys[text])
	return Example{}, fmt.Errorf("field %q is a list of messages and field %q is %s: both must be lists of messages, "+
		"such as [{\"role\": %q, \"content\": …}], or both texts",
		f.keys[list], f.keys[text], kindOf(raw), role)
}

// conversational reports whether prompt or completion is a list of messages, or both are JSON strings of such lists.
func (f Fields) conversational() bool {
	prompt, completion := f.messagesIn("prompt"), f.messagesIn("completion")
	return prompt == listOfMessages || completion == listOfMessages ||
		prompt == textOfMessages && completion == textOfMessages
}

// Results of messagesIn.
const (
	noMessages     = iota
	textOfMessages // a list of messages as a JSON string, since a CSV file has no lists
	listOfMessages
)

// messagesIn reports how the value of a role holds messages.
func (f Fields) messagesIn(role string) int {
	raw, ok := f.row.lookup(f.keys[role])
	found := listOfMessages
	if ok && kindOf(raw) == "a string" {
		found = textOfMessages
		if raw = bytes.TrimSpace([]byte(textOf(raw))); !bytes.HasPrefix(raw, []byte("[")) || checkNesting(raw) != nil ||
			checkJSON(raw) != nil {
			return noMessages
		}
	}
	if !ok || roleOfMessages(raw) == "" {
		return noMessages
	}
	return found
}
