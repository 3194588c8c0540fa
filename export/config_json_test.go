package export

import (
	"encoding/json"
	"testing"
)

// TestConfigKeys: a key is set, replaced and removed where it is, and the rest keeps its bytes.
func TestConfigKeys(t *testing.T) {
	for _, c := range []struct{ in, set, without string }{
		{`{}`, "{\n  \"dtype\": \"x\"\n}", `{}`},
		{`{"a": 1}`, "{\"a\": 1,\n  \"dtype\": \"x\"\n}", `{"a": 1}`},
		{`{"dtype": null, "a": 1}`, `{"dtype": "x", "a": 1}`, `{ "a": 1}`},
		{`{"a": {"dtype": 2}, "dtype" : "bfloat16"}`, `{"a": {"dtype": 2}, "dtype" : "x"}`, `{"a": {"dtype": 2}}`},
	} {
		if got, err := withKey([]byte(c.in), "dtype", []byte(`"x"`)); err != nil || string(got) != c.set {
			t.Errorf("%s: %s, %v, want %s", c.in, got, err, c.set)
		}
		if got, err := withoutKey([]byte(c.in), "dtype"); err != nil || string(got) != c.without {
			t.Errorf("%s: %s, %v, want %s", c.in, got, err, c.without)
		}
	}
	got, err := withDType([]byte(`{"torch_dtype": "float32", "text_config": {"dtype": "float32", "n": 1}}`), "bfloat16")
	if want := `{"torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16", "n": 1}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// FuzzConfigKeys: of a JSON object comes a JSON object that has the key, or not; nothing panics.
func FuzzConfigKeys(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"dtype":"x","a":[1,{"dtype":2}]}`, ` { "dtype" : { } } `, `[]`, `{"a":`, ``, `null`, `"}"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var fields map[string]json.RawMessage
		valid := json.Unmarshal(in, &fields) == nil && fields != nil
		set, err := withKey(in, "dtype", []byte(`"x"`))
		without, err2 := withoutKey(in, "dtype")
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
