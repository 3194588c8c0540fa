package reward

import (
	"regexp"
	"strconv"
	"strings"
)

// statedChoice is a letter behind words that announce an answer, such as "the answer is (B)".
var statedChoice = regexp.MustCompile(`(?i:\banswer\b(?:\s+is\b|\s+choice\b|\s+option\b)*\s*:?)\s*(?i:option\s+)?[*\s({\[]*([A-Z])\b`)

// markedChoice is a letter in brackets.
var markedChoice = regexp.MustCompile(`[(\[]([A-Z])[)\]]`)

// leadingChoice is a letter that an answer begins with: "B", "B.", "B) Paris".
var leadingChoice = regexp.MustCompile(`^[*\s]*([A-Z])(?:[*]*[).:]|[*\s]*$)`)

// Choice returns the letter that an answer to a multiple-choice question gives: in the last \boxed{}, behind the last
// "answer is" or "Answer:", at its beginning, or the last one in brackets.
func Choice(text string) (string, bool) {
	if len(text) > maxNumberText {
		text = text[len(text)-maxNumberText:]
	}
	if inside, ok := boxed(text); ok {
		letter := strings.Trim(strings.NewReplacer(`\text`, "", `\textbf`, "", `\mathrm`, "").Replace(inside), "{}()[]. \n")
		if len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'Z' {
			return letter, true
		}
		return "", false
	}
	if all := statedChoice.FindAllStringSubmatch(text, -1); all != nil {
		return all[len(all)-1][1], true
	}
	if one := leadingChoice.FindStringSubmatch(text); one != nil {
		return one[1], true
	}
	if all := markedChoice.FindAllStringSubmatch(text, -1); all != nil {
		return all[len(all)-1][1], true
	}
	return "", false
}

// wantedChoice returns the letter that a column gives: a letter, or a number from 0 for A, 1 for B and so on.
func wantedChoice(text string) (string, bool) {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 || n > 25 {
			return "", false
		}
		return string(rune('A' + n)), true
	}
	letter := strings.ToUpper(strings.Trim(text, "()[]. "))
	if len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'Z' {
		return letter, true
	}
	return Choice(text)
}
