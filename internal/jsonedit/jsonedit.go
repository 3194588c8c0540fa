// Package jsonedit changes single keys of a JSON object and leaves all other bytes as they are.
package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Member says where a key of a JSON object lies, in bytes from the object's begin: its name starts behind Before, its
// value is [Value,After). Found is false where the object has no such key.
type Member struct {
	Before, Value, After int64
	Found                bool
}

// Find looks for a key of a JSON object.
func Find(object []byte, key string) (m Member, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	first, err := dec.Token()
	if err != nil {
		return m, err
	}
	if first != json.Delim('{') {
		return m, errors.New("it is no JSON object")
	}
	for m.Before = dec.InputOffset(); dec.More(); m.Before = dec.InputOffset() {
		name, err := dec.Token()
		if err != nil {
			return m, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return m, err
		}
		if name == key {
			m.After = dec.InputOffset()
			m.Value, m.Found = m.After-int64(len(value)), true
			return m, nil
		}
	}
	return m, nil
}

// Delete returns a JSON object without one of its keys. All other bytes stay as they are.
func Delete(object []byte, key string) ([]byte, error) {
	m, err := Find(object, key)
	if err != nil || !m.Found {
		return object, err
	}
	after := m.After
	// the first key takes the comma behind it
	if !bytes.Contains(object[m.Before:m.Before+int64(bytes.IndexByte(object[m.Before:], '"'))], []byte(",")) {
		rest := bytes.TrimLeft(object[after:], " \t\r\n")
		after = int64(len(object) - len(bytes.TrimPrefix(rest, []byte(","))))
	}
	return append(bytes.Clone(object[:m.Before]), object[after:]...), nil
}

// Set returns a JSON object in which key has a value, which must be JSON. All other bytes stay as they are; a new key
// becomes the last one.
func Set(object []byte, key string, value []byte) ([]byte, error) {
	m, err := Find(object, key)
	if err != nil {
		return nil, err
	}
	if m.Found {
		return append(append(bytes.Clone(object[:m.Value]), value...), object[m.After:]...), nil
	}
	end := bytes.LastIndexByte(object, '}')
	if end < 0 {
		return nil, errors.New("it is no JSON object")
	}
	head := bytes.TrimRight(object[:end], " \t\r\n")
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(head)
	if head[len(head)-1] != '{' {
		out = append(out, ',')
	}
	out = append(append(append(append(out, "\n  "...), name...), ": "...), value...)
	return append(append(out, '\n'), object[end:]...), nil
}
