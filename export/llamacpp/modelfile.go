package llamacpp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// maxContext is the most tokens that a Modelfile asks for by itself: more takes memory that a small machine lacks.
const maxContext = 8192

// quotes begin and end a text of several lines in a Modelfile.
const quotes = `"""`

// Modelfile is what ollama create reads (https://github.com/ollama/ollama/blob/main/docs/modelfile.mdx).
type Modelfile struct {
	From, Adapter    string // files beside it
	Template, System string // "" = Ollama's own choice, none
	Stop             []string
	Context          int // tokens
}

// String is the file's text.
func (m Modelfile) String() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "FROM ./%s\n", m.From)
	if m.Adapter != "" {
		fmt.Fprintf(&b, "ADAPTER ./%s\n", m.Adapter)
	}
	for _, part := range [][2]string{{"TEMPLATE", m.Template}, {"SYSTEM", m.System}} {
		if part[1] == "" {
			continue
		}
		if strings.Contains(part[1], quotes) {
			return "", fmt.Errorf("%s has three quotes, which a Modelfile can't hold", part[0])
		}
		fmt.Fprintf(&b, "%s \"\"\"%s\"\"\"\n", part[0], part[1])
	}
	fmt.Fprintf(&b, "PARAMETER num_ctx %d\n", m.Context)
	for _, s := range m.Stop {
		fmt.Fprintf(&b, "PARAMETER stop %s\n", strconv.Quote(s))
	}
	return b.String(), nil
}

// chatForms are chat formats as Go templates, by what people call them. A model's own template is recognised where both
// write the same of some conversations.
var chatForms = []struct{ name, template string }{
	{"ChatML",
		"{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"},
	{"Llama 3", "{{ range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n{{ .Content }}<|eot_id|>{{ " +
		"end }}<|start_header_id|>assistant<|end_header_id|>\n\n"},
	{"Gemma", "{{ $system := \"\" }}{{ range .Messages }}{{ if eq .Role \"system\" }}{{ $system = .Content }}{{ else " +
		"if eq .Role \"user\" }}<start_of_turn>user\n" +
		"{{ if $system }}{{ $system }}\n\n{{ $system = \"\" }}{{ end }}{{ .Content }}<end_of_turn>\n{{ else " +
		"}}<start_of_turn>model\n{{ .Content }}<end_of_turn>\n{{ end }}{{ end }}<start_of_turn>model\n"},
	{"Phi-3", "{{ range .Messages }}<|{{ .Role }}|>\n{{ .Content }}<|end|>\n{{ end }}<|assistant|>\n"},
	{"Phi-4", "{{ range .Messages }}<|im_start|>{{ .Role }}<|im_sep|>{{ .Content }}<|im_end|>{{ end " +
		"}}<|im_start|>assistant<|im_sep|>"},
	{"Zephyr", "{{ range .Messages }}<|{{ .Role }}|>\n{{ .Content }}</s>\n{{ end }}<|assistant|>\n"},
	{"Granite", "{{ range .Messages }}<|start_of_role|>{{ .Role }}<|end_of_role|>{{ .Content }}<|end_of_text|>\n{{ " +
		"end }}<|start_of_role|>assistant<|end_of_role|>"},
	{"Mistral", "{{ range .Messages }}{{ if eq .Role \"user\" }}[INST] {{ .Content }} [/INST]{{ else }} {{ .Content " +
		"}}</s>{{ end }}{{ end }}"},
	{"Mistral v3", "{{ range .Messages }}{{ if eq .Role \"user\" }}[INST] {{ .Content }}[/INST]{{ else }} {{ " +
		".Content }}</s>{{ end }}{{ end }}"},
	{"Llama 2", "{{ $system := \"\" }}{{ range .Messages }}{{ if eq .Role \"system\" }}{{ $system = .Content }}{{ " +
		"else if eq .Role \"user\" }}<s>[INST] " +
		"{{ if $system }}<<SYS>>\n{{ $system }}\n<</SYS>>\n\n{{ $system = \"\" }}{{ end }}{{ .Content }} [/INST]{{ " +
		"else }} {{ .Content }} </s>{{ end }}{{ end }}"},
}

// turn is a message as Ollama's templates see it.
type turn struct{ Role, Content string }

