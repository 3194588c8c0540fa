package jinja

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzRender holds that no template panics or runs away, and that rendering it twice gives the same.
func FuzzRender(f *testing.F) {
	vars, cases := languageCases(f)
	for _, c := range cases {
		f.Add(c.Source)
	}
	limits := Limits{Steps: 50_000, Memory: 4 << 20, Output: 1 << 20}
	f.Fuzz(func(t *testing.T, source string) {
		defer time.AfterFunc(time.Minute, func() { panic("a template runs for a minute: " + source) }).Stop()
		tmpl, err := Compile(source)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *Error", err)
			}
			return
		}
		first, err1 := tmpl.Render(vars, Options{Now: testNow, Limits: limits})
		second, err2 := tmpl.Render(vars, Options{Now: testNow, Limits: limits})
		if (err1 == nil) != (err2 == nil) || first.Text != second.Text {
			t.Fatalf("two renderings differ: %q %v, %q %v", first.Text, err1, second.Text, err2)
		}
		if !utf8.ValidString(first.Text) {
			t.Fatalf("%q is not UTF-8", first.Text)
		}
	})
}

// FuzzJSON holds that what is read is written and read again alike.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null, true, "\u00e9\n"]}`, `[NaN, -Infinity, 1e999, 123456789012345678901]`, `"\ud83d\ude42"`, `[[[]]]`, `-0.0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := FromJSON(raw)
		if err != nil {
			return
		}
		st := &state{limits: Limits{}.withDefaults()}
		text := string(tojson(st, &[maxParams]Value{v}).(Str))
		again, err := FromJSON([]byte(text))
		if err != nil {
			t.Fatalf("%q became %q: %v", raw, text, err)
		}
		if twice := string(tojson(st, &[maxParams]Value{again}).(Str)); twice != text {
			t.Fatalf("%q became %q, then %q", raw, text, twice)
		}
	})
}
