package tasks

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tierlora/tierlora/dataset"
)

var placeholder = regexp.MustCompile(`\{\{\s*([\pL\pN_][\pL\pN_ .-]*?)\s*\}\}`)

// checkTemplate refuses what looks like more than {{ field }}.
func checkTemplate(text string) error {
	rest := placeholder.ReplaceAllString(text, "")
	for _, mark := range []string{"{{", "{%"} {
		if _, after, found := strings.Cut(rest, mark); found {
			return fmt.Errorf("%q: only {{ field }} is filled in, without filters and statements", mark+clip(after, 30))
		}
	}
	return nil
}

// fill writes a row's fields into a text.
func fill(text string, row dataset.Item) (string, error) {
	var b strings.Builder
	at := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		value, err := row.Text(text[m[2]:m[3]])
		if err != nil {
			return "", err
		}
		b.WriteString(text[at:m[0]])
		b.WriteString(value)
		at = m[1]
	}
	b.WriteString(text[at:])
	return b.String(), nil
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
