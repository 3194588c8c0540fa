package export

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonedit"
)

const configFile = "config.json"

// withDType sets the model's type if config.json names one, for the whole model and its language model.
func withDType(config []byte, name string) ([]byte, error) {
	value, said := []byte(`"`+name+`"`), false
	for _, key := range []string{"dtype", "torch_dtype"} {
		m, err := jsonedit.Find(config, key)
		if err != nil {
			return nil, err
		}
		if !m.Found {
			continue
		}
		said = true
		if config, err = jsonedit.Set(config, key, value); err != nil {
			return nil, err
		}
	}
	if m, err := jsonedit.Find(config, "text_config"); err == nil && m.Found && config[m.Value] == '{' {
		inner, err := withDType(config[m.Value:m.After], name)
		if err != nil {
			return nil, err
		}
		if config, err = jsonedit.Set(config, "text_config", bytes.Clone(inner)); err != nil {
			return nil, err
		}
	}
	if said {
		return config, nil
	}
	return jsonedit.Set(config, "torch_dtype", value)
}

// untied says in config.json, and in the configuration of its language model, that the head has weights of its own.
func untied(config []byte) ([]byte, error) {
	if m, err := jsonedit.Find(config, "text_config"); err == nil && m.Found && config[m.Value] == '{' {
		inner, err := untied(config[m.Value:m.After])
		if err != nil {
			return nil, err
		}
		if config, err = jsonedit.Set(config, "text_config", bytes.Clone(inner)); err != nil {
			return nil, err
		}
	}
	return jsonedit.Set(config, "tie_word_embeddings", []byte("false"))
}

// WithBaseModel returns an adapter_config.json that names another base model, ORG/NAME or ORG/NAME@REVISION, and is
// otherwise unchanged. It removes an earlier revision.
func WithBaseModel(config []byte, name string) ([]byte, error) {
	name, revision, revised := strings.Cut(name, "@")
	before, err := jsonedit.Find(config, "revision")
	if err != nil {
		return nil, err
	}
	if before.Found || revised {
		value := []byte("null")
		if revised {
			if value, err = json.Marshal(revision); err != nil {
				return nil, err
			}
		}
		if config, err = jsonedit.Set(config, "revision", value); err != nil {
			return nil, err
		}
	}
	value, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	return jsonedit.Set(config, "base_model_name_or_path", value)
}
