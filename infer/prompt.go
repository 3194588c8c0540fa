package infer

import (
	"fmt"

	"github.com/tierlora/tierlora/dataset/chat"
	"github.com/tierlora/tierlora/dataset/tokenizer"
)

// ChatPrompt renders a conversation by a template that was read already and tokenises it as training does. The answer ends
// at the tokens with which the template ends a turn.
func ChatPrompt(c *chat.Chat, tok *tokenizer.Tokenizer, conv *chat.Conversation) (Prompt, error) {
	p, err := c.Prompted(conv)
	if err != nil {
		return Prompt{}, err
	}
	end := c.EndOfTurn(conv)
	prompt := Prompt{IDs: p.IDs, Ends: end.IDs}
	if end.Text != "" && len(tok.Locate(end.Text, tokenizer.LocateOptions{}).Specials) == 0 {
		prompt.End = end.Text // the tokenizer has no token for what ends a turn
	}
	return prompt, nil
}

// MaxSlots bounds EngineOptions.Slots.
const MaxSlots = maxSlots

// Chat reads the chat template of an adapter, "" for the base model: that which name chooses ("" = the adapter's or model's
// own).
func (e *Engine) Chat(adapter, name string) (*chat.Chat, error) {
	which, err := e.which(adapter)
	if err != nil {
		return nil, err
	}
	dir := ""
	if which >= 0 {
		dir = e.adapters[which].Dir
	}
	sources, err := templates(e.Session, dir)
	if err != nil {
		return nil, fmt.Errorf("find the chat template: %w", err)
	}
	return chat.New(sources, name, e.Base.Tokenizer, chat.DefaultOptions())
}

// ChatPrompt renders a conversation for an adapter, or "" for the base model, by the chat template that name chooses ("" = the
// adapter's or model's own), and tokenises it as training does.
func (e *Engine) ChatPrompt(adapter string, conv *chat.Conversation, name string) (Prompt, error) {
	which, err := e.which(adapter)
	if err != nil {
		return Prompt{}, err
	}
	dir := ""
	if which >= 0 {
		dir = e.adapters[which].Dir
	}
	return chatPrompt(e.Session, dir, conv, name)
}
