package chat

import (
	"slices"
	"strings"
	"sync"

	"github.com/tierlora/tierlora/text/jinja"
)

// adapt converts the conversation to the form that the template accepts: contents as strings or as lists of parts,
// arguments of calls as objects or as strings, the content beside a call as null or as an empty one. Whatever the
// template accepts in either form stays as it is.
func (c *Chat) adapt(t *Template, conv *Conversation) *Conversation {
	known := c.known[t]
	if known == nil {
		return conv
	}
	out := conv
	for i, m := range conv.Messages {
		f := m.Fields
		content, _ := f.Get("content")
		switch v := content.(type) {
		case *jinja.List:
			if known.textOnly {
				f = f.Copy()
				f.Set("content", jinja.Str(joinParts(v)))
			}
		case jinja.Str:
			if known.partsOnly {
				f = f.Copy()
				f.Set("content", asParts(string(v)))
			}
		default:
			instead := known.forNull
			if content == nil {
				instead = known.forAbsent
			}
			if instead != nil && m.has("tool_calls") {
				f = f.Copy()
				f.Set("content", instead)
			}
		}
		if known.callText && m.has("tool_calls") {
			f = callsAsText(f)
		}
		if f == m.Fields {
			continue
		}
		if out == conv {
			whole := *conv
			whole.Messages = slices.Clone(conv.Messages)
			out = &whole
		}
		out.Messages[i].Fields = f
	}
	return out
}

func joinParts(list *jinja.List) string {
	var b strings.Builder
	for _, item := range list.Items {
		if part, ok := item.(*jinja.Dict); ok {
			text, _ := part.Get("text")
			s, _ := text.(jinja.Str)
			b.WriteString(string(s))
		}
	}
	return b.String()
}

// callsAsText writes the arguments of every call as json.dumps does.
func callsAsText(f *jinja.Dict) *jinja.Dict {
	v, _ := f.Get("tool_calls")
	list, _ := v.(*jinja.List)
	if list == nil {
		return f
	}
	items := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		items[i] = item
		call, _ := item.(*jinja.Dict)
		if call == nil {
			continue
		}
		inner, in := call, ""
		if fv, _ := call.Get("function"); fv != nil {
			if d, ok := fv.(*jinja.Dict); ok {
				inner, in = d, "function"
			}
		}
		arguments, _ := inner.Get("arguments")
		if d, ok := arguments.(*jinja.Dict); ok {
			inner = inner.Copy()
			inner.Set("arguments", jinja.Str(dumps(d)))
			if items[i] = inner; in != "" {
				call = call.Copy()
				call.Set(in, inner)
				items[i] = call
			}
		}
	}
	f = f.Copy()
	f.Set("tool_calls", jinja.NewList(items...))
	return f
}

var dumpsTemplate = sync.OnceValue(func() *jinja.Template {
	t, err := jinja.Compile("{{ x | tojson }}")
	if err != nil {
		panic(err)
	}
	return t
})

// dumps is Python's json.dumps(v, ensure_ascii=False).
func dumps(v jinja.Value) string {
	vars := jinja.NewDict()
	vars.Set("x", v)
	out, err := dumpsTemplate().Render(vars, jinja.Options{})
	if err != nil {
		return ""
	}
	return out.Text
}
