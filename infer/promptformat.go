package infer

import (
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/chat"
)

// PromptFormat says which prompts the adapter, or the merged model, was trained on. It is nil where the folder does not
// say it.
func (g *Generator) PromptFormat() (*dataset.PromptFormat, error) {
	return dataset.FindPromptFormat(g.Base.Folder, g.adapterDir)
}

// PromptFormat says which prompts an adapter, or the base model where the name is empty, was trained on. It is nil
// where the folder does not say it.
func (e *Engine) PromptFormat(adapter string) (*dataset.PromptFormat, error) {
	which, err := e.which(adapter)
	if err != nil {
		return nil, err
	}
	dir := ""
	if which >= 0 {
		dir = e.adapters[which].Dir
	}
	return dataset.FindPromptFormat(e.Base.Folder, dir)
}

// Chat reads the chat template that name chooses ("" = the adapter's or model's own).
func (g *Generator) Chat(name string) (*chat.Chat, error) {
	return readChat(g.Session, g.adapterDir, name)
}
