package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// tokens are every byte and random pieces of JSON.
func tokens(r *rand.Rand, n int) [][]byte {
	all := make([][]byte, 256)
	for i := range all {
		all[i] = []byte{byte(i)}
	}
	const text = `{"name": "x", "age": 12, "kind": true, "tags": ["a", "é😀\n"], "at": {"x": -1.5e3}, null, ` +
		`false}}]],, "ab"`
	for len(all) < n {
		i := r.IntN(len(text))
		all = append(all, []byte(text[i:min(len(text), i+1+r.IntN(9))]))
	}
	return all
}

// randomSchema is a schema of everything that Parse reads; below the root it may be made of others and of definitions.
func randomSchema(r *rand.Rand, depth int) map[string]any {
	if depth > 0 && depth <= 3 && r.IntN(4) == 0 {
		parts := make([]any, 1+r.IntN(3))
		for i := range parts {
			parts[i] = randomSchema(r, depth+1)
		}
		switch r.IntN(6) {
		case 0:
			return map[string]any{"oneOf": parts, "title": "one"}
		case 1:
			return map[string]any{"allOf": parts[:1], "default": nil}
		case 2, 3:
			return map[string]any{"$ref": fmt.Sprintf("#/$defs/d%d", r.IntN(3)), "description": "one of three"}
		}
		return map[string]any{"anyOf": parts}
	}
	kinds := []string{"string", "integer", "number", "boolean", "null", "array", "object"}
	kind := kinds[r.IntN(len(kinds))]
	if depth == 0 {
		kind = kinds[5+r.IntN(2)]
	} else if depth > 3 {
		kind = kinds[r.IntN(5)]
	}
	if depth > 0 && r.IntN(6) == 0 {
		values := []any{"x", "xy", "é \"q\"", 1, 12, -0.5, true, false, nil, []any{1, "x"}, map[string]any{"a": 1}}
		r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		if r.IntN(4) == 0 {
			return map[string]any{"const": values[0]}
		}
		return map[string]any{"enum": values[:1+r.IntN(len(values))]}
	}
	s := map[string]any{"type": kind, "description": "about " + kind}
	if depth > 0 && r.IntN(4) == 0 {
		s["type"] = slices.Compact([]string{kind, kinds[r.IntN(5)]})
	}
	switch kind {
	case "string":
		if r.IntN(3) == 0 {
			s["format"] = slices.Sorted(maps.Keys(formats))[r.IntN(len(formats))]
		}
	case "array":
		if r.IntN(5) > 0 {
			s["items"] = randomSchema(r, depth+1)
		}
		if r.IntN(5) == 0 {
			s["prefixItems"] = []any{randomSchema(r, depth+1), randomSchema(r, depth+1)}
		}
		least := r.IntN(3)
		if r.IntN(2) == 0 {
			s["minItems"] = least
		}
		if r.IntN(2) == 0 {
			s["maxItems"] = least + r.IntN(3)
		}
	case "object":
		names, props, required := []string{"a", "ab", "abc", "name", "é", `q"`, "", "long name with spaces"},
			map[string]any{}, []string{}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names[:r.IntN(5)] {
			if props[name] = randomSchema(r, depth+1); r.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		s["properties"], s["required"] = props, required
		switch r.IntN(4) {
		case 0:
		case 1:
			s["additionalProperties"] = randomSchema(r, depth+1)
		default:
			s["additionalProperties"] = false
		}
	}
	return s
}

// TestRandomTokens: whatever tokens and schema there are and however tokens are drawn, one can always follow, those
// that the mask leaves are those that can, and what is whole is JSON that the schema allows, by another implementation
// of JSON Schema in Go, and by Python's where TRAINER_PYTHON has the package jsonschema.
func TestRandomTokens(t *testing.T) {
	python := &python{}
	refused := 0
	for seed := range uint64(2400) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := []byte(person)
		if seed%8 > 0 {
			schema := randomSchema(r, r.IntN(2))
			schema["$defs"] = map[string]any{"d0": randomSchema(r, 1), "d1": randomSchema(r, 1),
				"d2": randomSchema(r, 1)}
			text, _ = json.Marshal(schema)
		}
		s, err := Parse(text)
		if err != nil {
			known := []string{"may match the same value", "want type object or array", "leads back to itself",
				"no finite value matches"}
			if refused++; !slices.ContainsFunc(known, func(why string) bool {
				return strings.Contains(err.Error(), why)
			}) {
				t.Fatalf("seed %d: %s: %v", seed, text, err)
			}
			continue
		}
		out := answer(t, r, s, text)
		if out == nil {
			continue // cut, as by max_tokens
		}
		if err := valid(text, out); err != nil {
			t.Fatalf("seed %d: %s: %q: %v", seed, text, out, err)
		}
		python.add(text, out)
	}
	if python.answers < 1000 {
		t.Errorf("%d of 2400 answers were whole, %d schemas refused", python.answers, refused)
	}
	t.Logf("%d answers, %d schemas refused", python.answers, refused)
	t.Run("python", python.check)
}

// valid is what another implementation of JSON Schema says of an answer; nil too where it can't read the schema.
func valid(schema, answer []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("s.json", doc); err != nil {
		return nil
	}
	check, err := c.Compile("s.json")
	if err != nil {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer))
	if err != nil {
		return err
	}
	return check.Validate(value)
}

