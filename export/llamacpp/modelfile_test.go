package llamacpp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// readModelfile reads a file by Ollama's grammar: an instruction and its argument a line, which three quotes carry over
// lines.
func readModelfile(text string) (instructions [][2]string, err error) {
	for text != "" {
		name, rest, ok := strings.Cut(text, " ")
		if !ok || !strings.Contains("FROM ADAPTER TEMPLATE SYSTEM PARAMETER", name) {
			return nil, fmt.Errorf("instruction %q", name)
		}
		value, after, ok := strings.Cut(rest, "\n")
		if quoted, is := strings.CutPrefix(rest, `"""`); is {
			if value, after, ok = strings.Cut(quoted, "\"\"\"\n"); !ok {
				return nil, fmt.Errorf("%s does not end", name)
			}
		}
		if !ok {
			return nil, fmt.Errorf("the last line does not end")
		}
		instructions, text = append(instructions, [2]string{name, value}), after
	}
	return instructions, nil
}

func source(t *testing.T, text string) *chat.Sources {
	t.Helper()
	d := jinja.NewDict()
	d.Set("bos_token", jinja.Str("<s>"))
	d.Set("eos_token", jinja.Str("</s>"))
	return &chat.Sources{Templates: map[string]string{"default": text}, Tokens: d}
}

// TestModelfile: a template in Ollama's form writes what the model's own writes, and a format that is not known is
// said.
func TestModelfile(t *testing.T) {
	tok, err := tokenizer.Load(golden.StoriesDir(t))
	if err != nil {
		t.Fatal(err)
	}
	chatML := `{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\nBe ` +
		`kind<|im_end|>\n' }}{% endif %}` +
		`{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt ` +
		`%}{{ '<|im_start|>assistant\n' }}{% endif %}`
	for name, c := range map[string]struct{ jinja, form, system, note string }{
		"ChatML with a system message of its own": {jinja: chatML, form: "<|im_start|>{{ .Role }}", system: "Be kind"},
		"Zephyr": {jinja: `{% for m in messages %}<|{{ m.role }}|>` + "\n" + `{{ m.content }}{{ eos_token }}` + "\n" +
			`{% endfor %}{% if add_generation_prompt %}<|assistant|>` + "\n" + `{% endif %}`, form: "<|{{ .Role }}|>"},
		"Mistral": {jinja: `{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} ` +
			`[/INST]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% else %}{{ raise_exception('no') }}{% ` +
			`endif %}{% endfor %}`, form: "[INST] {{ .Content }} [/INST]"},
		"unknown": {jinja: `{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}{% if ` +
			`add_generation_prompt %}assistant: {% endif %}`, note: "is none of the formats that are known"},
		"none": {note: "no chat template was found"},
	} {
		m := Model{Config: model.Config{MaxPositions: 2048}, Tokenizer: tok, Chat: source(t, c.jinja)}
		if c.jinja == "" {
			m.Chat = &chat.Sources{Tokens: jinja.NewDict()}
		}
		f, notes := NewModelfile(m, "model.gguf")
		if c.note != "" {
			if len(notes) != 1 || !strings.Contains(notes[0], c.note) || f.Template != "" {
				t.Errorf("%s: notes %q, template %q", name, notes, f.Template)
			}
			continue
		}
		if len(notes) > 0 || !strings.Contains(f.Template, c.form) || f.System != c.system {
			t.Errorf("%s: template %q, system %q, notes %q", name, f.Template, f.System, notes)
			continue
		}
		text, err := f.String()
		if err != nil {
			t.Fatal(err)
		}
		read, err := readModelfile(text)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		held := map[string]string{}
		for _, i := range read {
			if i[0] == "PARAMETER" {
				key, value, _ := strings.Cut(i[1], " ")
				if i[0] = key; key == "stop" {
					if value, err = strconv.Unquote(value); err != nil {
						t.Error(err)
					}
				}
				i[1] = value
			}
			held[i[0]] = i[1]
		}
		if held["FROM"] != "./model.gguf" || held["TEMPLATE"] != f.Template || held["SYSTEM"] != c.system ||
			held["num_ctx"] != "2048" {
			t.Errorf("%s: %q", name, held)
		}
		own, err := chat.New(m.Chat, "", tok, chat.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		turns := []turn{{"user", "a"}, {"assistant", "b"}, {"user", "c {{ d }}"}}
		want, err := own.Prompt(conversation(turns))
		if err != nil {
			t.Fatal(err)
		}
		if c.system != "" {
			turns = append([]turn{{"system", c.system}}, turns...)
		}
		if got := render(template.Must(template.New("").Parse(held["TEMPLATE"])),
			turns); got != strings.TrimPrefix(want, "<s>") {
			t.Errorf("%s: Ollama writes %q, the model's template %q", name, got, want)
		}
	}
	if _, err := (Modelfile{Template: `a"""b`}).String(); err == nil {
		t.Error("three quotes in a template were taken")
	}
}
