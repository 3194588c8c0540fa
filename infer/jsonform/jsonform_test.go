package jsonform

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
		{Object(), `{"a":1e999`, "9"}, {Object(), "{" + strings.Repeat(" ", 33), "21"}, {Object(), "{\n  \"a\": [\n    1\n  ]\n}", "done"}, {Object(), `{"a" :1`, "4"}, {Object(), strings.Repeat(`{"a":`, 64) + "{", "320"}, {Object(), `{"a":tru`, "more"}, {Object(), `{"a":trux`, "8"},
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

// tokens are every byte and random pieces of JSON.
func tokens(r *rand.Rand, n int) [][]byte {
	all := make([][]byte, 256)
	for i := range all {
		all[i] = []byte{byte(i)}
	}
	const text = `{"name": "x", "age": 12, "kind": true, "tags": ["a", "é😀\n"], "at": {"x": -1.5e3}, null, false}}]],, "ab"`
	for len(all) < n {
		i := r.IntN(len(text))
		all = append(all, []byte(text[i:min(len(text), i+1+r.IntN(9))]))
	}
	return all
}

// TestRandomTokens: whatever tokens there are and however they are drawn, one can always follow, and what is whole is JSON
// that the schema allows, by another implementation of JSON Schema.
func TestRandomTokens(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := person
		if seed%3 == 0 {
			text = `{"type":"object","properties":{"a":{"type":"array","items":{"type":["boolean","number"]}}},"required":["a"]}`
		}
		s := parse(t, text)
		v := NewVocabulary(tokens(r, 256+r.IntN(300)))
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("s.json", doc); err != nil {
			t.Fatal(err)
		}
		check, err := c.Compile("s.json")
		if err != nil {
			t.Fatal(err)
		}
		a, logits := s.Start(), make([]float32, len(v.bytes))
		var out []byte
		var scratch []float32
		for range 400 {
			scratch = v.Mask(a, logits, scratch)
			var can []int32
			for id, x := range scratch {
				if allowed := v.Allowed(a, int32(id)); allowed != (x == 0) {
					t.Fatalf("seed %d: token %q behind %q: %v by itself", seed, v.bytes[id], out, allowed)
				} else if allowed {
					can = append(can, int32(id))
					if b := v.bytes[id]; len(out) > 120 && (b[0] == '"' || b[0] == '}' || b[0] == ']') { // towards an end
						can = append(can, slices.Repeat([]int32{int32(id)}, 40)...)
					}
				}
			}
			if len(can) == 0 {
				t.Fatalf("seed %d: nothing can follow %q", seed, out)
			}
			id := can[r.IntN(len(can))]
			if !v.Take(&a, id) {
				t.Fatal("refused what was allowed")
			}
			if out = append(out, v.bytes[id]...); a.Done() {
				break
			}
		}
		if !a.Done() {
			continue // cut, as by max_tokens
		}
		if !json.Valid(out) {
			t.Fatalf("seed %d: no JSON: %q", seed, out)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(out)))
		if err == nil {
			err = check.Validate(value)
		}
		if err != nil {
			t.Fatalf("seed %d: %q: %v", seed, out, err)
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

// BenchmarkMask: within a text, where most tokens fit, and before a key. TRAINER_VOCABULARY is a tokenizer.json; without it
// the tokens are made up.
func BenchmarkMask(b *testing.B) {
	all := tokens(rand.New(rand.NewPCG(1, 2)), 49152)
	if name := os.Getenv("TRAINER_VOCABULARY"); name != "" {
		text, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			b.Fatal(err)
		}
		var file struct {
			Model struct {
				Vocab map[string]int `json:"vocab"`
			} `json:"model"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			b.Fatal(err)
		}
		all = make([][]byte, len(file.Model.Vocab)+1000)
		for text, id := range file.Model.Vocab {
			all[id] = []byte(strings.ReplaceAll(text, "Ġ", " "))
		}
	}
	v := NewVocabulary(all)
	logits := make([]float32, len(all))
	for name, text := range map[string]string{"text": `{"name":"`, "key": `{"`, "value": `{"x":`} {
		a := Object().Start()
		for _, c := range []byte(text) {
			a.Next(c)
		}
		b.Run(fmt.Sprintf("%s/%d", name, len(all)), func(b *testing.B) {
			var scratch []float32
			for b.Loop() {
				scratch = v.Mask(a, logits, scratch)
			}
		})
	}
}
