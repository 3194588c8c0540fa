// Package words helps messages with words: it finds the known name that is nearest to a misspelt one, quotes a word for
// a shell, and shortens long values.
package words

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Nearest is the name with the fewest edits to s, or "" when none is near. Of equally near ones it is the first.
func Nearest(s string, names []string) string { return Within(s, names, max(1, len(s)/3)) }

// Within is the nearest name that takes at most so many edits and keeps a letter of s.
func Within(s string, names []string, edits int) string {
	best, least := "", edits+1
	for _, n := range names {
		if d := EditDistance(s, n); d < least && d < max(len(s), len(n)) {
			best, least = n, d
		}
	}
	return best
}

// EditDistance returns the number of edits that turn a into b: insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment).
func EditDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Clip shortens a text of more than most bytes to at most that many, without cutting a UTF-8 character, and adds "…".
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Counted returns a number of things in words: "1 row", "2 rows".
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// Shorten cuts a text after 60 characters.
func Shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// ShellQuote writes a word so that a shell reads it as it is.
func ShellQuote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Count writes a whole number with its thousands apart: 3,331.
func Count[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(text) - 3; i > first; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
