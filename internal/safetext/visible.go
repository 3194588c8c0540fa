package safetext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible writes a text so that it steers no terminal and hides nothing: control characters and those without a shape
// are escaped, a line break is shown and kept.
func Visible(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b.WriteString("\\n\n")
		case r == '\\' && i+1 < len(s) && s[i+1] == 'n':
			b.WriteString(`\\`) // a backslash and an n, not a line break
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r != ' ' && !unicode.IsPrint(r):
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// OneLine writes a text on one line: what would end the line or steer a terminal is escaped.
func OneLine(s string) string {
	return strings.ReplaceAll(Visible(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\n", " ")), "\n", " ")
}
