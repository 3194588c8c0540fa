package jsonform

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func parse(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accepts tells how a text ends: whole, cut where it could go on, or refused at a byte.
func accepts(s *Schema, text string) string {
	a := s.Start()
	for i := range len(text) {
		if !a.Next(text[i]) {
			return fmt.Sprint(i)
		}
	}
	if a.Done() {
		return "done"
	}
	return "more"
}

const person = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"kind":{"enum":["a","ab",1,12,true]},
	"tags":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2},"at":{"type":["object","null"],"properties":{"x":{"type":"number"}},"required":["x"],"additionalProperties":false}},
	"required":["name","age"],"additionalProperties":false}`

func TestAccepts(t *testing.T) {
	p, open := parse(t, person), parse(t, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n","other"]}`)
	for _, c := range []struct {
		s          *Schema
		text, want string
	}{
		{Object(), `{}`, "done"}, {Object(), ` {"a":[1,-0.5e-3,{"b":null}],"c":"\u00e9\n é"}`, "done"}, {Object(), `[`, "0"}, {Object(), `{"a":01`, "6"},
		{Object(), `{"a":1}x`, "7"}, {Object(), "{\"a\":\"\n", "6"}, {Object(), "{\"a\":\"\xff", "6"}, {Object(), `{"a":"\ud8`, "9"}, {Object(), `{,`, "1"}, {Object(), `{"a":1,}`, "7"},
		{Object(), `{"a":1e999`, "9"}, {Object(), "{  ", "2"}, {Object(), "{\n     ", "6"}, {Object(), "\n {", "1"}, {Object(), "{\"a\":[\n         ", "15"}, {Object(), "{\n  \"a\": [\n    1\n  ]\n}", "done"}, {Object(), `{"a" :1`, "4"}, {Object(), strings.Repeat(`{"a":`, 64) + "{", "320"}, {Object(), `{"a":tru`, "more"}, {Object(), `{"a":trux`, "8"},
		{p, `{"name":"x","age":3}`, "done"}, {p, `{"name":"x"}`, "11"}, {p, `{"age":3.`, "8"}, {p, `{"age":3,"age`, "11"}, {p, `{"agf`, "4"}, {p, `{"age":3,"name":"","kind":1}`, "done"},
		{p, `{"age":3,"name":"","kind":12}`, "done"}, {p, `{"age":3,"name":"","kind":2`, "26"}, {p, `{"age":3,"name":"","kind":"ab"}`, "done"}, {p, `{"age":3,"name":"","tags":[]`, "27"},
		{p, `{"age":3,"name":"","tags":["a","b",`, "34"}, {p, `{"age":3,"name":"","at":null}`, "done"}, {p, `{"age":3,"name":"","at":{}`, "25"}, {p, `{"age":3,"name":"","at":{"x":1}}`, "done"},
		{open, `{"n":1,"x":[],"other":{}}`, "done"}, {open, `{"n":"`, "5"}, {open, `{"other":1}`, "10"}, {open, `{"\u006e`, "2"}, {open, `{"n":1,"n"`, "9"},
	} {
		if got := accepts(c.s, c.text); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	calls, err := Call([]Tool{{"weather", []byte(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}, {"time", nil}}, "arguments", true)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{`[{"name": "weather", "arguments": {"city":"x"}}]`: "done", `[{"name": "time", "arguments": {"a":1}}]`: "done", `[{"name": "weather", "arguments": {}`: "35", `[{"name": "w`: "more", `[]`: "1"} {
		if got := accepts(calls, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestSchemaRefused: what is not supported is named by its place.
func TestSchemaRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"object","properties":{"a":{"pattern":"x"}}}`: "schema.properties.a.pattern: is not supported", `{"type":"string"}`: "want type object or array",
		`{"$ref":"#"}`: "schema.$ref", `[]`: "want an object", `{"type":"object","required":["x"],"additionalProperties":false}`: `"x" is no property`,
		`{"type":"array","minItems":3,"maxItems":2}`: "minItems is 3", `{"type":"thing"}`: "no type", `{"type":"object","properties":{"a":{"enum":[{}]}}}`: "objects and lists",
		`{"type":"object","properties":{"a":{"type":"string","enum":[1]}}}`: "no value of enum",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzSchema: no schema breaks the parser, and what it takes ends somewhere.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(person), []byte(`{"name":"x","age":3}`))
	f.Add([]byte(`{"type":["array","object"],"items":{"const":1}}`), []byte(`[1, 1]`))
	f.Add([]byte(`{"type":"object","additionalProperties":{"enum":["a",null,1.5]}}`), []byte(`{"é":"a"}`))
	f.Fuzz(func(t *testing.T, schema, text []byte) {
		s, err := Parse(schema)
		if err != nil {
			return
		}
		a := s.Start()
		for i, c := range text {
			if !a.Next(c) {
				return
			}
			if a.Done() && !json.Valid(text[:i+1]) {
				t.Fatalf("%q is whole and no JSON", text[:i+1])
			}
		}
	})
}
