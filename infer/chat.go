package infer

import (
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// textPrompt encodes a prompt with the model's tokenizer and without a chat template.
func textPrompt(s *session.Session, prompt string) Prompt {
	return Prompt{IDs: s.Base.Tokenizer.IDs(prompt, true)}
}

// readChat reads the chat template called name. An empty name selects the template of the adapter's folder, or the
// model's own if the adapter has none.
func readChat(s *session.Session, adapterDir, name string) (*chat.Chat, error) {
	sources, err := session.ChatSources(s.Base.Folder, adapterDir)
	if err != nil {
		return nil, fmt.Errorf("find the chat template: %w", err)
	}
	return chat.New(sources, name, s.Base.Tokenizer, chat.DefaultOptions())
}

// ChatPrompt renders a conversation with a parsed template and tokenises it as training does. The answer ends at the
// tokens with which the template ends a turn.
func ChatPrompt(c *chat.Chat, tok *tokenizer.Tokenizer, conv *chat.Conversation) (_ Prompt, err error) {
	defer tokenizer.Caught(&err)
	p, err := c.Prompted(conv)
	if err != nil {
		return Prompt{}, err
	}
	end := c.EndOfTurn(conv)
	prompt := Prompt{IDs: p.IDs, Ends: end.IDs}
	if end.Text != "" && len(tok.Locate(end.Text, tokenizer.LocateOptions{}).Specials) == 0 {
		prompt.End = end.Text // the tokenizer has no token for the template's end of turn
	}
	return prompt, nil
}

// Chat reads the chat template called name for an adapter; adapter "" is the base model. An empty name selects the
// adapter's or model's own template.
func (e *Engine) Chat(adapter, name string) (*chat.Chat, error) {
	which, err := e.which(adapter)
	if err != nil {
		return nil, err
	}
	dir := ""
	if which >= 0 {
		dir = e.adapters[which].Dir
	}
	return readChat(e.Session, dir, name)
}

// ChatPrompt renders a conversation for an adapter ("" is the base model) with the chat template called name (""
// selects the adapter's or model's own) and tokenises it as training does.
func (e *Engine) ChatPrompt(adapter string, conv *chat.Conversation, name string) (Prompt, error) {
	c, err := e.Chat(adapter, name)
	if err != nil {
		return Prompt{}, err
	}
	return ChatPrompt(c, e.Base.Tokenizer, conv)
}

// ShowImages puts image files in the places that a prompt has for them, in order. It must be called before the first
// text is generated.
func (g *Generator) ShowImages(p Prompt, files [][]byte, cacheDir string) (Prompt, error) {
	g.ReadImages(cacheDir)
	p, err := showImages(g.Session, p, files)
	if err == nil {
		g.PlaceImages()
	}
	return p, err
}

// ShowImages puts image files in the places that a prompt has for them, in order. The engine needs
// EngineOptions.Images.
func (e *Engine) ShowImages(p Prompt, files [][]byte) (Prompt, error) {
	return showImages(e.Session, p, files)
}

// readImages prepares an engine for prompts with images, whose embeddings no other prompt uses.
func readImages(s *session.Session) error {
	s.ReadImages("")
	if s.Images == nil {
		return errNoImages(s)
	}
	if err := s.Images.Refused(); err != nil {
		return err
	}
	s.Images.KeepNone()
	s.PlaceImages()
	return nil
}

func errNoImages(s *session.Session) error {
	return fmt.Errorf("model %s reads no images (docs/IMAGES.md lists those that do)", s.Base.Name)
}

func showImages(s *session.Session, p Prompt, files [][]byte) (Prompt, error) {
	if s.Images == nil {
		return p, errNoImages(s)
	}
	var images []dataset.Image
	for i, file := range files {
		m, err := s.Images.Read(file)
		if err != nil {
			return p, fmt.Errorf("image %d: %w", i+1, err)
		}
		images = append(images, m)
	}
	ids, _, err := dataset.ExpandImages(p.IDs, s.Images.Token(), images)
	if err != nil {
		return p, err
	}
	p.IDs, p.Images = ids, &dataset.RowImages{Token: s.Images.Token(), List: images}
	return p, nil
}
