package chat

import (
	"fmt"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/jinja"
)

// readCalls checks tool_calls and converts every call's arguments to an object. OpenAI's API and many data sets have
// them as a JSON string, which most templates would render as a string within a string. Null and an empty list mean no
// calls: the key is dropped, since templates test whether it is present.
func readCalls(m *Message) error {
	v, ok := m.Fields.Get("tool_calls")
	if !ok {
		return nil
	}
	v, err := fromText(v)
	if err != nil {
		return fmt.Errorf(".tool_calls is a string that is no JSON: %w", err)
	}
	list, ok := v.(*jinja.List)
	if _, null := v.(jinja.None); null || ok && len(list.Items) == 0 {
		m.Fields = m.Fields.Copy()
		m.Fields.Delete("tool_calls")
		return nil
	}
	if !ok {
		return fmt.Errorf(".tool_calls is %s, want a list", typeOf(v))
	}
	if m.Role != "assistant" {
		return fmt.Errorf(" has tool_calls, but its role is %s: only an assistant calls tools", m.Role)
	}
	items := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		c, ok := item.(*jinja.Dict)
		if !ok {
			return fmt.Errorf(".tool_calls[%d] is %s, want an object", i, typeOf(item))
		}
		read, err := readCall(c)
		if err != nil {
			return fmt.Errorf(".tool_calls[%d]%w", i, err)
		}
		items[i] = read
	}
	m.Fields = m.Fields.Copy()
	m.Fields.Set("tool_calls", jinja.NewList(items...))
	return nil
}

// readCall checks {function: {name, arguments}}, or {name, arguments} without the object around it.
func readCall(c *jinja.Dict) (*jinja.Dict, error) {
	inner, where := c, ""
	if f, ok := c.Get("function"); ok {
		if inner, ok = f.(*jinja.Dict); !ok {
			return nil, fmt.Errorf(".function is %s, want an object with name and arguments", typeOf(f))
		}
		where = ".function"
	}
	name, ok := inner.Get("name")
	if !ok {
		return nil, fmt.Errorf("%s has no name; it has %s", where, keyList(inner))
	}
	if s, ok := name.(jinja.Str); !ok || s == "" {
		return nil, fmt.Errorf("%s.name is %s, want a function's name", where, typeOf(name))
	}
	arguments, ok := inner.Get("arguments")
	s, isText := arguments.(jinja.Str)
	switch {
	case !ok:
		return c, nil
	case !isText:
		if _, ok := arguments.(*jinja.Dict); !ok {
			return nil, fmt.Errorf("%s.arguments is %s, want an object", where, typeOf(arguments))
		}
		return c, nil
	}
	var object jinja.Value = jinja.NewDict()
	if trimSpace(string(s)) != "" {
		var err error
		if object, err = jinja.FromJSON([]byte(s)); err != nil {
			return nil, fmt.Errorf("%s.arguments is a string that is no JSON: %w", where, err)
		}
		if _, ok := object.(*jinja.Dict); !ok {
			return nil, fmt.Errorf("%s.arguments is a string with %s, want an object", where, typeOf(object))
		}
	}
	inner = inner.Copy()
	inner.Set("arguments", object)
	if where == "" {
		return inner, nil
	}
	c = c.Copy()
	c.Set("function", inner)
	return c, nil
}

// fromText returns the value of a JSON string, null for a blank one, and any other value unchanged. CSV files and some
// other data sets have lists only as text.
func fromText(v jinja.Value) (jinja.Value, error) {
	s, ok := v.(jinja.Str)
	switch {
	case !ok:
		return v, nil
	case trimSpace(string(s)) == "":
		return jinja.None{}, nil
	}
	return jinja.FromJSON([]byte(s))
}

// callsOf reads ShareGPT's function_call as JSON: {"name", "arguments"}, or a list of them.
func callsOf(text string) (*jinja.List, error) {
	v, err := jinja.FromJSON([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("a function_call that is no JSON: %w", err)
	}
	list, ok := v.(*jinja.List)
	if !ok {
		list = jinja.NewList(v)
	}
	items := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		d, ok := item.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("a function_call that is %s, want {\"name\": …, \"arguments\": …}", typeOf(item))
		}
		if _, ok := d.Get("function"); ok {
			items[i] = d
			continue
		}
		c := jinja.NewDict()
		c.Set("type", jinja.Str("function"))
		c.Set("function", d)
		items[i] = c
	}
	return jinja.NewList(items...), nil
}

