package jinja

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"
)

type languageCase struct {
	Source     string
	Text       *string
	Generation [][2]int
	Kind       string
}

// languageCases are templates with what Jinja2 gives, and the variables of all of them.
func languageCases(t testing.TB) (*Dict, []languageCase) {
	t.Helper()
	f, err := os.Open("testdata/language.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Scan()
	var head struct{ Vars json.RawMessage }
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
		t.Fatal(err)
	}
	vars, err := FromJSON(head.Vars)
	if err != nil {
		t.Fatal(err)
	}
	var all []languageCase
	for lines.Scan() {
		var c languageCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil || len(all) < 1000 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	return vars.(*Dict), all
}

var testNow = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

func renderSource(source string, vars *Dict) (Output, error) {
	tmpl, err := Compile(source)
	if err != nil {
		return Output{}, err
	}
	return tmpl.Render(vars, Options{Now: testNow})
}

// sameKind maps the names that differ: Python's own compiler and asserts speak there of what is found here in
// one pass.
var sameKind = map[string]string{"SyntaxError": "TemplateSyntaxError", "TemplateAssertionError": "TemplateSyntaxError",
	"AssertionError": "TemplateSyntaxError"}

// The language as Jinja2 speaks it: texts, generation spans and refusals.
func TestLanguage(t *testing.T) {
	vars, cases := languageCases(t)
	texts, kinds := 0, 0
	for _, c := range cases {
		got, err := renderSource(c.Source, vars)
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%q\ngives %q, Jinja2 refuses it: %s", c.Source, got.Text, c.Kind)
		case c.Text == nil:
			if kind := err.(*Error).Kind; kind == c.Kind || kind == sameKind[c.Kind] {
				kinds++
			}
		case err != nil:
			t.Errorf("%q\n%v, Jinja2 gives %q", c.Source, err, *c.Text)
		case got.Text != *c.Text:
			t.Errorf("%q\ngives  %q\nJinja2 %q", c.Source, got.Text, *c.Text)
		case len(got.CodePoints)+len(c.Generation) > 0 && !reflect.DeepEqual(got.CodePoints, c.Generation):
			t.Errorf("%q\nspans %v, Jinja2 %v", c.Source, got.CodePoints, c.Generation)
		default:
			texts++
		}
	}
	t.Logf("%d cases, %d texts, %d refusals with Jinja2's kind", len(cases), texts, kinds)
}
