package chat

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlora/tierlora/text/jinja"
)

// Template is a compiled chat template with its special tokens. It is safe for concurrent use.
type Template struct {
	Name   string
	source string
	jinja  *jinja.Template
	tokens *jinja.Dict
	now    time.Time
	limits jinja.Limits // limits of evaluation; zero: the evaluator's own
}

// Compile compiles a template. tokens are the special tokens by name (Sources.Tokens), and now is the time that
// strftime_now returns.
func Compile(n Named, tokens *jinja.Dict, now time.Time) (*Template, error) {
	t, err := jinja.Compile(n.Source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	return &Template{Name: n.Name, source: n.Source, jinja: t, tokens: tokens, now: now}, nil
}

// compile compiles a template of the sources with their replacement for images. The template's source stays.
func (s *Sources) compile(n Named, tokens *jinja.Dict, now time.Time) (*Template, error) {
	own := n.Source
	n.Source = s.Image.in(own)
	t, err := Compile(n, tokens, now)
	if err == nil {
		t.source = own
	}
	return t, err
}

// Text renders a conversation as transformers' apply_chat_template(tokenize=False) does.
func (t *Template) Text(c *Conversation, generationPrompt bool) (string, error) {
	messages := make([]jinja.Value, len(c.Messages))
	for i, m := range c.Messages {
		messages[i] = m.Fields
	}
	out, err := t.render(c, messages, generationPrompt)
	return out.Text, err
}

func (t *Template) render(c *Conversation, messages []jinja.Value, generationPrompt bool) (jinja.Output, error) {
	vars := jinja.NewDict()
	vars.Set("messages", jinja.NewList(messages...))
	if c.Tools != nil {
		vars.Set("tools", c.Tools)
	} else {
		vars.Set("tools", jinja.None{})
	}
	vars.Set("documents", jinja.None{})
	vars.Set("add_generation_prompt", jinja.Bool(generationPrompt))
	for _, more := range []*jinja.Dict{t.tokens, c.Vars} {
		if more == nil {
			continue
		}
		for i := range more.Len() {
			key, v := more.At(i)
			if s, ok := key.(jinja.Str); ok {
				vars.Set(string(s), v)
			}
		}
	}
	out, err := t.jinja.Render(vars, jinja.Options{Now: t.now, Limits: t.limits})
	if err != nil {
		return out, t.explain(err)
	}
	return out, nil
}

// explain distinguishes a rejection by the template (raise_exception) from a failure in it.
func (t *Template) explain(err error) error {
	var e *jinja.Error
	if errors.As(err, &e) && e.Kind == "TemplateError" {
		return fmt.Errorf("%s refuses the conversation: %s", t.Name, e.Message)
	}
	return fmt.Errorf("%s: %w", t.Name, err)
}