// answer is a text of random tokens, nil where it is not whole after 400.
func answer(t *testing.T, r *rand.Rand, s *Schema, schema []byte) []byte {
	t.Helper()
	v := NewVocabulary(tokens(r, 256+r.IntN(300)))
	a, logits := s.Start(), make([]float32, len(v.bytes))
	var out []byte
	var scratch []float32
	for range 400 {
		scratch = v.Mask(a, logits, scratch)
		var can []int32
		for id, x := range scratch {
			if allowed := v.Allowed(a, int32(id)); allowed != (x == 0) {
				t.Fatalf("%s: token %q behind %q: %v by itself", schema, v.bytes[id], out, allowed)
			} else if allowed {
				can = append(can, int32(id))
				if b := v.bytes[id]; len(out) > 80 && (b[0] == '"' || b[0] == '}' || b[0] == ']') { // towards an end
					can = append(can, slices.Repeat([]int32{int32(id)}, 40)...)
				}
			}
		}
		if len(can) == 0 {
			t.Fatalf("%s: nothing can follow %q", schema, out)
		}
		id := can[r.IntN(len(can))]
		if !v.Take(&a, id) {
			t.Fatal("refused what was allowed")
		}
		if out = append(out, v.bytes[id]...); a.Done() {
			return out
		}
	}
	return nil
}

// python are schemas and answers for Python's jsonschema, a JSON object a line.
type python struct {
	lines   bytes.Buffer
	answers int
}

func (p *python) add(schema, answer []byte) {
	p.answers++
	line, _ := json.Marshal(map[string]string{"schema": string(schema), "answer": string(answer)})
	p.lines.Write(append(line, '\n'))
}

const validate = `
import json, sys
from jsonschema import Draft202012Validator
formats = Draft202012Validator.FORMAT_CHECKER
for name in "date time date-time duration email hostname ipv4 ipv6 uuid".split():
    if name not in formats.checkers:
        sys.exit("no " + name)
n = 0
for line in sys.stdin.buffer:
    row = json.loads(line)
    Draft202012Validator(json.loads(row["schema"]), format_checker=formats).validate(json.loads(row["answer"]))
    n += 1
print(n)
`

func (p *python) check(t *testing.T) {
	interpreter := os.Getenv("TRAINER_PYTHON")
	if interpreter == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(interpreter, "-c", "import jsonschema, fqdn, isoduration, rfc3339_validator").Run() != nil {
		t.Skipf("%s has no jsonschema[format]", interpreter)
	}
	cmd := exec.Command(interpreter, "-c", validate)
	cmd.Stdin = &p.lines
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(p.answers) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestMaskInLongKeys: near the most bytes of a key, where tokens of plain text no longer fit whatever they are.
func TestMaskInLongKeys(t *testing.T) {
	all := tokens(rand.New(rand.NewPCG(3, 1)), 600)
	all = append(all, bytes.Repeat([]byte("a"), 40), bytes.Repeat([]byte("é"), 30))
	v := NewVocabulary(all)
	s := parse(t, `{"type":"object","properties":{"aaaa":{"type":"null"}}}`)
	for n := range maxKey + 1 {
		a := s.Start()
		for _, c := range []byte(`{"` + strings.Repeat("a", n)) {
			if !a.Next(c) {
				t.Fatalf("%d bytes of a key are refused", n)
			}
		}
		for id, x := range v.Mask(a, make([]float32, len(all)), nil) {
			if allowed := v.Allowed(a, int32(id)); allowed != (x == 0) {
				t.Fatalf("%d bytes: token %q: %v by itself", n, all[id], allowed)
			}
		}
	}
}

// BenchmarkMask: within a text, where most tokens fit, in a key and before a value. TRAINER_VOCABULARY is a
// tokenizer.json of byte-level BPE; without it the tokens are made up.
func BenchmarkMask(b *testing.B) {
	all := tokens(rand.New(rand.NewPCG(1, 2)), 49152)
	if name := os.Getenv("TRAINER_VOCABULARY"); name != "" {
		all = vocabularyOf(b, name)
	}
	v := NewVocabulary(all)
	logits := make([]float32, len(all))
	named, err := Parse([]byte(`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}}}`))
	if err != nil {
		b.Fatal(err)
	}
	mail, err := Parse([]byte(`{"type":"array","items":{"type":"string","format":"email"}}`))
	if err != nil {
		b.Fatal(err)
	}
	union := func(n int) *Schema { // objects that only their second key tells apart
		var all []any
		for i := range n {
			all = append(all, map[string]any{"type": "object", "required": []string{"name", fmt.Sprint("key", i)},
				"additionalProperties": false,
				"properties": map[string]any{"name": map[string]any{"type": "string"},
					fmt.Sprint("key", i): map[string]any{"type": "integer"}}})
		}
		text, err := json.Marshal(map[string]any{"anyOf": all})
		if err != nil {
			b.Fatal(err)
		}
		s, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name string
		s    *Schema
		text string
	}{{"union of 2", union(2), `{"name":"`}, {"union of 16", union(16), `{"name":"`}, {"union of 64", union(64),
		`{"name":"`}, {"key of 16", union(16), `{"`}, {"key of 64", union(64), `{"`}, {"email", mail, `["an`},
		{"text", Object(), `{"name":"`}, {"key", Object(), `{"`}, {"named key", named, `{"`},
		{"escape", Object(), `{"a":"\`}, {"value", Object(), `{"x":`}, {"behind", Object(), `{"x":"a"`}} {
		a := c.s.Start()
		for _, x := range []byte(c.text) {
			a.Next(x)
		}
		b.Run(fmt.Sprintf("%s/%d", c.name, len(all)), func(b *testing.B) {
			var scratch []float32
			for b.Loop() {
				scratch = v.Mask(a, logits, scratch)
			}
		})
	}
}

func vocabularyOf(b *testing.B, name string) [][]byte {
	text, err := os.ReadFile(name)
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
	all := make([][]byte, len(file.Model.Vocab)+1000)
	for text, id := range file.Model.Vocab {
		all[id] = []byte(strings.NewReplacer("Ġ", " ", "Ċ", "\n").Replace(text))
	}
	return all
}
