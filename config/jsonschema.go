package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
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
	s := &jsonSchema{Description: descriptions[k.Path], Default: defaults[k.Path], Enum: k.enum(),
		Pattern: k.form().pattern}
	switch k.Kind {
	case KindSection:
		s.Type = []string{"object", "null"} // null: all keys commented out
		s.AdditionalProperties = false
		s.Properties = map[string]*jsonSchema{}
		for _, child := range k.Keys {
			s.Properties[child.Name] = schemaOf(child, descriptions, defaults, required)
			if other := child.Instead; other != "" && required[child.Path] {
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
		items := &jsonSchema{Type: "string", Enum: s.Enum}
		if k.Form == formNumbers {
			s.Type, s.Items = []string{"number", "string", "array"}, &jsonSchema{Type: []string{"number", "string"}}
			break
		}
		if s.Enum == nil {
			s.Type, s.Items = []string{"string", "array"}, items
			break
		}
		s.AnyOf, s.Enum = []*jsonSchema{items, {Type: "array", Items: items}}, nil
	case KindTable:
		s.Type = "object"
		values := &jsonSchema{Type: jsonTypes[k.Elem]}
		values.bound(k)
		s.AdditionalProperties = values
	default:
		s.Type = jsonTypes[k.Kind]
		s.bound(k)
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
func (s *jsonSchema) bound(k *Key) {
	i := k.Range
	if i == nil {
		return
	}
	switch {
	case math.IsInf(i.Low, 0):
	case i.LowOpen:
		s.ExclusiveMinimum = &i.Low
	default:
		s.Minimum = &i.Low
	}
	switch {
	case math.IsInf(i.High, 0):
	case i.HighOpen:
		s.ExclusiveMaximum = &i.High
	default:
		s.Maximum = &i.High
	}
}

// Defaults returns the values of keys that are not set, by path. Required keys and tables have none.
func Defaults() map[string]any {
	spec := train.DefaultSpec()
	q := quant.Default()
	spec.Quantization, spec.Objectives = &q, objective.Defaults()
	required, values := Required(), map[string]any{}
	add := func(k *Key, section reflect.Value) {
		if k.Kind == KindTable || k.Kind == KindRows || required[k.Path] {
			return
		}
		value := section.FieldByIndex(k.index)
		if k.Kind == KindList {
			value = value.Convert(reflect.TypeFor[[]string]())
		}
		values[k.Path] = value.Interface()
	}
	root := reflect.ValueOf(spec)
	for _, k := range Root.Leaves() {
		add(k, root)
		if k.Kind == KindRows {
			row := reflect.New(root.FieldByIndex(k.index).Type().Elem())
			keys.SetDefaults(row.Interface())
			for _, c := range k.Keys {
				add(c, row.Elem())
			}
		}
	}
	return values
}

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

// SchemaLine begins the first line of a configuration that names its schema for editors; the path of the schema
// follows.
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
	var dense, lines bytes.Buffer
	enc := json.NewEncoder(&dense)
	enc.SetEscapeHTML(false)
	err := enc.Encode(configSchema(descriptions))
	if err == nil {
		err = json.Indent(&lines, dense.Bytes(), "", "") // lines for diffs; indentation was a quarter of the file
	}
	if err != nil {
		panic(err) // plain values only
	}
	return lines.Bytes()
}
