package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// What Go's JSON package says reaches nobody in its own words.
func TestPlainJSON(t *testing.T) {
	type file struct {
		R      int                `json:"r"`
		Alpha  float64            `json:"alpha"`
		Names  []string           `json:"names"`
		Inner  struct{ On bool }  `json:"inner"`
		Ranks  map[string]float64 `json:"ranks"`
		Source string             `json:"source"`
	}
	var into file
	for text, want := range map[string]string{
		``:                       "the text ends too early: the file is cut short",
		`{"r": 1`:                "the text ends too early: the file is cut short",
		`{r: 1}`:                 "found 'r' where a key in double quotes is expected",
		`{"r": x}`:               "found 'x' where a value is expected",
		`{"r" 1}`:                "found '1' where : is expected",
		`{"r": 1 "a": 2}`:        `found '"' where , or } is expected`,
		`{"names": ["a" "b"]}`:   `found '"' where , or ] is expected`,
		`{} {}`:                  "found '{' after the end of the value",
		"{\"source\": \"a\nb\"}": `found '\n' within a text, where it is written as an escape such as \n`,
		`{"source": "\q"}`:       `found 'q' after a \ in a text, which is no escape of JSON`,
		`{"r": -}`:               "found '}' within a number",
		`{"r": tru}`:             "found '}' within true, false or null",
		`{"r": '1'}`:             `found '\'' where a value is expected`,
		`{"r": "8"}`:             `"r" is a text where a whole number is expected`,
		`{"r": 1.5}`:             `"r" is the number 1.5 where a whole number is expected`,
		`{"alpha": [1]}`:         `"alpha" is a list where a number is expected`,
		`{"names": "q"}`:         `"names" is a text where a list is expected`,
		`{"inner": {"On": 1}}`:   `"On" is a number where true or false is expected`,
		`{"ranks": true}`:        `"ranks" is true or false where an object is expected`,
		`{"source": {}}`:         `"source" is an object where a text is expected`,
		`[]`:                     "a list where an object is expected",
	} {
		err := json.Unmarshal([]byte(text), &into)
		if err == nil {
			t.Errorf("%s is read", text)
			continue
		}
		if got := plainJSON("read f: " + err.Error() + "; and on"); got != "read f: "+want+"; and on" {
			t.Errorf("%s: %q, want %q (%v)", text, got, want, err)
		}
		if got := plainJSON(err.Error()); strings.Contains(got, "Go ") || strings.Contains(got, "invalid character") {
			t.Errorf("%s: %q", text, got)
		}
	}
}
