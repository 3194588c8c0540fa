package reward

import (
	"regexp"
	"strings"
)

// statedAnswer is the rest of a line behind words that announce an answer.
var statedAnswer = regexp.MustCompile(`(?i)\banswer(?:\s+is)?\s*:?\s*([^\n]+)`)

// Math returns the answer that a text gives to a mathematical question: in the last \boxed{}, after the last ####,
// behind the last "answer is" or "Answer:", or between the last two $; else the text itself if it is short.
func Math(text string) string {
	if len(text) > maxNumberText {
		text = text[len(text)-maxNumberText:]
	}
	if inside, ok := boxed(text); ok {
		return inside
	}
	if at := strings.LastIndex(text, "####"); at >= 0 {
		return text[at+len("####"):]
	}
	if all := statedAnswer.FindAllStringSubmatch(text, -1); all != nil {
		return all[len(all)-1][1]
	}
	if parts := strings.Split(text, "$"); len(parts) > 2 {
		return parts[(len(parts)-1)/2*2-1]
	}
	if len(text) <= 100 {
		return text
	}
	return ""
}

// textGroup is LaTeX's text in a formula.
var textGroup = regexp.MustCompile(`\\(?:text|textbf|textit|mbox|mathrm|mathbf)\s*\{([^{}]*)\}`)

// thousands is a comma between groups of three digits.
var thousands = regexp.MustCompile(`(\d)(?:,|\{,\}|\\,)(\d{3})\b`)

// definition is what stands before a value that is named, such as "x =" or "f(x) =".
var definition = regexp.MustCompile(`^[A-Za-z](?:_\{?\w+\}?)?(?:\([a-z]\))?\s*=\s*([^=]+)$`)

// plainMath returns a formula without marks that only change how it looks, and without units.
func plainMath(text string) string {
	text = strings.NewReplacer("$", "", `\$`, "", `\left`, "", `\right`, "", `\!`, "", `\;`, " ", `\:`, " ", `\ `, " ",
		`\quad`, " ", `\displaystyle`, "", `\dfrac`, `\frac`, `\tfrac`, `\frac`, `^\circ`, "", `^{\circ}`, "", "°", "",
		`\%`, "", "%", "", `\lbrace`, `\{`, `\rbrace`, `\}`, `\(`, "", `\)`, "", `\[`, "", `\]`, "").Replace(text)
	for range 4 { // 1,234,567: commas overlap
		next := thousands.ReplaceAllString(text, "$1$2")
		if next == text {
			break
		}
		text = next
	}
	text = strings.ReplaceAll(text, `\,`, " ")
	if without := textGroup.ReplaceAllString(text, " "); strings.Trim(without, " .,;") != "" {
		text = without // a unit
	} else {
		text = textGroup.ReplaceAllString(text, "$1")
	}
	text = strings.TrimRight(strings.TrimSpace(text), ".;, ")
	if m := definition.FindStringSubmatch(text); m != nil {
		text = strings.TrimSpace(m[1])
	}
	return text
}

// SameMath reports whether two answers to a mathematical question are equal: the same text, expressions with the same
// values, or lists of such. Points and intervals keep their order and brackets; sets and lists without brackets don't.
func SameMath(own, want string) bool {
	a, b := plainMath(own), plainMath(want)
	return a != "" && b != "" && sameParts(a, b, 0)
}

// sameParts compares formulas, or lists of formulas.
func sameParts(a, b string, depth int) bool {
	squeeze := func(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), "")) }
	if squeeze(a) == squeeze(b) {
		return true
	}
	if len(a) > maxMath || len(b) > maxMath || depth > 3 {
		return false
	}
	x, open, closed := members(a)
	y, openB, closedB := members(b)
	if len(x) != len(y) {
		return false
	}
	if len(x) > 1 {
		if open != openB || closed != closedB {
			return false
		}
		return sameMembers(x, y, open == "" || open == `\{`, depth+1)
	}
	p, err := parseMath(a)
	if err != nil {
		return false
	}
	q, err := parseMath(b)
	return err == nil && sameExpression(p, q)
}

// sameMembers compares the members of two lists of one length, in their order or in any.
func sameMembers(x, y []string, unordered bool, depth int) bool {
	taken := make([]bool, len(y))
	for i := range x {
		found := false
		for j := range y {
			if !taken[j] && (unordered || i == j) && sameParts(x[i], y[j], depth) {
				taken[j], found = true, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// members splits a list at the commas outside of brackets, and returns the brackets around it. A text that is no list
// has one member, itself.
func members(text string) (all []string, open, closed string) {
	inner := text
	for _, pair := range [][2]string{{`\{`, `\}`}, {"(", ")"}, {"[", "]"}, {"(", "]"}, {"[", ")"}} {
		inside, begins := strings.CutPrefix(text, pair[0])
		inside, ends := strings.CutSuffix(inside, pair[1])
		if parts := splitList(inside); begins && ends && len(parts) > 1 {
			return parts, pair[0], pair[1]
		}
	}
	return splitList(inner), "", ""
}

// splitList splits a text at its commas outside of brackets; brackets that don't match, or too many members, give the
// text itself.
func splitList(text string) (all []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth < 0 {
				return []string{text}
			}
		case ',':
			if depth == 0 {
				all, from = append(all, strings.TrimSpace(text[from:i])), i+1
			}
		}
	}
	if all = append(all, strings.TrimSpace(text[from:])); depth != 0 || len(all) > maxMathParts {
		return []string{text}
	}
	return all
}
