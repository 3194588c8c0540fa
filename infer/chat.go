package infer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tierlora/tierlora/dataset/chat"
	"github.com/tierlora/tierlora/dataset/tokenizer"
)

// ChatPrompt renders a conversation by the chat template that name chooses ("" = the adapter's or model's own) and
// tokenises it as training does. The answer ends at the tokens with which the template ends a turn.
func (g *Generator) ChatPrompt(conv *chat.Conversation, name string) (Prompt, error) {
	sources, err := g.templates()
	if err != nil {
		return Prompt{}, fmt.Errorf("find the chat template: %w", err)
	}
	c, err := chat.New(sources, name, g.Base.Tokenizer, chat.DefaultOptions())
	if err != nil {
		return Prompt{}, err
	}
	p, err := c.Prompted(conv)
	if err != nil {
		return Prompt{}, err
	}
	end := c.EndOfTurn(conv)
	prompt := Prompt{IDs: p.IDs, Ends: end.IDs}
	if end.Text != "" && len(g.Base.Tokenizer.Locate(end.Text, tokenizer.LocateOptions{}).Specials) == 0 {
		prompt.End = end.Text // the tokenizer has no token for what ends a turn
	}
	return prompt, nil
}

// templates are those saved beside the adapter, which it was trained with, else those of the model.
func (g *Generator) templates() (*chat.Sources, error) {
	base, err := chat.Find(g.Base.Folder)
	if err != nil || g.adapterDir == "" {
		return base, err
	}
	own, err := chat.Find(os.DirFS(g.adapterDir))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(own.Templates) == 0:
		return base, nil
	case err != nil:
		return nil, fmt.Errorf("adapter %s: %w", g.adapterDir, err)
	}
	if len(own.Stops) == 0 {
		own.Stops = base.Stops
	}
	return own, nil
}