// samples are conversations that forms are compared by: the second has a system message, which some templates refuse.
var samples = [][]turn{
	{{"user", "first question"}},
	{{"system", "the rules"}, {"user", "first question"}},
	{{"user", "first question"}, {"assistant", "first answer"}, {"user", "second question"}},
}

// NewModelfile says how Ollama talks to a model: by a template in its own form where the model's is a known format,
// with the system message of training, else the one that the model's template puts in by itself, and stopping where
// answers end. The notes say what was not found.
func NewModelfile(m Model, from string) (f Modelfile, notes []string) {
	f = Modelfile{From: from, Context: min(m.Config.MaxPositions, maxContext), System: m.System}
	if strings.Contains(m.System, quotes) || strings.HasSuffix(m.System, `"`) {
		f.System = ""
		notes = append(notes, "the system message of training has three quotes or ends with one, which a Modelfile "+
			"can't hold: give it in each request")
	}
	if m.Tokenizer.OnlyNumbers() {
		return f, notes
	}
	c, err := chat.New(m.Chat, "", m.Tokenizer, chat.DefaultOptions())
	if err != nil {
		return f,
			append(notes,
				"no chat template was found, so the Modelfile has none: Ollama gives the model texts as they are")
	}
	for _, id := range c.EndOfTurn(conversation(samples[0])).IDs {
		if token, ok := m.Tokenizer.Token(id); ok && plain(token) {
			f.Stop = append(f.Stop, token)
		}
	}
	bos := ""
	if id, ok := m.Tokenizer.BOS(); ok && m.Tokenizer.AddsBOS() {
		bos, _ = m.Tokenizer.Token(id)
	}
	for _, form := range chatForms {
		if system, ok := writes(c, form.template, bos); ok {
			if f.Template = lastNewlines(form.template); f.System == "" {
				f.System = system
			}
			return f, notes
		}
	}
	return f, append(notes, "the model's chat template is none of the formats that are known in Ollama's form ("+
		formNames()+
		"), so the Modelfile has no TEMPLATE: Ollama takes one that it recognises by the template inside the GGUF "+
		"file, else write one")
}

// lastNewlines writes the newlines at the end of a template as an action, so that nothing that trims the file's texts
// takes them.
func lastNewlines(form string) string {
	rest := strings.TrimRight(form, "\n")
	if n := len(form) - len(rest); n > 0 {
		return rest + "{{ " + strconv.Quote(form[len(rest):]) + " }}"
	}
	return form
}

func formNames() string {
	var names []string
	for _, f := range chatForms {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// plain tells whether a text can stand in quotes of a Modelfile as it is.
func plain(s string) bool { return s != "" && strconv.Quote(s) == `"`+s+`"` }

func conversation(turns []turn) *chat.Conversation {
	c := &chat.Conversation{}
	for _, t := range turns {
		d := jinja.NewDict()
		d.Set("role", jinja.Str(t.Role))
		d.Set("content", jinja.Str(t.Content))
		c.Messages = append(c.Messages, chat.Message{Role: t.Role, Fields: d})
	}
	return c
}

// writes tells whether a form writes what the model's template does, and which system message that one has where none
// is given.
func writes(c *chat.Chat, form, bos string) (system string, ok bool) {
	t, err := template.New("").Parse(form)
	if err != nil {
		return "", false
	}
	own := func(turns []turn) (string, bool) {
		text, err := c.Prompt(conversation(turns))
		return strings.TrimPrefix(text, bos), err == nil
	}
	const mark = "\x00"
	text, ok := own(samples[0])
	if !ok {
		return "", false
	}
	if text != render(t, samples[0]) {
		around := render(t, append([]turn{{"system", mark}}, samples[0]...))
		before, after, found := strings.Cut(around, mark)
		if !found || !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) ||
			len(text) < len(before)+len(after) {
			return "", false
		}
		system = text[len(before) : len(text)-len(after)]
	}
	for _, turns := range samples {
		text, ok := own(turns)
		given := slices.ContainsFunc(turns, func(t turn) bool { return t.Role == "system" })
		if !ok && given {
			continue // the model's template knows no system message
		}
		if system != "" && !given {
			turns = append([]turn{{"system", system}}, turns...)
		}
		if !ok || text != render(t, turns) {
			return "", false
		}
	}
	return system, true
}

func render(t *template.Template, turns []turn) string {
	var b strings.Builder
	if err := t.Execute(&b, map[string]any{"Messages": turns}); err != nil {
		return ""
	}
	return b.String()
}
