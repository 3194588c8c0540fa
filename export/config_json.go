package export

import (
	"bytes"
	"encoding/json"

	"github.com/tierlora/tierlora/internal/jsonedit"
)

const configFile = "config.json"

// withDType sets the type of a model's numbers where config.json says it, for the whole model and its language model.
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

// WithBaseModel is an adapter_config.json that names another base model, byte for byte else.
func WithBaseModel(config []byte, name string) ([]byte, error) {
	value, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	return jsonedit.Set(config, "base_model_name_or_path", value)
}
