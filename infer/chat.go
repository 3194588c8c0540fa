package infer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tierlora/tierlora/dataset/chat"
	"github.com/tierlora/tierlora/session"
)

// textPrompt is a prompt as the model's tokenizer encodes it by itself.
func textPrompt(s *session.Session, prompt string) Prompt {
	return Prompt{IDs: s.Base.Tokenizer.IDs(prompt, true)}
}

// chatPrompt renders a conversation by the chat template that name chooses ("" = that of the adapter's folder, or the model's
// own) and tokenises it as training does. The answer ends at the tokens with which the template ends a turn.
func chatPrompt(s *session.Session, adapterDir string, conv *chat.Conversation, name string) (Prompt, error) {
	sources, err := templates(s, adapterDir)
	if err != nil {
		return Prompt{}, fmt.Errorf("find the chat template: %w", err)
	}
	c, err := chat.New(sources, name, s.Base.Tokenizer, chat.DefaultOptions())
	if err != nil {
		return Prompt{}, err
	}
	return ChatPrompt(c, s.Base.Tokenizer, conv)
}

// templates are those saved beside the adapter, which it was trained with, else those of the model.
func templates(s *session.Session, adapterDir string) (*chat.Sources, error) {
	base, err := chat.Find(s.Base.Folder)
	if err != nil || adapterDir == "" {
		return base, err
	}
	own, err := chat.Find(os.DirFS(adapterDir))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(own.Templates) == 0:
		return base, nil
	case err != nil:
		return nil, fmt.Errorf("adapter %s: %w", adapterDir, err)
	}
	if len(own.Stops) == 0 {
		own.Stops = base.Stops
	}
	return own, nil
}