// FunctionsKey is the key of a row's tools in OpenAI's older format, in which a tool is only its function.
const FunctionsKey = "functions"

// readTools reads the tools of a row: a list of objects, or a string of such a list. The template gets them unchanged,
// except that tools under FunctionsKey are converted to the newer format.
func readTools(raw []byte, key string) (jinja.Value, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jinja.FromJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w", key, err)
	}
	if v, err = fromText(v); err != nil {
		return nil, fmt.Errorf("field %q is a string that is no JSON: %w", key, err)
	}
	if _, null := v.(jinja.None); null {
		return nil, nil
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return nil, fmt.Errorf("field %q is %s, want a list of tools", key, typeOf(v))
	}
	if len(list.Items) == 0 {
		return nil, nil // transformers gives templates None if there are no tools
	}
	tools := make([]jinja.Value, len(list.Items))
	for i, item := range list.Items {
		tool, ok := item.(*jinja.Dict)
		if text, err := fromText(item); err == nil && !ok {
			tool, ok = text.(*jinja.Dict)
		}
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s, want an object", key, i, typeOf(item))
		}
		tools[i] = tool
		if _, whole := tool.Get("function"); key == FunctionsKey && !whole {
			tools[i] = jinja.NewDict()
			tools[i].(*jinja.Dict).Set("type", jinja.Str("function"))
			tools[i].(*jinja.Dict).Set("function", tool)
		}
	}
	return jinja.NewList(tools...), nil
}

// toolName returns the name of a tool, from {function: {name}} or {name}; "" without one.
func toolName(tool jinja.Value) string {
	d, _ := tool.(*jinja.Dict)
	if d == nil {
		return ""
	}
	if f, _ := d.Get("function"); f != nil {
		if inner, ok := f.(*jinja.Dict); ok {
			d = inner
		}
	}
	name, _ := d.Get("name")
	s, _ := name.(jinja.Str)
	return string(s)
}

// checkCalls rejects tool results without a call and, before the end of a conversation, calls without a result. If no
// message has tool_calls, the calls are inside the texts, and only their order is checked.
func (c *Conversation) checkCalls() error {
	messages := c.Messages
	structured := false
	for _, m := range messages {
		structured = structured || len(m.callNames()) > 0
	}
	var pending []string // ids or names of calls whose results are still missing
	waiting, results := -1, 0
	for i, m := range messages {
		switch m.Role {
		case "tool", "function", "ipython":
			if !structured {
				if i == 0 || messages[i-1].Role == "user" || messages[i-1].Role == "system" ||
					messages[i-1].Role == "developer" {
					return fmt.Errorf("%s is a tool's result, but no assistant's message before it calls a tool",
						c.name(i))
				}
				continue
			}
			if len(pending) == 0 {
				return fmt.Errorf("%s is a tool's result, but no call is open", c.name(i))
			}
			at := 0
			if id, _ := m.Fields.Get("tool_call_id"); id != nil {
				if s, ok := id.(jinja.Str); ok && s != "" {
					if at = indexOf(pending, string(s)); at < 0 {
						if pending[0] != "" {
							return fmt.Errorf("%s.tool_call_id is %q, but no open call has that id", c.name(i),
								words.Clip(string(s), maxShown))
						}
						at = 0
					}
				}
			}
			pending = append(pending[:at:at], pending[at+1:]...)
			results++
		default:
			if len(pending) > 0 && (results == 0 || pending[0] != "") { // calls without ids may share a result
				return fmt.Errorf("%s calls %s, but no tool's result follows", c.name(waiting),
					messages[waiting].callNames()[0])
			}
			if pending = callIDs(m); len(pending) > 0 {
				waiting, results = i, 0
			}
		}
	}
	return nil
}

func callIDs(m Message) []string {
	v, _ := m.Fields.Get("tool_calls")
	list, _ := v.(*jinja.List)
	if list == nil {
		return nil
	}
	ids := make([]string, len(list.Items))
	for i, item := range list.Items {
		if d, ok := item.(*jinja.Dict); ok {
			id, _ := d.Get("id")
			s, _ := id.(jinja.Str)
			ids[i] = string(s)
		}
	}
	return ids
}

func indexOf(list []string, s string) int {
	for i, e := range list {
		if e == s {
			return i
		}
	}
	return -1
}
