package export

import (
	"bytes"
	"encoding/json"
	"errors"
)

const configFile = "config.json"

// member is where a key of a JSON object lies: name from, value [value,after).
type member struct {
	before, value, after int64
	found                bool
}

// find looks for a key of a JSON object.
func find(object []byte, key string) (m member, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return m, err
	}
	for m.before = dec.InputOffset(); dec.More(); m.before = dec.InputOffset() {
		name, err := dec.Token()
		if err != nil {
			return m, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return m, err
		}
		if name == key {
			m.after = dec.InputOffset()
			m.value, m.found = m.after-int64(len(value)), true
			return m, nil
		}
	}
	return m, nil
}

// withoutKey is a JSON object without one of its keys, byte for byte else.
func withoutKey(object []byte, key string) ([]byte, error) {
	m, err := find(object, key)
	if err != nil || !m.found {
		return object, err
	}
	after := m.after
	if !bytes.Contains(object[m.before:m.before+int64(bytes.IndexByte(object[m.before:], '"'))], []byte(",")) { // the first key takes the comma behind it
		rest := bytes.TrimLeft(object[after:], " \t\r\n")
		after = int64(len(object) - len(bytes.TrimPrefix(rest, []byte(","))))
	}
	return append(bytes.Clone(object[:m.before]), object[after:]...), nil
}

// withKey is a JSON object with a key of a value, byte for byte else; a new key is its last.
func withKey(object []byte, key string, value []byte) ([]byte, error) {
	m, err := find(object, key)
	if err != nil {
		return nil, err
	}
	if m.found {
		return append(append(bytes.Clone(object[:m.value]), value...), object[m.after:]...), nil
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

// withDType sets the type of a model's numbers where config.json says it, for the whole model and its language model.
func withDType(config []byte, name string) ([]byte, error) {
	value, said := []byte(`"`+name+`"`), false
	for _, key := range []string{"dtype", "torch_dtype"} {
		m, err := find(config, key)
		if err != nil {
			return nil, err
		}
		if !m.found {
			continue
		}
		said = true
		if config, err = withKey(config, key, value); err != nil {
			return nil, err
		}
	}
	if m, err := find(config, "text_config"); err == nil && m.found && config[m.value] == '{' {
		inner, err := withDType(config[m.value:m.after], name)
		if err != nil {
			return nil, err
		}
		if config, err = withKey(config, "text_config", bytes.Clone(inner)); err != nil {
			return nil, err
		}
	}
	if said {
		return config, nil
	}
	return withKey(config, "torch_dtype", value)
}

// WithBaseModel is an adapter_config.json that names another base model, byte for byte else.
func WithBaseModel(config []byte, name string) ([]byte, error) {
	value, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	return withKey(config, "base_model_name_or_path", value)
}
