package main

import (
	"bytes"
	"math"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
)

//go:generate go test -run ^TestReferenceIsFresh$ -update

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

func newConfigSchema(c *console) *cobra.Command {
	return &cobra.Command{
		Use:   "config-schema",
		Short: "Print the JSON schema of configurations, for editors and checkers",
		Long: "Print the JSON schema (draft 7) of configurations: every key with type, default, values and meaning.\n" +
			"An editor with a YAML language server completes and checks a configuration that begins with\n\n" +
			"  # yaml-language-server: $schema=config.schema.json",
		Example: "  trainer config-schema > config.schema.json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			return writeJSON(c.out, configSchema(descriptions))
		},
	}
}

// configSchema is the schema of a whole configuration, with what is said of each key.
func configSchema(descriptions map[string]string) *jsonSchema {
	root := schemaOf(schema, descriptions, defaultValues(), requiredKeys())
	root.Schema = "http://json-schema.org/draft-07/schema#"
	root.Title = "tierlora: configuration of a training run"
	root.Type = "object"
	return root
}

func schemaOf(k *key, descriptions map[string]string, defaults map[string]any, required map[string]bool) *jsonSchema {
	s := &jsonSchema{Description: descriptions[k.path], Default: defaults[k.path], Enum: choices[k.path], Pattern: patterns[k.path]}
	switch k.kind {
	case kindSection:
		s.Type = []string{"object", "null"} // null: all keys commented out
		s.AdditionalProperties = false
		s.Properties = map[string]*jsonSchema{}
		for _, child := range k.keys {
			s.Properties[child.name] = schemaOf(child, descriptions, defaults, required)
			if other := instead[child.path]; other != "" && required[child.path] {
				s.AnyOf = []*jsonSchema{{Required: []string{child.name}}, {Required: []string{other}}}
			} else if required[child.path] {
				s.Required = append(s.Required, child.name)
			}
		}
		if len(s.Required) > 0 || s.AnyOf != nil {
			s.Type = "object"
		}
	case kindRows:
		s.Type = "array"
		section := k.row("[]")
		s.Items = schemaOf(section, descriptions, defaults, required)
		s.Items.Type = "object"
	case kindList:
		s.Type = []string{"string", "array"}
		s.Items = &jsonSchema{Type: "string", Enum: s.Enum}
		if s.Enum != nil { // the values are those of the list's members
			s.Type, s.Enum = "array", nil
		}
	case kindTable:
		s.Type = "object"
		values := &jsonSchema{Type: jsonTypes[k.elem]}
		values.bound(k.path)
		s.AdditionalProperties = values
	default:
		s.Type = jsonTypes[k.kind]
		s.bound(k.path)
		if k.path == keyDevices {
			s.Type, s.Items = []string{"string", "integer", "array"}, &jsonSchema{Type: "integer"}
		}
	}
	return s
}

var jsonTypes = map[kind]string{
	kindText: "string", kindWhole: "integer", kindUnsigned: "integer", kindNumber: "number", kindTruth: "boolean",
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

// defaultValues are the values of keys that are not set, by path; keys that must be given and tables have none.
func defaultValues() map[string]any {
	spec := train.DefaultSpec()
	q := quant.Default()
	spec.Quantization = &q
	required, values := requiredKeys(), map[string]any{}
	for _, k := range schema.leaves() {
		if k.kind == kindTable || k.kind == kindRows || required[k.path] {
			continue
		}
		value := reflect.ValueOf(spec).FieldByIndex(k.index)
		if k.kind == kindList {
			value = value.Convert(reflect.TypeFor[[]string]())
		}
		values[k.path] = value.Interface()
	}
	return values
}

// instead names the key that may be given in place of a required one of the same section.
var instead = map[string]string{"dataset.path": "sources"}

// requiredKeys are the keys without which a configuration is refused, and the sections that hold them.
func requiredKeys() map[string]bool {
	required := map[string]bool{}
	problems := validate(train.DefaultSpec())
	rows := train.DefaultSpec()
	for _, k := range schema.leaves() {
		if k.kind == kindRows {
			setList(&rows, k.path, []map[string]any{{}})
			for _, err := range validate(rows) {
				if path := pathOf(err.Error()); strings.HasPrefix(path, k.path+"[0].") {
					required[strings.Replace(path, "[0]", "[]", 1)] = true
				}
			}
		}
	}
	for _, err := range problems {
		path := pathOf(err.Error())
		required[path] = true
		for i := strings.LastIndexByte(path, '.'); i >= 0; i = strings.LastIndexByte(path, '.') {
			path = path[:i]
			required[path] = true
		}
	}
	return required
}

// schemaText is the schema as the command prints it.
func schemaText(descriptions map[string]string) []byte {
	var b bytes.Buffer
	if err := writeJSON(&b, configSchema(descriptions)); err != nil {
		panic(err) // plain values only
	}
	return b.Bytes()
}

// schemaLine begins the first line of a configuration that names its schema for editors; the place follows.
const schemaLine = "# yaml-language-server: $schema="
