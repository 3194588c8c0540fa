package dataset

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lookup returns the value of a key. If the row lacks that key, it is taken as a path of keys and list indices, such as
// instances.0.input.
func (o Object) lookup(key string) (json.RawMessage, bool) {
	if v, ok := o.value(key); ok || !strings.Contains(key, ".") {
		return v, ok
	}
	name, rest, _ := strings.Cut(key, ".")
	value, ok := o.value(name)
	for ok && rest != "" {
		name, rest, _ = strings.Cut(rest, ".")
		value, ok = inside(value, name)
	}
	return value, ok
}

// inside returns the value of a key of an object, or of an index (from 0) of a list.
func inside(value json.RawMessage, name string) (json.RawMessage, bool) {
	switch kindOf(value) {
	case "an object":
		o, err := splitObject(value)
		if err != nil {
			return nil, false
		}
		return o.value(name)
	case "a list":
		i, err := strconv.Atoi(name)
		if elements := splitList(value); err == nil && i >= 0 && i < len(elements) {
			return elements[i], true
		}
	}
	return nil, false
}

// splitList splits a valid JSON list into its elements.
func splitList(data []byte) (elements []json.RawMessage) {
	i := skipSpace(data, skipSpace(data, 0)+1) // after [
	for data[i] != ']' {
		end := skipValue(data, i)
		elements = append(elements, json.RawMessage(data[i:end]))
		if i = skipSpace(data, end); data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return elements
}

// nestedFormat returns the format whose required fields the row has if the first object of its only list of objects is
// included, and these fields in the syntax of dataset.fields.
func (o Object) nestedFormat() (name, fields string) {
	list, ok := o.onlyRows()
	if !ok {
		return "", ""
	}
	raw, _ := o.lookup(list + ".0")
	if kindOf(raw) != "an object" {
		return "", ""
	}
	inner, err := splitObject(raw)
	if err != nil {
		return "", ""
	}
	for _, format := range formatNames() {
		f, mapped := Formats[format], map[string]string{}
		top, _ := f.bind(o, nil)
		below, _ := f.bind(inner, nil)
		var parts []string
		for _, r := range f.Roles {
			if !o.Has(top[r.Name]) && inner.Has(below[r.Name]) {
				mapped[r.Name] = list + ".0." + below[r.Name]
				parts = append(parts, r.Name+": "+mapped[r.Name])
			}
		}
		own := slices.ContainsFunc(f.Roles, func(r Role) bool { return o.Has(top[r.Name]) })
		if _, missing := f.bind(o, mapped); own && missing == "" {
			return format, strings.Join(parts, ", ")
		}
	}
	return "", ""
}

// onlyRows returns the key of the only list of objects: the file is one object around its rows.
func (o Object) onlyRows() (string, bool) {
	found := ""
	for i, v := range o.values {
		if kindOf(v) != "a list" {
			continue
		}
		items := splitList(v)
		if len(items) == 0 || kindOf(items[0]) != "an object" && roleOfMessages(items[0]) == "" {
			continue
		}
		if found != "" {
			return "", false
		}
		found = o.keys[i]
	}
	return found, found != ""
}

// roleOfMessages returns the role of a list that is a conversation: messages if its first element has role and content,
// conversations if it has from and value; else "".
func roleOfMessages(value json.RawMessage) string {
	if kindOf(value) != "a list" {
		return ""
	}
	items := splitList(value)
	if len(items) == 0 || kindOf(items[0]) != "an object" {
		return ""
	}
	message, err := splitObject(items[0])
	switch {
	case err != nil:
		return ""
	case message.Has("role") && (message.Has("content") || message.Has("tool_calls")):
		return "messages"
	case message.Has("from") && message.Has("value"):
		return "conversations"
	}
	return ""
}

// conversationAdvice returns an error that says which key holds the conversation of a row that fits no format.
func (o Object) conversationAdvice() error {
	var keys []string
	role := ""
	for i, v := range o.values {
		if r := roleOfMessages(v); r != "" {
			keys, role = append(keys, o.keys[i]), r
		}
	}
	switch {
	case len(keys) == 1:
		return fmt.Errorf("the row's conversation is under the key %q: set dataset.fields to {%s: %s}", keys[0], role,
			yamlKey(keys[0]))
	case len(keys) > 1:
		return fmt.Errorf("the row has conversations under the keys %s: set dataset.fields to {%s: KEY} with the one "+
			"to train on", strings.Join(keys[:min(len(keys), 8)], ", "), role)
	case o.Has("role") && o.Has("content") || o.Has("from") && o.Has("value"):
		return fmt.Errorf("the row is one message, and a row is a whole conversation, such as {%q: [...]}: where the "+
			"file is a single one, wrap it (with jq: jq '{messages: .}' FILE)", messages.Roles[0].Name)
	}
	return nil
}

// listAdvice returns an error that says what to do with a file that is one object around its rows.
func (o Object) listAdvice() error {
	key, ok := o.onlyRows()
	if !ok {
		return nil
	}
	at := "." + key
	if plainKey.FindString(key) == "" {
		at = fmt.Sprintf("'.[%q]'", key)
	}
	return fmt.Errorf("the rows are a list under the key %q of one object: write that list alone into the file (with "+
		"jq: jq %s FILE)", key, at)
}

// plainKey matches keys that need no quotes in jq and YAML.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// yamlKey quotes a key for use as a value of dataset.fields.
func yamlKey(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}

// maxElements bounds the length of a list of objects.
const maxElements = 1 << 16

// Objects returns the list of objects of a role.
func (f Fields) Objects(role string) ([]Object, error) {
	key := f.keys[role]
	raw, _ := f.row.lookup(key)
	if kind := kindOf(raw); kind != "a list" {
		return nil, fmt.Errorf("field %q is %s, want a list of objects", key, kind)
	}
	elements := splitList(raw)
	if len(elements) > maxElements {
		return nil, fmt.Errorf("field %q has %d elements, more than %d", key, len(elements), maxElements)
	}
	objects := make([]Object, len(elements))
	for i, e := range elements {
		if kind := kindOf(e); kind != "an object" {
			return nil, fmt.Errorf("%s[%d] is %s, want an object", key, i, kind)
		}
		o, err := splitObject(e)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
		objects[i] = o
	}
	return objects, nil
}

// truth returns the boolean value of a role.
func (f Fields) truth(role string) (bool, error) {
	raw, _ := f.row.lookup(f.keys[role])
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("field %q is %s, want true or false", f.keys[role], kindOf(raw))
}
