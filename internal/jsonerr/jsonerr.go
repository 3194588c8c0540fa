// Package jsonerr says in plain words where JSON is wrong and what was expected there. encoding/json does the
// reading; its own words name Go's types and states of its scanner.
package jsonerr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Error is what is wrong at a place of a text.
type Error struct {
	Line, Column int // from 1, columns in characters; 0 = the place is not known
	Offset       int // bytes before the place
	Text         string
	CutOff       bool // the text ends too early
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Unmarshal is json.Unmarshal with errors of this package.
func Unmarshal(data []byte, v any) error { return Explain(data, json.Unmarshal(data, v)) }

// Strict is Unmarshal that refuses unknown fields too.
func Strict(data []byte, v any) error {
	if wrong := Check(data); wrong != nil {
		return wrong
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return Explain(data, d.Decode(v))
}

// Explain words an error that encoding/json gave about data; nil and foreign errors stay what they are.
func Explain(data []byte, err error) error {
	if err == nil {
		return nil
	}
	if wrong := Check(data); wrong != nil {
		return wrong
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		what := mismatch.Field
		if what == "" {
			what = "the value"
		}
		place := tokenBefore(data, int(mismatch.Offset))
		return at(data, place, "%s is %s, want %s", what, found(mismatch.Value), wanted(mismatch.Type))
	}
	if text, ours := strings.CutPrefix(err.Error(), "json: "); ours {
		return &Error{Text: text}
	}
	return err
}

// Unplaced drops the place from an error of this package, for JSON that is a part of a file: the caller knows a name
// for the part, and lines counted within it would mislead.
func Unplaced(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Text: e.Text, CutOff: e.CutOff}
	}
	return err
}

// at is an error at a byte of data.
func at(data []byte, offset int, format string, args ...any) *Error {
	offset = min(max(offset, 0), len(data))
	before := string(data[:offset])
	line := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		Line: strings.Count(before, "\n") + 1, Column: utf8.RuneCountInString(before[line:]) + 1,
		Offset: offset, Text: fmt.Sprintf(format, args...),
	}
}

// found words what UnmarshalTypeError.Value says of a value.
func found(value string) string {
	if number, ok := strings.CutPrefix(value, "number "); ok {
		return number
	}
	if words, ok := map[string]string{
		"number": "a number", "string": "a string", "array": "a list", "object": "an object", "bool": "true or false",
	}[value]; ok {
		return words
	}
	return value
}

// wanted words a Go type that a value should fit.
func wanted(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	switch kind := t.Kind(); kind {
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return "a number"
		}
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "something else"
}
