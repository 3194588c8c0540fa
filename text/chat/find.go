package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/jinja"
)

// Sources are the templates of a model's folder and its settings for templates, found as transformers 4.57 does.
type Sources struct {
	Templates map[string]string // templates by name; a single one is called default
	Tokens    *jinja.Dict       // variables of the templates: bos_token, eos_token, …
	Image     ImageText
	Generation
}

// Generation holds the settings of generation_config.json about answers.
type Generation struct {
	Stops []int32 // tokens at which the model's authors stop
	Never []int32 // tokens that answers never contain
}

const (
	defaultName = "default"
	toolsName   = "tool_use" // name of the template for conversations with tools
)

// ErrNoTemplate means that a model's files hold no chat template.
var ErrNoTemplate = errors.New("the model's files hold no chat template (chat_template.jinja, or chat_template in " +
	"tokenizer_config.json), so a conversation has no text: name one by dataset.chat_template, a .jinja file or one " +
	"of " +
	strings.Join(BuiltIn(), ", "))

// FindFor reads the templates saved beside an adapter, which it was trained with, or else those of the model's folder.
// An empty adapterDir means no adapter.
func FindFor(model fs.FS, adapterDir string) (*Sources, error) {
	base, err := Find(model)
	if err != nil || adapterDir == "" {
		return base, err
	}
	own, err := Find(os.DirFS(adapterDir))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(own.Templates) == 0:
		return base, nil
	case err != nil:
		return nil, fmt.Errorf("adapter %s: %w", adapterDir, err)
	}
	if len(own.Stops) == 0 {
		own.Stops = base.Stops
	}
	own.Never = base.Never
	return own, nil
}

// Find reads the templates of a model's folder. A folder without one is not an error here; Choose reports it.
func Find(folder fs.FS) (*Sources, error) {
	s := &Sources{Templates: map[string]string{}, Tokens: jinja.NewDict()}
	config, err := readObject(folder, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	if err := s.findTemplates(folder, config); err != nil {
		return nil, err
	}
	if err := s.findTokens(folder, config); err != nil {
		return nil, err
	}
	s.Generation, err = FindGeneration(folder)
	return s, err
}

// findTemplates reads the templates. Template files take precedence over tokenizer_config.json; chat_template.json
// belongs to a processor.
func (s *Sources) findTemplates(folder fs.FS, config map[string]json.RawMessage) error {
	read := func(name, file string) error {
		b, err := regular.ReadFS(folder, file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s.Templates[name] = universalNewlines(string(b))
		return nil
	}
	if err := read(defaultName, "chat_template.jinja"); err != nil {
		return err
	}
	const more = "additional_chat_templates"
	entries, _ := fs.ReadDir(folder, more)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jinja"); ok {
			if err := read(name, path.Join(more, e.Name())); err != nil {
				return err
			}
		}
	}
	if len(s.Templates) > 0 {
		return nil
	}
	if err := s.takeTemplate("tokenizer_config.json", config["chat_template"]); err != nil || len(s.Templates) > 0 {
		return err
	}
	processor, err := readObject(folder, "chat_template.json")
	if err != nil {
		return err
	}
	return s.takeTemplate("chat_template.json", processor["chat_template"])
}

// takeTemplate reads a template, or a list of named ones.
func (s *Sources) takeTemplate(file string, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		s.Templates[defaultName] = text
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf("%s: chat_template is neither a template nor a list of {name, template}", file)
	}
	for _, n := range named {
		s.Templates[n.Name] = n.Template
	}
	return nil
}

// universalNewlines converts line ends as Python's open does for text files.
func universalNewlines(s string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
}

// tokenNames are the special tokens that templates can read.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
	"additional_special_tokens"}

