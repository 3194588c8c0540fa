package serve

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/jsonform"
)

// tokens is the vocabulary of JSON answers, made upon the first request for one.
type tokens struct {
	once sync.Once
	all  *jsonform.Vocabulary
}

func (l *Library) form(s *jsonform.Schema) *jsonform.Form {
	l.tokens.once.Do(func() { l.tokens.all = infer.Vocabulary(l.Tokenizer) })
	return &jsonform.Form{Schema: s, Vocabulary: l.tokens.all}
}

// responseFormat reads response_format.
func (l *Library) responseFormat(f *fields, s *Sampling) {
	in := f.inner("response_format")
	if in == nil {
		return
	}
	var kind string
	switch in.text("type", &kind); kind {
	case "text":
	case "json_object":
		s.Form = l.form(jsonform.Object())
	case "json_schema":
		l.jsonSchema(in, s)
	default:
		in.wrong("type", "want text, json_object or json_schema")
	}
	f.done(in)
}

func (l *Library) jsonSchema(f *fields, s *Sampling) {
	in := f.inner("json_schema")
	if in == nil {
		f.wrong("json_schema", "is missing: want an object with name and schema")
		return
	}
	// they change no answer: the schema is always enforced
	for _, key := range []string{"name", "description", "strict"} {
		in.raw(key)
	}
	if schema := in.raw("schema"); schema == nil {
		in.wrong("schema", "is missing")
	} else if parsed, err := jsonform.Parse(schema); err != nil {
		in.wrong("schema", "%s", err)
	} else {
		s.Form = l.form(parsed)
	}
	f.done(in)
}

// chosen is a tool_choice that requires a call, of the function called name or of any function.
type chosen struct{ name string }

// force constrains an answer to a tool call.
func (l *Library) force(r *request, p *prompt, tools []byte, c *chosen) *Error {
	if p.calls == nil || p.calls.key == "" {
		return invalid("tool_choice", "tool_choice: only auto and none are served for %s: its chat template shows no "+
			"form of calls in JSON that is known here", r.model.Name)
	}
	if r.sampling.Form != nil {
		return invalid("response_format",
			"response_format: with a tool_choice that asks for a call, the call is the answer; leave it out")
	}
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if json.Unmarshal(tools, &list) != nil || len(list) == 0 {
		return invalid("tool_choice", "tool_choice: asks for a call, and tools names no function")
	}
	var all []jsonform.Tool
	for _, t := range list {
		if string(t.Function.Parameters) == "null" {
			t.Function.Parameters = nil
		}
		if t.Function.Name != "" && (c.name == "" || c.name == t.Function.Name) {
			all = append(all, jsonform.Tool{Name: t.Function.Name, Parameters: t.Function.Parameters})
		}
	}
	if len(all) == 0 {
		return invalid("tool_choice", "tool_choice: tools has no function %q", clip(c.name))
	}
	schema, err := jsonform.Call(all, p.calls.key, p.calls.listed)
	if err != nil {
		return invalid("tools", "%s", err)
	}
	r.sampling.Form = l.form(schema)
	p.lead = p.calls.opens
	p.IDs = append(slices.Clone(p.IDs), l.Tokenizer.IDs(p.lead, false)...)
	return nil
}
