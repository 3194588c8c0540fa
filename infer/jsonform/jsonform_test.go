package jsonform

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
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
	p, open := parse(t, person), parse(t,
		`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n","other"]}`)
	for _, c := range []struct {
		s          *Schema
		text, want string
	}{
		{Object(), `{}`, "done"}, {Object(), ` {"a":[1,-0.5e-3,{"b":null}],"c":"\u00e9\n é"}`, "done"},
		{Object(), `[`, "0"}, {Object(), `{"a":01`, "6"},
		{Object(), `{"a":1}x`, "7"}, {Object(), "{\"a\":\"\n", "6"}, {Object(), "{\"a\":\"\xff", "6"},
		{Object(), `{"a":"\ud8`, "9"}, {Object(), `{,`, "1"}, {Object(), `{"a":1,}`, "7"},
		{Object(), `{"a":1e999`, "9"}, {Object(), "{  ", "2"}, {Object(), "{\n     ", "6"}, {Object(), "\n {", "1"},
		{Object(), "{\"a\":[\n         ", "15"}, {Object(), "{\n  \"a\": [\n    1\n  ]\n}", "done"},
		{Object(), `{"a" :1`, "4"}, {Object(), strings.Repeat(`{"a":`, 64) + "{", "320"}, {Object(), `{"a":tru`,
			"more"}, {Object(), `{"a":trux`, "8"},
		{p, `{"name":"x","age":3}`, "done"}, {p, `{"name":"x"}`, "11"}, {p, `{"age":3.`, "8"},
		{p, `{"age":3,"age`, "11"}, {p, `{"agf`, "4"}, {p, `{"age":3,"name":"","kind":1}`, "done"},
		{p, `{"age":3,"name":"","kind":12}`, "done"}, {p, `{"age":3,"name":"","kind":2`, "26"},
		{p, `{"age":3,"name":"","kind":"ab"}`, "done"}, {p, `{"age":3,"name":"","tags":[]`, "27"},
		{p, `{"age":3,"name":"","tags":["a","b",`, "34"}, {p, `{"age":3,"name":"","at":null}`, "done"},
		{p, `{"age":3,"name":"","at":{}`, "25"}, {p, `{"age":3,"name":"","at":{"x":1}}`, "done"},
		{open, `{"n":1,"other":{},"x":[]}`, "done"}, {open, `{"n":1,"x`, "8"}, {open, `{"n":"`, "5"},
		{open, `{"other":1}`, "10"}, {open, `{"\u006e`, "2"}, {open, `{"other":1,"\u006e`, "12"},
		{open, `{"n":1,"n"`, "8"}, {open, `{"n":1,"other":2,"n"`, "19"},
	} {
		if got := accepts(c.s, c.text); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	for _, c := range unions {
		for text, want := range c.texts {
			if got := accepts(parse(t, c.schema), text); got != want {
				t.Errorf("%s: %s: %s, want %s", c.schema, text, got, want)
			}
		}
	}
	calls, err :=
		Call([]Tool{{"weather",
			[]byte(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}, {"time", nil}}, "arguments", true)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{`[{"name": "weather", "arguments": {"city":"x"}}]`: "done",
		`[{"name": "time", "arguments": {"a":1}}]`: "done", `[{"name": "weather", "arguments": {}`: "35",
		`[{"name": "w`: "more", `[]`: "1"} {
		if got := accepts(calls, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

const pets = `{"type":"array","items":{"oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}],"discriminator":{"propertyName":"kind"}},"$defs":{
	"Cat":{"type":"object","properties":{"kind":{"const":"cat","default":"cat"},"lives":{"type":"integer"}},"required":["lives"],"additionalProperties":false},
	"Dog":{"type":"object","properties":{"kind":{"const":"dog","default":"dog"},"name":{"type":"string"}},"required":["name"],"additionalProperties":false}}}`

var unions = []struct {
	schema string
	texts  map[string]string
}{
	{pets, map[string]string{`[{"kind":"cat","lives":9},{"name":"x","kind":"dog"}]`: "done", `[{"lives":9}`: "11",
		`[{"kind":"cat","name`: "16", `[{"name":"x","lives`: "14", `[]`: "done"}},
	{`{"$ref":"#/$defs/T","$defs":{"T":{"type":"object","properties":{"v":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null},"kids":{"type":"array","items":{"$ref":"#/$defs/T"}}},"required":["v"],"additionalProperties":false}}}`,
		map[string]string{`{"v":1,"kids":[{"v":null},{"v":-2,"kids":[]}]}`: "done", `{"v":"`: "5", `{"kids":[{}`: "10",
			strings.Repeat(`{"v":0,"kids":[`, 32) + "]": "more", strings.Repeat(`{"v":0,"kids":[`, 32) + "{": "480"}},
	{`{"type":"object","properties":{"x":{"anyOf":[{"type":"integer"},{"type":"number"},{"enum":["a","ab"]},{"type":"array","items":{"type":"integer"}},{"type":"array","items":{"type":"string"}}]}},"required":["x"],"additionalProperties":false}`,
		map[string]string{`{"x":1}`: "done", `{"x":1.5}`: "done", `{"x":"ab"}`: "done", `{"x":"abc`: "8",
			`{"x":[]}`: "done", `{"x":[1,2]}`: "done", `{"x":["a","b"]}`: "done", `{"x":[1,"`: "8", `{"x":["a",1`: "10",
			`{"x":t`: "5"}},
	{`{"type":"array","prefixItems":[{"type":"integer"},{"allOf":[{"type":"string"}]}],"items":false,"minItems":2}`,
		map[string]string{`[1,"a"]`: "done", `[1]`: "2", `["`: "1", `[1,"a",`: "6"}},
	{`{"type":"object","properties":{"a":{"enum":[[1,2],{"b":null}]},"c":false},"required":["a"]}`,
		map[string]string{`{"a":[1,2]}`: "done", `{"a":{"b":null},"d":1}`: "done", `{"a":[1,3`: "8", `{"c`: "2",
			`{"a":[1,2],"c"`: "13", `{"a":[1,2],"cc":1}`: "done"}},
	{`{"type":"object","required":["x"],"properties":{"q\"":{"type":"null"}},"additionalProperties":{"type":"integer"}}`,
		map[string]string{`{"x":"`: "5", `{"x":1,"q\"":null}`: "done", `{"q\"":1`: "7", `{"\"`: "2", `{"y`: "2",
			`{"x":1,"y":2}`: "done", `{"q\"":null,"x":1,"z":3}`: "done"}},
	{`{"type":"array","items":{"oneOf":[{"anyOf":[false,{"type":"string"}]},{"anyOf":[{"type":"null"},false]}]}}`,
		map[string]string{`["x",null]`: "done", `[1`: "1"}},
	{`{"type":"array","items":{"type":["string","null"],"nullable":true,"const":"x","enum":["y","x"]}}`,
		map[string]string{`["x"]`: "done", `[null`: "1", `["y`: "2"}},
}

// TestSchemaRefused: what is not supported is named by its place.
func TestSchemaRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"object","properties":{"a":{"pattern":"x"}}}`: "schema.properties.a.pattern: is not supported",
		`{"type":"string"}`: "want type object or array",
		`{"$ref":"#"}`:      "leads back to itself", `[]`: "want an object",
		`{"type":"object","required":["x"],"additionalProperties":false}`: `"x" is not among properties`,
		`{"type":"array","minItems":3,"maxItems":2}`:                      "minItems is 3",
		`{"type":"thing"}`: "unknown type", `{"type":"array","enum":[{}]}`: "no value of enum",
		`{"type":"object","properties":{"a":{"enum":[{}],"required":["b"]}}}`: "schema.properties.a.required: is not " +
			"supported beside lists and objects", `{"enum":[{}]}`: "want type object or array",
		`{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":{"b":{}}}`: "schema.items.$ref: there is no \"#/$defs/a\"", `{"type":"array","items":{"$ref":"http://x/y"}}`: "is not supported; a reference is",
		`{"type":"array","items":{"anyOf":[]}}`: "schema.items.anyOf: want a " +
			"list of schemas",
		`{"type":"array","items":{"anyOf":[true],"type":"null"}}`: "schema.items.type: is not " +
			"supported beside anyOf",
		`{"type":"array","items":{"oneOf":[{"type":"integer"},{"type":"number"}]}}`: "schema.items.oneOf: " +
			"schemas 0 and 1 may match the same value", `{"type":"array","items":{"allOf":[true,true]}}`: "got 2",
		`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}}`: "no finite value matches", `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}`: "leads back to itself",
		`{"anyOf":[` + strings.Repeat(`{"type":"object"},`, 64) + `true]}`: "schema.anyOf: there are 65 schemas, " +
			"more than 64",
		`{"anyOf":[{"type":"object"},{"type":"string"}]}`:                          "want type object or array",
		`{"type":"array","items":{"$id":"x","$ref":"#/$defs/a"},"$defs":{"a":{}}}`: "$id below the root",
		`{"type":"object","properties":{"a":{"format":"uri"}}}`: "schema.properties.a.format: " +
			"\"uri\" is not supported; a format is one of date, date-time, duration, email, hostname, ipv4, ipv6, " +
			"time, uuid, uuid1",
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","prefixItems":[true]}`:                 "needs JSON Schema 2020-12",
		`{"type":"array","items":{"const":1,"enum":[2]}}`:                                                           "enum lacks const",
		`{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`: "leads back to itself", `false`: "want an object", `{"type":"array","items":{"$ref":1}}`: "want a string", `{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":[]}`: "schema.$defs: want an object",
		`{"type":"object","properties":{"a":{"type":"string","enum":[1]}}}`: "no value of enum",
		`{"type":"array","items":{"format":1}}`: "schema.items.format: " +
			"want a string",
		`{"type":"array","items":{"type":["integer","null"],"format":"int64"}}`: "schema.items.format: " +
			"\"int64\" is not supported",
		`{"type":"array","items":{"type":["integer","null"],"format":"date"}}`: `schema.items.format: ` +
			`"date" applies to strings, and the type is ["integer","null"]`,
		`{"type":"array","items":{"format":"time","enum":[1,"12:00:00Z","12:00","13:00"]}}`: `schema.items.format: ` +
			`"12:00" of enum or const does not match format "time"`,
		`{"type":"array","items":{"anyOf":[{"type":"string"}],"format":"date"}}`: "schema.items.format: is not " +
			"supported beside anyOf",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestSchemaIsReadSoon: the largest schemas that are read, or refused, take no time that a server would notice.
func TestSchemaIsReadSoon(t *testing.T) {
	var values, enums, chain, wide []string
	for i := range maxLiterals {
		values = append(values, fmt.Sprint(i))
	}
	for i := range maxAlternatives {
		enums = append(enums, fmt.Sprintf(`{"enum":["%d",%s]}`, i, strings.Join(values[1:], ",")))
	}
	for i := range 2000 {
		chain = append(chain, fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"type":"null"}]}`, i, i+1))
	}
	for i := range maxAlternatives {
		wide = append(wide,
			fmt.Sprintf(
				`{"type":"object","properties":{"a":{"$ref":"#/$defs/w"},"b":{"$ref":"#/$defs/w"},"k%d":{}},"required":["a","b"]}`, i))
	}
	for name, schema := range map[string]string{
		"enums": `{"type":"array","items":{"oneOf":[` + strings.Join(enums, ",") + `]}}`,
		"chain": `{"type":"array","items":{"$ref":"#/$defs/d0"},"$defs":{` + strings.Join(chain, ",") +
			`,"d2000":{"type":"string"}}}`,
		"the same": `{"type":"array","items":{"$ref":"#/$defs/w"},"$defs":{"w":{"oneOf":[{"type":"null"},` +
			strings.Join(wide[1:], ",") + `]}}}`,
	} {
		began := time.Now()
		_, err := Parse([]byte(schema))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: %v", name, took)
		}
		if wrong := name != "chain"; wrong != (err != nil && strings.Contains(err.Error(),
			"may match the same value")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSchema: no schema breaks the parser; behind every text that it takes something can follow until the text is
// whole, and then it is JSON that the schema allows.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(person), []byte(`{"name":"x","age":3}`))
	f.Add([]byte(`{"type":["array","object"],"items":{"const":1}}`), []byte(`[1, 1]`))
	f.Add([]byte(`{"type":"object","additionalProperties":{"enum":["a",null,1.5]}}`), []byte(`{"é":"a"}`))
	for _, c := range unions {
		for text := range c.texts {
			f.Add([]byte(c.schema), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, schema, text []byte) {
		s, err := Parse(schema)
		if err != nil {
			return
		}
		a := s.Start()
		for i, c := range text {
			if canFollow(a) == 0 {
				t.Fatalf("nothing can follow %q", text[:i])
			}
			if !a.Next(c) {
				return
			}
			if !a.Done() {
				continue
			}
			if !json.Valid(text[:i+1]) {
				t.Fatalf("%q is whole and no JSON", text[:i+1])
			}
			if err := valid(schema, text[:i+1]); err != nil {
				t.Fatalf("%q: %v", text[:i+1], err)
			}
			if canFollow(a) != 0 {
				t.Fatalf("something can follow %q", text[:i+1])
			}
			return
		}
	})
}

func canFollow(a Acceptor) int {
	n := 0
	for c := range 256 {
		if b := a; b.Next(byte(c)) {
			n++
		}
	}
	return n
}
