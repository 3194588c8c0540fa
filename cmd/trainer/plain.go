package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// plainText writes control characters out, all but line breaks and tabs: names of files may hold what steers a terminal.
func plainText(s string) string {
	steers := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if steers(r) {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}
