package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
)

// jsonSchema is the part of JSON Schema draft 7 that a configuration needs. Draft 7 is what editors' YAML language
// server knows best.
type jsonSchema struct {
	Schema      string `json:"$schema,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`

	Type             any      `json:"type,omitempty"` // a name or a list of names
	Enum             []any    `json:"enum,omitempty"`
	Pattern          string   `json:"pattern,omitempty"`
	Minimum          *float64 `json:"minimum,omitempty"`
	ExclusiveMinimum *float64 `json:"exclusiveMinimum,omitempty"`
	Maximum          *float64 `json:"maximum,omitempty"`
	ExclusiveMaximum *float64 `json:"exclusiveMaximum,omitempty"`
	Default          any      `json:"default,omitempty"`

	Items                *jsonSchema            `json:"items,omitempty"`
	Required             []string               `json:"required,omitempty"`
	Properties           map[string]*jsonSchema `json:"properties,omitempty"`
	AdditionalProperties any                    `json:"additionalProperties,omitempty"` // false, or what the values are
	AnyOf                []*jsonSchema          `json:"anyOf,omitempty"`
}

// configSchema is the schema of a whole configuration, with what is said of each key.
func configSchema(descriptions map[string]string) *jsonSchema {
	root := schemaOf(Root, descriptions, Defaults(), Required())
	root.Schema = "http://json-schema.org/draft-07/schema#"
	root.Title = "tierlora: configuration of a training run"
	root.Type = "object"
	return root
}

func schemaOf(k *Key, descriptions map[string]string, defaults map[string]any, required map[string]bool) *jsonSchema {
	s := &jsonSchema{Description: descriptions[k.Path], Default: defaults[k.Path], Enum: choices[k.Path], Pattern: patterns[k.Path]}
	switch k.Kind {
	case KindSection:
		s.Type = []string{"object", "null"} // null: all keys commented out
		s.AdditionalProperties = false
		s.Properties = map[string]*jsonSchema{}
		for _, child := range k.Keys {
			s.Properties[child.Name] = schemaOf(child, descriptions, defaults, required)
			if other := instead[child.Path]; other != "" && required[child.Path] {
				s.AnyOf = []*jsonSchema{{Required: []string{child.Name}}, {Required: []string{other}}}
			} else if required[child.Path] {
				s.Required = append(s.Required, child.Name)
			}
		}
		if len(s.Required) > 0 || s.AnyOf != nil {
			s.Type = "object"
		}
	case KindRows:
		s.Type = "array"
		section := k.row("[]")
		s.Items = schemaOf(section, descriptions, defaults, required)
		s.Items.Type = "object"
	case KindList:
		s.Type = []string{"string", "array"}
		s.Items = &jsonSchema{Type: "string", Enum: s.Enum}
		if s.Enum != nil { // the values are those of the list's members
			s.Type, s.Enum = "array", nil
		}
	case KindTable:
		s.Type = "object"
		values := &jsonSchema{Type: jsonTypes[k.Elem]}
		values.bound(k.Path)
		s.AdditionalProperties = values
	default:
		s.Type = jsonTypes[k.Kind]
		s.bound(k.Path)
		if k.Path == keyDevices {
			s.Type, s.Items = []string{"string", "integer", "array"}, &jsonSchema{Type: "integer"}
		}
	}
	return s
}

var jsonTypes = map[Kind]string{
	KindText: "string", KindWhole: "integer", KindUnsigned: "integer", KindNumber: "number", KindTruth: "boolean",
}

// bound sets the limits of a number.
func (s *jsonSchema) bound(path string) {
	i, ok := limits[path]
	if !ok {
		return
	}
	if i.lowOpen {
		s.ExclusiveMinimum = &i.low
	} else {
		s.Minimum = &i.low
	}
	switch {
	case math.IsInf(i.high, 0):
	case i.highOpen:
		s.ExclusiveMaximum = &i.high
	default:
		s.Maximum = &i.high
	}
}

// Defaults returns the values of keys that are not set, by path. Required keys and tables have none.
func Defaults() map[string]any {
	spec := train.DefaultSpec()
	q := quant.Default()
	spec.Quantization = &q
	required, values := Required(), map[string]any{}
	for _, k := range Root.Leaves() {
		if k.Kind == KindTable || k.Kind == KindRows || required[k.Path] {
			continue
		}
		value := reflect.ValueOf(spec).FieldByIndex(k.index)
		if k.Kind == KindList {
			value = value.Convert(reflect.TypeFor[[]string]())
		}
		values[k.Path] = value.Interface()
	}
	return values
}

// instead names the key that may be given in place of a required one of the same section.
var instead = map[string]string{"dataset.path": "sources"}

// Required returns the keys without which a configuration is refused, and the sections that hold them.
func Required() map[string]bool {
	required := map[string]bool{}
	problems := Validate(train.DefaultSpec())
	rows := train.DefaultSpec()
	for _, k := range Root.Leaves() {
		if k.Kind == KindRows {
			setList(&rows, k.Path, []map[string]any{{}})
			for _, err := range Validate(rows) {
				if path := KeyOf(err.Error()); strings.HasPrefix(path, k.Path+"[0].") {
					required[strings.Replace(path, "[0]", "[]", 1)] = true
				}
			}
		}
	}
	for _, err := range problems {
		path := KeyOf(err.Error())
		required[path] = true
		for i := strings.LastIndexByte(path, '.'); i >= 0; i = strings.LastIndexByte(path, '.') {
			path = path[:i]
			required[path] = true
		}
	}
	return required
}

// SchemaLine begins the first line of a configuration that names its schema for editors; the path of the schema follows.
const SchemaLine = "# yaml-language-server: $schema="

// WriteJSONSchema writes the JSON schema (draft 7) of configurations.
func WriteJSONSchema(w io.Writer) error {
	_, err := w.Write(schemaText(descriptions))
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// schemaText is the schema with what is said of each key.
func schemaText(descriptions map[string]string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(configSchema(descriptions)); err != nil {
		panic(err) // plain values only
	}
	return b.Bytes()
}
