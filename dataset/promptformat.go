package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// PromptFormatFile is the name of the JSON file of a PromptFormat, beside an adapter's weights. Other programs ignore
// it.
const PromptFormatFile = "prompt_format.json"

// PromptChat is the kind of prompts that a chat template renders.
const PromptChat = "chat"

// maxPromptFormat bounds the file in bytes. It is far more than an escaped system message of maxSystem bytes takes.
const maxPromptFormat = 1 << 20

// PromptFormat records the prompts that an adapter was trained on, so that inference uses the same ones.
type PromptFormat struct {
	// Prompts are the kinds of prompts, sorted: PromptChat, or the name of a plain-text format, such as alpaca.
	Prompts []string `json:"prompts"`
	// Formats are the formats of the rows, sorted.
	Formats []string `json:"formats"`
	// Template names the chat template, and TemplateSHA256 is the hash of its source; "" if no row is a conversation.
	Template       string `json:"chat_template,omitempty"`
	TemplateSHA256 string `json:"chat_template_sha256,omitempty"`
	// System is the system message of every training conversation; "" if they had none or differed.
	System string `json:"system,omitempty"`
	// Separator is the text between prompt and completion in rows of the plain-text format completion.
	Separator string `json:"separator,omitempty"`
}

// PromptFormat returns the prompt format of the report's rows.
func (r *Report) PromptFormat(cfg Config) PromptFormat {
	p := PromptFormat{Template: r.Template.Name, TemplateSHA256: r.Template.SHA256}
	leaves := r.Parts
	if leaves == nil {
		leaves = []*Report{r}
	}
	for _, leaf := range leaves {
		if p.Template == "" {
			p.Template, p.TemplateSHA256 = leaf.Template.Name, leaf.Template.SHA256
		}
		for _, name := range strings.Split(leaf.Format, ", ") {
			kind := name
			if f := Formats[name]; f.Chat || f.AsChat != nil && leaf.AsChat {
				kind = PromptChat
			}
			p.Formats, p.Prompts = append(p.Formats, name), append(p.Prompts, kind)
		}
	}
	p.Formats, p.Prompts = union(p.Formats, nil), union(p.Prompts, nil)
	if slices.Contains(p.Prompts, "completion") {
		p.Separator = cfg.Separator
	}
	if r.Streamed == "" || r.Chat.System == cfg.System { // for a stream only the first rows were counted
		p.System = r.Chat.System
	}
	return p
}

// OfAnswers reports whether the rows had answers to compare or to judge, such as preference pairs.
func (p PromptFormat) OfAnswers() bool {
	return slices.ContainsFunc(p.Formats, func(name string) bool { return Formats[name].Preference })
}

// Bytes returns the content of the file.
func (p PromptFormat) Bytes() ([]byte, error) {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // tokens such as <|im_end|> stay readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("write %s: %w", PromptFormatFile, err)
	}
	return []byte(text.String()), nil
}

// FindPromptFormat reads the PromptFormat in an adapter's folder, or in the model's folder if adapterDir is empty: a
// merged model keeps its adapter's. It returns nil if there is no such file, as in folders of other programs.
func FindPromptFormat(model fs.FS, adapterDir string) (*PromptFormat, error) {
	if adapterDir != "" {
		model = os.DirFS(adapterDir)
	}
	info, err := fs.Stat(model, PromptFormatFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxPromptFormat {
		err = fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxPromptFormat)
	}
	var text []byte
	if err == nil {
		text, err = regular.ReadFS(model, PromptFormatFile)
	}
	p := &PromptFormat{}
	if err == nil {
		err = jsonerr.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf(
			"read %s: %w; it says which prompts the adapter was trained on: restore the file, or remove "+
				"it to go without", PromptFormatFile, err)
	}
	return p, nil
}

// Only reports whether all rows had prompts of one kind.
func (p *PromptFormat) Only(kind string) bool { return len(p.Prompts) == 1 && p.Prompts[0] == kind }

// Has reports whether some rows had prompts of a kind.
func (p *PromptFormat) Has(kind string) bool { return slices.Contains(p.Prompts, kind) }

// Join returns the prompt format of two adapters that are used together; p may be nil.
func (p *PromptFormat) Join(other *PromptFormat) *PromptFormat {
	if p == nil {
		return other
	}
	both := *p
	both.Prompts, both.Formats = union(p.Prompts, other.Prompts), union(p.Formats, other.Formats)
	if p.System != other.System {
		both.System = ""
	}
	if p.Separator != other.Separator {
		both.Separator = ""
	}
	return &both
}

// union returns the sorted union of two lists.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Plain reports whether all rows had plain-text prompts. It is false for rows of token ids and of segments, whose
// prompts are unknown.
func (p *PromptFormat) Plain() bool {
	return len(p.Prompts) > 0 && !slices.ContainsFunc(p.Prompts,
		func(kind string) bool { return Formats[kind].AsChat == nil && kind != "text" })
}
