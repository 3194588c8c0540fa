package reward

import (
	"math"
	"math/big"
	"regexp"
	"strings"
)

// maxNumberText is the longest text, in bytes from its end, that Number looks for a number in.
const maxNumberText = 1 << 16

// numberText is a number as people write it: with thousands' commas, a sign, decimals, or a fraction.
var numberText = regexp.MustCompile(`[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?|[-+]?\.\d+`)

// latexFraction is LaTeX's fraction of two whole numbers.
var latexFraction = regexp.MustCompile(`\\[dt]?frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*(\d+)\s*\}`)

// Number returns the number that an answer gives: in the last \boxed{}, after the last ####, else the last number of
// the text. It reads thousands' commas, fractions (3/4, \frac{3}{4}), $ and %; a percentage is its number, 50 for 50%.
func Number(text string) (*big.Rat, bool) {
	if len(text) > maxNumberText {
		text = text[len(text)-maxNumberText:]
	}
	if inside, ok := boxed(text); ok {
		text = inside
	} else if at := strings.LastIndex(text, "####"); at >= 0 {
		text = text[at+len("####"):]
	}
	text = latexFraction.ReplaceAllString(strings.NewReplacer(`\$`, "", "$", "", `\%`, "%", `\,`, "", `\!`, "", "−", "-",
		"{,}", ",").Replace(text), "$1/$2")
	all := numberText.FindAllString(text, -1)
	if len(all) == 0 {
		return nil, false
	}
	last := strings.NewReplacer(",", "", " ", "", "\t", "", "\n", "", "+", "").Replace(all[len(all)-1])
	if len(last) > 1000 {
		return nil, false
	}
	top, bottom, fraction := strings.Cut(last, "/")
	x, ok := new(big.Rat).SetString(top)
	if !ok || !fraction {
		return x, ok
	}
	y, ok := new(big.Rat).SetString(bottom)
	if !ok || y.Sign() == 0 {
		return nil, false
	}
	return x.Quo(x, y), true
}

// boxed returns what the last \boxed{} of a text holds.
func boxed(text string) (string, bool) {
	at := strings.LastIndex(text, `\boxed{`)
	if at < 0 {
		return "", false
	}
	inside, depth := text[at+len(`\boxed{`):], 1
	for i, c := range inside {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return inside[:i], true
			}
		}
	}
	return "", false
}

// sameNumber reports whether two numbers are equal, or differ by less than a millionth of the wanted one: 0.333333 is
// one third.
func sameNumber(own, want *big.Rat) bool {
	if own.Cmp(want) == 0 {
		return true
	}
	a, _ := own.Float64()
	b, _ := want.Float64()
	return math.Abs(a-b) < 1e-6*math.Abs(b)
}
