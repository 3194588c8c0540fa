package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und, cases.HandleFinalSigma(true)).String(s)
}

func titleRune(r rune) string {
	if r < utf8.RuneSelf {
		return string(unicode.ToUpper(r))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(r))
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return titleRune(r) + lowerAfter(s, n)
}

// lowerAfter returns lower(s) without the part for the first n bytes of s: a final sigma depends on the text before it.
func lowerAfter(s string, n int) string {
	return strings.TrimPrefix(lower(s), lower(s[:n]))
}

// isCased reports whether a letter has an upper and a lower form.
func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) ||
		unicode.Is(unicode.Other_Lowercase, r) || unicode.Is(unicode.Other_Uppercase, r)
}

func title(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isCased(r) {
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		end := i
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			if !isCased(r) {
				break
			}
			end += n
		}
		b.WriteString(capitalize(s[i:end]))
		i = end
	}
	return b.String()
}

func isAlpha(r rune) bool { return unicode.IsLetter(r) }

func isDigit(r rune) bool {
	return unicode.Is(unicode.Nd, r) || r == '²' || r == '³' || r == '¹' || r == '⁰' || r >= '⁴' && r <= '⁹' ||
		r >= '₀' && r <= '₉' || r >= '①' && r <= '⑨' || r >= '⑴' && r <= '⑼' || r >= '⒈' && r <= '⒐' || r == '⓪' ||
		r >= '⓵' && r <= '⓽' || r == '⓿' || r >= '❶' && r <= '❾' || r >= '➀' && r <= '➈' || r >= '➊' && r <= '➒'
}

// isNumeric reports whether a rune is a number in Unicode; Han numerals, which are letters, are listed individually.
func isNumeric(r rune) bool {
	return unicode.IsNumber(r) || strings.ContainsRune("㐅一七万三九二五亖亿什仟仨伍佰億兆兩六八十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零", r)
}

func isLower(s string) bool {
	found := false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Uppercase, r):
			return false
		case unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r):
			found = true
		}
	}
	return found
}

func isUpper(s string) bool {
	found := false
	for _, r := range s {
		switch {
		case unicode.IsLower(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Lowercase, r):
			return false
		case unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r):
			found = true
		}
	}
	return found
}
