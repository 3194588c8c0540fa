package infer

import (
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/chat"
)

// PromptFormat returns the prompt format on which the adapter, or the merged model, was trained, or nil if its folder
// does not record one.
func (g *Generator) PromptFormat() (*dataset.PromptFormat, error) {
	return dataset.FindPromptFormat(g.Base.Folder, g.adapterDir)
}

// PromptFormat returns the prompt format on which an adapter, or the base model for an empty name, was trained, or nil
// if its folder does not record one.
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

// Chat reads the chat template called name. An empty name selects the adapter's or model's own template.
func (g *Generator) Chat(name string) (*chat.Chat, error) {
	return readChat(g.Session, g.adapterDir, name)
}