// classTokens are the special tokens of tokenizer classes whose files do not name them.
var classTokens = map[string]map[string]string{
	"GPT2Tokenizer":       {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
	"LlamaTokenizer":      {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	"CodeLlamaTokenizer":  {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	"Qwen2Tokenizer":      {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
	"GemmaTokenizer":      {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"},
	"CohereTokenizer":     {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>"},
	"GPTNeoXTokenizer":    {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
	"PreTrainedTokenizer": {},
}

// findTokens reads the special tokens of tokenizer_config.json. special_tokens_map.json is read only if that has no
// added_tokens_decoder, and then comes first.
func (s *Sources) findTokens(folder fs.FS, config map[string]json.RawMessage) error {
	var class string
	_ = json.Unmarshal(config["tokenizer_class"], &class)
	tokens := map[string]json.RawMessage{}
	for name, text := range classTokens[strings.TrimSuffix(class, "Fast")] {
		tokens[name], _ = json.Marshal(text)
	}
	sources := []map[string]json.RawMessage{config}
	if _, ok := config["added_tokens_decoder"]; !ok {
		legacy, err := readObject(folder, "special_tokens_map.json")
		if err != nil {
			return err
		}
		sources = append(sources, legacy)
	}
	for _, from := range sources {
		for _, name := range tokenNames {
			if raw, ok := from[name]; ok {
				tokens[name] = raw
			}
		}
	}
	for _, name := range tokenNames {
		v, err := tokenValue(tokens[name])
		if err != nil {
			return fmt.Errorf("the model's %s: %w", name, err)
		}
		if v != nil {
			s.Tokens.Set(name, v)
		}
	}
	return nil
}

// tokenValue returns a token as text: a string, an AddedToken's content, or a list of them; nil without one.
func tokenValue(raw json.RawMessage) (jinja.Value, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, nil
		}
		return jinja.Str(text), nil
	}
	var added struct{ Content *string }
	if json.Unmarshal(raw, &added) == nil && added.Content != nil {
		return jinja.Str(*added.Content), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%s is neither a token nor a list of tokens", words.Clip(string(raw), maxShown))
	}
	var items []jinja.Value
	for _, e := range list {
		v, err := tokenValue(e)
		if err != nil {
			return nil, err
		}
		if v != nil {
			items = append(items, v)
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	return jinja.NewList(items...), nil
}

// FindGeneration reads a folder's generation_config.json: eos_token_id, one id or a list, and suppress_tokens, a list.
func FindGeneration(folder fs.FS) (g Generation, err error) {
	config, err := readObject(folder, generationFile)
	if err != nil {
		return g, err
	}
	return parseGeneration(config)
}

// ParseGeneration is FindGeneration for the content of the file; empty content means no settings.
func ParseGeneration(file []byte) (g Generation, err error) {
	var config map[string]json.RawMessage
	if len(file) > 0 {
		if err := jsonerr.Unmarshal(file, &config); err != nil {
			return g, fmt.Errorf("%s: %w", generationFile, err)
		}
	}
	return parseGeneration(config)
}

func parseGeneration(config map[string]json.RawMessage) (g Generation, err error) {
	const file = generationFile
	if raw := config["suppress_tokens"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &g.Never); err != nil {
			return g, fmt.Errorf("%s: suppress_tokens is %s, want a list of ids", file,
				words.Clip(string(raw), maxShown))
		}
	}
	raw := config["eos_token_id"]
	var one int32
	if len(raw) == 0 || string(raw) == "null" {
		return g, nil
	}
	if json.Unmarshal(raw, &one) == nil {
		g.Stops = []int32{one}
		return g, nil
	}
	if err := json.Unmarshal(raw, &g.Stops); err != nil {
		return g, fmt.Errorf("%s: eos_token_id is %s, want an id or a list of ids", file,
			words.Clip(string(raw), maxShown))
	}
	return g, nil
}

// readObject reads a JSON object of the folder; a missing file counts as an empty object.
func readObject(folder fs.FS, name string) (map[string]json.RawMessage, error) {
	b, err := regular.ReadFS(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b = withoutMark(b)
	var object map[string]json.RawMessage
	if err := jsonerr.Unmarshal(b, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return object, nil
}

// Choose selects templates by dataset.chat_template: the model's own (""), one of the model's named templates, a
// built-in one, or a .jinja file, which it reads. tools is the template for conversations with tools, as transformers
// chooses it.
func (s *Sources) Choose(name string) (plain, tools Named, err error) {
	own := func(n string) Named { return Named{"the model's " + n + " template", s.Templates[n]} }
	if name == "" {
		if len(s.Templates) == 0 {
			return Named{}, Named{}, ErrNoTemplate
		}
		if len(s.Templates) == 1 && s.Templates[defaultName] != "" {
			return own(defaultName), own(defaultName), nil
		}
		names := s.Names()
		if _, ok := s.Templates[defaultName]; !ok {
			return Named{}, Named{},
				fmt.Errorf("the model has the chat templates %s and none called default: name one by "+
					"dataset.chat_template", strings.Join(names, ", "))
		}
		if _, ok := s.Templates[toolsName]; ok {
			return own(defaultName), own(toolsName), nil
		}
		return own(defaultName), own(defaultName), nil
	}
	if _, ok := s.Templates[name]; ok {
		return own(name), own(name), nil
	}
	if source, ok := builtIn[name]; ok {
		n := Named{"the built-in template " + name, source}
		return n, n, nil
	}
	if !strings.HasSuffix(name, ".jinja") && !strings.ContainsAny(name, `/\`) {
		choices := append(s.Names(), BuiltIn()...)
		return Named{}, Named{}, fmt.Errorf("dataset.chat_template is %q, want one of %s, or a .jinja file", name,
			strings.Join(choices, ", "))
	}
	b, err := readTemplateFile(name)
	if err != nil {
		return Named{}, Named{}, fmt.Errorf("read dataset.chat_template: %w", err)
	}
	n := Named{name, universalNewlines(string(b))}
	return n, n, nil
}

func readTemplateFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > jinja.MaxSource {
		return nil, fmt.Errorf("%s has %d bytes, more than %d: is it a template?", name, info.Size(), jinja.MaxSource)
	}
	return regular.ReadFile(name)
}

// Fingerprint identifies everything that the sources and the chosen template decide, for a cache of tokens.
func (s *Sources) Fingerprint(name string) string {
	h := sha256.New()
	plain, tools, err := s.Choose(name)
	fmt.Fprintf(h, "%d %q %q %v %d %q", spansVersion, plain.Source, tools.Source, err != nil, s.Stops,
		DefaultDate.Format(time.DateOnly))
	if s.Tokens != nil {
		h.Write(appendValue(nil, s.Tokens))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// spansVersion is part of every fingerprint. It changes when the rules of what is trained change.
const spansVersion = 3

// Named is a template's source with its name in errors.
type Named struct{ Name, Source string }

// Names lists the templates by name.
func (s *Sources) Names() []string {
	names := make([]string, 0, len(s.Templates))
	for n := range s.Templates {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// BuiltIn lists the built-in templates, for models without one.
func BuiltIn() []string {
	names := make([]string, 0, len(builtIn))
	for n := range builtIn {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// givenEnd gives a built-in template the tokenizer's end token if the model's files name none, which is possible for
// models without a template. Other templates get only what transformers would give them.
func givenEnd(tokens *jinja.Dict, source string, tok Tokenizer) *jinja.Dict {
	ends, ok := tok.(interface{ EOS() (int32, bool) })
	if !ok || !slices.ContainsFunc(BuiltIn(), func(name string) bool { return builtIn[name] == source }) {
		return tokens
	}
	id, ok := ends.EOS()
	text, known := tok.Token(id)
	if tokens == nil {
		tokens = jinja.NewDict()
	}
	if _, named := tokens.Get("eos_token"); named || !ok || !known {
		return tokens
	}
	tokens = tokens.Copy()
	tokens.Set("eos_token", jinja.Str(text))
	return tokens
}

// builtIn are plain templates: every message between a start mark and an end mark.
var builtIn = map[string]string{
	"chatml": `{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`,
	"zephyr": `{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}`,
	"vicuna": `{% for message in messages %}{% if message.role == 'system' %}{{ message.content + '\n\n' }}` +
		`{% elif message.role == 'user' %}{{ 'USER: ' + message.content + '\n' }}` +
		`{% elif message.role == 'assistant' %}{{ 'ASSISTANT: ' + message.content + eos_token + '\n' }}` +
		`{% else %}{{ raise_exception('this template knows system, user and assistant messages, not ' + message.role) }}{% endif %}{% endfor %}` +
		`{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}`,
}
