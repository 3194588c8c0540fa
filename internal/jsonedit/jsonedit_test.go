package jsonedit

import (
	"encoding/json"
	"testing"
)

// TestKeys: a key is set, replaced and removed where it is, and the rest keeps its bytes.
func TestKeys(t *testing.T) {
	for _, c := range []struct{ in, set, without string }{
		{`{}`, "{\n  \"dtype\": \"x\"\n}", `{}`},
		{`{"a": 1}`, "{\"a\": 1,\n  \"dtype\": \"x\"\n}", `{"a": 1}`},
		{`{"dtype": null, "a": 1}`, `{"dtype": "x", "a": 1}`, `{ "a": 1}`},
		{`{"a": {"dtype": 2}, "dtype" : "bfloat16"}`, `{"a": {"dtype": 2}, "dtype" : "x"}`, `{"a": {"dtype": 2}}`},
	} {
		if got, err := Set([]byte(c.in), "dtype", []byte(`"x"`)); err != nil || string(got) != c.set {
			t.Errorf("%s: %s, %v, want %s", c.in, got, err, c.set)
		}
		if got, err := Delete([]byte(c.in), "dtype"); err != nil || string(got) != c.without {
			t.Errorf("%s: %s, %v, want %s", c.in, got, err, c.without)
		}
	}
}

// TestNoObject: what is no object is refused, whatever it holds.
func TestNoObject(t *testing.T) {
	for _, in := range []string{"", "[]", `[{}]`, "null", `"}"`, "5", `{"a"`} {
		if out, err := Set([]byte(in), "dtype", []byte("1")); err == nil {
			t.Errorf("%s becomes %s", in, out)
		}
	}
}

// FuzzKeys: of a JSON object comes a JSON object that has the key, or not; nothing panics.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"dtype":"x","a":[1,{"dtype":2}]}`, ` { "dtype" : { } } `, `[]`,
		`{"a":`, ``, `null`, `"}"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var fields map[string]json.RawMessage
		valid := json.Unmarshal(in, &fields) == nil && fields != nil
		set, err := Set(in, "dtype", []byte(`"x"`))
		without, err2 := Delete(in, "dtype")
		if !valid {
			return
		}
		var after map[string]json.RawMessage
		if err != nil || json.Unmarshal(set, &after) != nil || len(after) < len(fields) || after["dtype"] == nil {
			t.Errorf("%q becomes %q, %v", in, set, err)
		}
		if err2 != nil || json.Unmarshal(without, &after) != nil {
			t.Errorf("%q becomes %q, %v", in, without, err2)
		}
	})
}
