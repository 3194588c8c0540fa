package export

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
)

// templateFile is the file in which transformers keeps a chat template.
const templateFile = "chat_template.jinja"

// Answers describes what the files beside the weights tell other programs about conversations.
type Answers struct {
	Template string   `json:"chat_template"` // folder from which the chat template comes; "" = there is none
	Ends     []string `json:"ends"`          // tokens that end an answer

	other bool     // the template differs from the base model's
	more  []string // tokens of Ends that the base model's files do not name
}

// answering adds the chat template and the end tokens to the files of a new folder. They come from the first adapter
// whose folder has them, else from the base model. whole reports that the folder becomes a model's, not an adapter's.
func answering(b *session.Base, adapters []string, files map[string][]byte,
	whole bool) (a Answers, notes []string, err error) {
	base, err := chat.Find(b.Folder)
	if err != nil {
		return a, nil, err
	}
	w := chat.Answering{Base: b.Folder, EOS: b.Config.EOS, Vocab: b.Config.VocabSize, Tok: b.Tokenizer, Whole: whole}
	sources := base
	for _, dir := range adapters {
		own, err := ownSources(dir)
		if err != nil {
			return a, nil, err
		}
		if own == nil {
			continue
		}
		w.Stops = append(w.Stops, own.Stops...)
		switch {
		case len(own.Templates) == 0:
		case a.Template == "":
			sources, a.Template = own, dir
			if token := own.EndToken(); token != base.EndToken() {
				w.Turn = token
			}
		case !sameTemplates(own, sources):
			notes = append(notes,
				fmt.Sprintf("%s and %s were trained with different chat templates: the folder has the one of %s",
					a.Template, dir, a.Template))
		}
	}
	if a.Template == "" && len(base.Templates) > 0 {
		a.Template = b.Name
	}
	plain, tools, err := sources.Choose("")
	switch {
	case errors.Is(err, chat.ErrNoTemplate):
	case err != nil: // named templates without a default
		notes = append(notes, "the end of an answer is the base model's: "+err.Error())
	default:
		if w.Chat, err = chat.New(sources, "", b.Tokenizer, chat.DefaultOptions()); err != nil {
			w.Chat, notes = nil, append(notes, "the end of an answer is the base model's: "+err.Error())
		}
		if a.other = !sameTemplates(sources, base); a.other {
			if err := chat.Save(files, plain, tools); err != nil {
				return a, nil, err
			}
		}
	}
	if err := w.Save(files); err != nil {
		return a, nil, err
	}
	if err := keepPromptFormat(b, adapters, files); err != nil {
		return a, nil, err
	}
	if w.Chat != nil {
		if text := w.Chat.Ends().Text; text != "" {
			notes = append(notes, fmt.Sprintf("the chat template ends a turn with the text %s, which is no token of "+
				"the model, so generation_config.json cannot name it: "+
				"tell transformers generate(..., stop_strings=[%s], tokenizer=tokenizer), vLLM and llama.cpp's "+
				"server \"stop\": [%s]",
				strconv.Quote(text), strconv.Quote(text), strconv.Quote(text)))
		}
	}
	if a.Ends, err = endsOf(b, files); err != nil {
		return a, nil, err
	}
	own, err := endsOf(b, map[string][]byte{})
	if len(base.Stops) > 0 {
		own = tokenNames(b, base.Stops)
	}
	for _, name := range a.Ends {
		if !slices.Contains(own, name) {
			a.more = append(a.more, name)
		}
	}
	return a, notes, err
}

// promptFormat returns the prompt format on which the adapters were trained, else that of the model, which may be a
// merged one; nil = unknown.
func promptFormat(b *session.Base, adapters []string) (all *dataset.PromptFormat, err error) {
	if len(adapters) == 0 {
		return dataset.FindPromptFormat(b.Folder, "")
	}
	for _, dir := range adapters {
		own, err := dataset.FindPromptFormat(nil, dir)
		if err != nil {
			return nil, fmt.Errorf("adapter %s: %w", dir, err)
		}
		if own != nil {
			all = all.Join(own)
		}
	}
	return all, nil
}

// keepPromptFormat adds promptFormat's result to the files of a new folder.
func keepPromptFormat(b *session.Base, adapters []string, files map[string][]byte) error {
	p, err := promptFormat(b, adapters)
	if p == nil || err != nil {
		// it describes a merged base model, on which another adapter was trained since
		delete(files, dataset.PromptFormatFile)
		return err
	}
	files[dataset.PromptFormatFile], err = p.Bytes()
	return err
}

// ownSources returns the chat template sources of an adapter's folder, or nil if there is no folder.
func ownSources(dir string) (*chat.Sources, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, nil //nolint:nilerr // the adapter was opened before
	}
	own, err := chat.Find(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("adapter %s: %w", dir, err)
	}
	return own, nil
}

// sameTemplates reports whether the files of two folders lead to the same templates.
func sameTemplates(a, b *chat.Sources) bool {
	plain, tools, err := a.Choose("")
	plain2, tools2, err2 := b.Choose("")
	return err == nil && err2 == nil && plain.Source == plain2.Source && tools.Source == tools2.Source
}

// endsOf returns the tokens at which programs that read generation_config.json end an answer.
func endsOf(b *session.Base, files map[string][]byte) ([]string, error) {
	g, err := chat.ParseGeneration(files["generation_config.json"])
	if err != nil {
		return nil, err
	}
	ids := g.Stops
	if len(ids) == 0 {
		for _, id := range b.Config.EOS {
			ids = append(ids, int32(id))
		}
	}
	return tokenNames(b, ids), nil
}

func tokenNames(b *session.Base, ids []int32) []string {
	names := []string{}
	for _, id := range ids {
		name, ok := b.Tokenizer.Token(id)
		if !ok {
			name = strconv.Itoa(int(id))
		}
		names = append(names, name)
	}
	return names
}

func (a Answers) String() string {
	text := "the folder has no chat template"
	if a.Template != "" {
		text = "chat template of " + a.Template
	}
	if len(a.Ends) == 0 {
		return text
	}
	return text + "; an answer ends at " + strings.Join(slices.Compact(slices.Clone(a.Ends)), ", ")
}
