package main

import (
	"regexp"
	"strings"
)

// jsonWords are what Go's JSON package says about a file, and what that means to somebody who wrote the file.
var jsonWords = []struct {
	words *regexp.Regexp
	says  func(found []string) string
}{
	{regexp.MustCompile(`unexpected end of JSON input`), func([]string) string { return "the text ends too early: the file is cut short" }},
	{regexp.MustCompile(`invalid character ('(?:\\.|[^'\\])+'|'\\?'') (looking for beginning of value|looking for beginning of object key string|after object key:value pair|after object key|after array element|after top-level value|in string literal|in string escape code|in \\u hexadecimal character escape|in numeric literal|after decimal point in numeric literal|in exponent of numeric literal|in literal (?:true|false|null) \(expecting '.'\))`),
		func(found []string) string { return "found " + found[1] + " " + jsonPlaces(found[2]) }},
	{regexp.MustCompile(`json: cannot unmarshal ([a-z]+)( [-+0-9.eE]+)? into Go (?:struct field [^ ]*?([^. ]+)|value) of type ([^ :;,)]+)`), func(found []string) string {
		text := jsonKinds(found[1], found[2]) + " where " + goKinds(found[4]) + " is expected"
		if found[3] != "" {
			text = `"` + found[3] + `" is ` + text
		}
		return text
	}},
	{regexp.MustCompile(`json: unknown field ("[^"]*")`), func(found []string) string { return "the key " + found[1] + " is not known" }},
}

// plainJSON puts what Go's JSON package says into words about the file.
func plainJSON(text string) string {
	for _, w := range jsonWords {
		text = w.words.ReplaceAllStringFunc(text, func(found string) string { return w.says(w.words.FindStringSubmatch(found)) })
	}
	return text
}

func jsonPlaces(place string) string {
	switch {
	case place == "looking for beginning of value":
		return "where a value is expected"
	case place == "looking for beginning of object key string":
		return "where a key in double quotes is expected"
	case place == "after object key:value pair":
		return "where , or } is expected"
	case place == "after object key":
		return "where : is expected"
	case place == "after array element":
		return "where , or ] is expected"
	case place == "after top-level value":
		return "after the end of the value"
	case place == "in string literal":
		return `within a text, where it is written as an escape such as \n`
	case strings.Contains(place, "escape"):
		return `after a \ in a text, which is no escape of JSON`
	case strings.Contains(place, "numeric"):
		return "within a number"
	}
	return "within true, false or null"
}

func jsonKinds(kind, value string) string {
	switch kind {
	case "string":
		return "a text"
	case "number":
		if value != "" {
			return "the number" + value
		}
		return "a number"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	}
	return "an " + kind
}

func goKinds(t string) string {
	switch {
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "map["):
		return "an object"
	case strings.HasPrefix(strings.TrimPrefix(t, "u"), "int"):
		return "a whole number"
	case strings.HasPrefix(t, "float"):
		return "a number"
	case t == "string":
		return "a text"
	case t == "bool":
		return "true or false"
	}
	return "an object"
}
