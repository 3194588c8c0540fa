package jsonerr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

var broken = []struct{ text, want string }{
	{"", "line 1, column 1: expected a value, found the end of the text"},
	{"\xef\xbb\xbf{}",
		"line 1, column 1: expected a value, found a byte order mark: save the file as UTF-8 without one"},
	{"{\n  \"a\": 1,\n  \"b\" 2\n}", "line 3, column 7: expected ':' behind the key, found '2'"},
	{`{"é": 1 "b": 2}`, `line 1, column 9: expected ',' or '}' behind the value, found '"'`},
	{`{"a": 1,}`, "line 1, column 9: expected a key, found '}' after a comma: remove the comma"},
	{`[1, 2, ]`, "line 1, column 8: expected a value, found ']' after a comma: remove the comma"},
	{`[1 2]`, "line 1, column 4: expected ',' or ']' behind the value, found '2'"},
	{`{'a': 1}`,
		`line 1, column 2: expected a key in double quotes, found "'": keys and strings stand in double quotes`},
	{`{a: 1}`, "line 1, column 2: expected a key in double quotes, found 'a'"},
	{`{"a": None}`, "line 1, column 7: expected a value, found None"},
	{`{"a": NaN}`, "line 1, column 7: expected a value, found NaN"},
	{"{\"a\": 1 // one\n}", "line 1, column 9: expected ',' or '}' behind the value, found '/': JSON has no comments"},
	{`{"a": tru}`, "line 1, column 7: expected a value, found tru"},
	{`{"a": 1}{"b": 2}`, "line 1, column 9: expected the end of the text, found '{' behind the value"},
	{`{"a": "b`, `line 1, column 9: expected '"' at the end of the string, found the end of the text`},
	{`{"a": `, "line 1, column 7: expected a value, found the end of the text"},
	{`{"a"`, "line 1, column 5: expected ':' behind the key, found the end of the text"},
	{`[`, "line 1, column 2: expected a value, found the end of the text"},
	{"\"a\nb\"", `line 1, column 3: a string ends before the end of its line: a line break in it is written \n`},
	{"\"a\x01b\"", `line 1, column 3: a string holds the control character 0x01: it is written \u0001`},
	{`"C:\dir"`,
		`line 1, column 4: a string holds the escape \d, which JSON does not have: a backslash itself is written \\`},
	{`"\u12g4"`, `line 1, column 6: expected four hexadecimal digits behind \u, found 'g'`},
	{`"\`, "line 1, column 3: expected the rest of the string, found the end of the text"},
	{`[007]`, "line 1, column 2: a number may not begin with 0"},
	{`-x`, "line 1, column 2: expected a digit behind '-', found 'x'"},
	{`[1.]`, "line 1, column 4: expected a digit behind the decimal point, found ']'"},
	{`[1e+]`, "line 1, column 5: expected a digit of the exponent, found ']'"},
	{"\xff", "line 1, column 1: expected a value, found the byte 0xff"},
	{strings.Repeat("[", 10001), "line 1, column 10001: the nesting is deeper than 10000 levels"},
}

func TestCheck(t *testing.T) {
	for _, c := range broken {
		err := Check([]byte(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.40q:\n got %v\nwant %s", c.text, err, c.want)
		}
		if err != nil && err.CutOff != (err.Offset == len(c.text)) {
			t.Errorf("%.40q: CutOff is %v", c.text, err.CutOff)
		}
		if err := Unmarshal([]byte(c.text), new(any)); err == nil || err.Error() != c.want {
			t.Errorf("Unmarshal %.40q:\n got %v\nwant %s", c.text, err, c.want)
		}
		if err := Strict([]byte(c.text), new(any)); err == nil || err.Error() != c.want {
			t.Errorf("Strict %.40q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

type shape struct {
	Name  string           `json:"name"`
	Size  int              `json:"size"`
	ID    int32            `json:"id"`
	Scale float64          `json:"scale"`
	On    *bool            `json:"on"`
	List  []uint8          `json:"list"`
	Map   map[string]int32 `json:"map"`
	Inner struct {
		Number json.Number `json:"number"`
	} `json:"inner"`
}

func TestTypes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`[1]`, "line 1, column 1: the value is a list, want an object"},
		{"{\n \"name\":\n  7}", "line 3, column 3: name is a number, want a string"},
		{`{"name": ["x"], "size": 1}`, "line 1, column 10: name is a list, want a string"},
		{`{"size": 1.5}`, "line 1, column 10: size is 1.5, want a whole number"},
		{`{"id": 3000000000}`, "line 1, column 8: id is 3000000000, want a whole number of 32 bits"},
		{`{"scale": "1"}`, "line 1, column 11: scale is a string, want a number"},
		{`{"on": "yes"}`, "line 1, column 8: on is a string, want true or false"},
		{`{"list": [1, -2]}`, "line 1, column 14: list is -2, want a whole number that is not negative"},
		{`{"list": {"a": 1}}`, "line 1, column 10: list is an object, want a list"},
		{`{"inner": true}`, "line 1, column 11: inner is true or false, want an object"},
		{`{"inner": {"number": {}}}`, "line 1, column 22: inner.number is an object, want a number"},
	} {
		err := Unmarshal([]byte(c.text), new(shape))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	if err := Unmarshal([]byte(`{"size": 3, "more": 1}`), new(shape)); err != nil {
		t.Error(err)
	}
	err := Strict([]byte(`{"size": 3, "more": 1}`), new(shape))
	if err == nil || err.Error() != `unknown field "more"` {
		t.Errorf("an unknown field: %v", err)
	}
	if err := Strict([]byte(" {\"size\": 3}\n"), new(shape)); err != nil {
		t.Error(err)
	}
}

func TestUnplaced(t *testing.T) {
	if err := Unplaced(Unmarshal([]byte(`[1,`), new(any))); err.Error() != "expected a value, found the end of the text" {
		t.Error(err)
	}
	foreign := errors.New("of something else")
	if Unplaced(foreign) != foreign || Explain([]byte("{}"), foreign) != foreign || Explain(nil, nil) != nil {
		t.Error("an error that is not about JSON was changed")
	}
}

// FuzzCheck: the same texts are JSON as for encoding/json, and no word of its own comes through.
func FuzzCheck(f *testing.F) {
	for _, c := range broken {
		if len(c.text) < 100 {
			f.Add([]byte(c.text))
		}
	}
	f.Add([]byte(`{"name": "a\u00e9\n", "size": -0.5e+3, "list": [[], {}, null, true, false]}`))
	f.Add([]byte(`{"size": 1.5}`))
	f.Add([]byte(`{"list": {"a": [1]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check(data)
		if (err == nil) != json.Valid(data) {
			t.Fatalf("%q: Check says %v", data, err)
		}
		if err != nil && (err.Offset > len(data) || err.Line < 1 || err.Column < 1) {
			t.Fatalf("%q: the place %+v is not in the text", data, err)
		}
		if err := Strict(data, new(shape)); err != nil {
			for _, raw := range []string{"Go ", "invalid character", "json:", "unmarshal", "\n"} {
				if strings.Contains(err.Error(), raw) && !strings.Contains(string(data), raw) {
					t.Fatalf("%q: %v", data, err)
				}
			}
		}
	})
}
