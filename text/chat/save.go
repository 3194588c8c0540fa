package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// Names of the files in which a folder has its templates.
const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// Save adds templates to the files of a folder where Find and transformers look first: a single one in a file of its
// own, two in tokenizer_config.json.
func Save(files map[string][]byte, plain, tools Named) error {
	single := plain.Source == tools.Source
	if single && !strings.Contains(plain.Source, "\r") { // reading the file as text would change carriage returns
		files[templateFile] = []byte(plain.Source)
		return nil
	}
	config := map[string]json.RawMessage{}
	if raw, ok := files[configFile]; ok {
		if err := jsonerr.Unmarshal(raw, &config); err != nil {
			return fmt.Errorf("save the chat template: %s: %w", configFile, err)
		}
	}
	var value any = plain.Source
	if !single {
		value = []map[string]string{{"name": defaultName, "template": plain.Source},
			{"name": toolsName, "template": tools.Source}}
	}
	raw, err := encode(value)
	if err == nil {
		config["chat_template"] = raw
		raw, err = encode(config)
	}
	if err != nil {
		return fmt.Errorf("save the chat template: %w", err)
	}
	files[configFile] = raw
	delete(files, templateFile)
	return nil
}

// encode returns JSON without escapes for marks of tokens, such as <s>.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}
