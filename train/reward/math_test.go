package reward

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestMathEqualsSympy compares pairs of formulas as sympy does, which wrote and compared them
// (internal/golden/make_math.py).
func TestMathEqualsSympy(t *testing.T) {
	text := golden.Unpacked(t, "testdata/math.json.gz")
	var rows [][3]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) < 200 {
		t.Fatalf("%d pairs: %v", len(rows), err)
	}
	for _, row := range rows {
		a, b, equal := row[0].(string), row[1].(string), row[2].(bool)
		if SameMath(a, b) != equal || SameMath(b, a) != equal {
			_, errA := parseMath(plainMath(a))
			_, errB := parseMath(plainMath(b))
			t.Errorf("%s and %s: equal %v, for sympy %v (%v, %v)", a, b, !equal, equal, errA, errB)
		}
	}
}

// TestSameMath compares answers as people and models write them.
func TestSameMath(t *testing.T) {
	for _, c := range []struct {
		own, want string
		equal     bool
	}{
		{`\frac12`, "0.5", true}, {`\dfrac{3}{4}`, "3/4", true}, {`3\frac{1}{2}`, "7/2", true}, {`3\frac{1}{2}`, "3/2", false},
		{`2\frac{x}{3}`, `\frac{2x}{3}`, true}, {"1,234", "1234", true}, {`10{,}000`, "10000", true}, {"1,2", "12", false},
		{`\$18`, "18", true}, {`50\%`, "50", true}, {`90^\circ`, "90", true}, {`5\text{ cm}`, "5", true},
		{`\text{Evelyn}`, "evelyn", true}, {`\text{Evelyn}`, `\text{Briana}`, false}, {"x = 5", "5", true}, {"5", "x=5", true},
		{"(1, 2)", "(1,2)", true}, {"(1, 2)", "(2,1)", false}, {`\left(3, \frac{\pi}{2}\right)`, `(3,\pi/2)`, true},
		{"[0, 1)", "[0,1)", true}, {"[0, 1)", "[0,1]", false}, {"1, -2", "-2,1", true}, {`\{1, 2, 2\}`, `\{2, 1, 1\}`, false},
		{"(x+1)^2", "x^2+2x+1", true}, {"x^2+2x", "x(x+2)", true}, {"x^2+2x", "x^2+3x", false}, {"2(x)", "2x", true},
		{`\sqrt[3]{8}`, "2", true}, {`\sqrt8`, `2\sqrt{2}`, true}, {`4\sqrt{13}`, `\sqrt{208}`, true}, {"sqrt(2)/2", `\frac{1}{\sqrt2}`, true},
		{`\sin^2 x + \cos^2 x`, "1", true}, {`\sin 2x`, `2 \sin x \cos x`, true}, {`\log_2 8`, "3", true}, {"|-3|", "3", true},
		{"5!", "120", true}, {"2^{-1}", "0.5", true}, {`\pi r^2`, `r^2 \pi`, true}, {"a_1 + a_2", "a_2+a_1", true}, {"a_1", "a_2", false},
		{"-\\infty", "-\\infty", true}, {"0.333333", `\frac13`, true}, {"0.33", `\frac13`, false}, {"", "", false}, {"17.", "17", true},
		{`e^{i\pi}`, "-1", true}, {"1/0", "2/0", false}, {"x", "y", false}, {"6 - 5i", "-5i + 6", true}, {`(-\infty, 2)\cup(3,\infty)`, `(-\infty,2) \cup (3,\infty)`, true},
		{"11\\sqrt2", "11*2^(1/2)", true}, {"1e3", "1000", false},
	} {
		if SameMath(c.own, c.want) != c.equal {
			t.Errorf("%s and %s: equal %v, want %v", c.own, c.want, !c.equal, c.equal)
		}
	}
}

// TestMath finds the answer in a text.
func TestMath(t *testing.T) {
	for text, want := range map[string]string{
		`so $x = \boxed{\frac{1}{2}}$.`: `\frac{1}{2}`, "work\n#### 12": " 12", "The answer is $5$.": "$5$.",
		"we get $a$ and $b^2$ in the end": "b^2", "42": "42", strings.Repeat("long ", 40): "",
	} {
		if got := Math(text); got != want {
			t.Errorf("the answer of %q is %q, want %q", text, got, want)
		}
	}
}

// TestChoice finds the letter of a choice.
func TestChoice(t *testing.T) {
	for text, want := range map[string]string{
		"B": "B", "(C)": "C", "The answer is (D).": "D", "Answer: A\n": "A", `\boxed{\text{B}}`: "B", "B) Paris": "B", "**C**": "C",
		"I think it is (A), no, (B)": "B", "A man walks": "",
		"the correct answer is option C because A is not": "C", "": "",
		"Answer: the cat": "",
	} {
		if got, _ := Choice(text); got != want {
			t.Errorf("the choice of %q is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"2": "C", "b": "B", "(D)": "D", "26": "", "x is y": ""} {
		if got, _ := wantedChoice(text); got != want {
			t.Errorf("the wanted choice of %q is %q, want %q", text, got, want)
		}
	}
}

// FuzzSameMath checks that no text makes the comparison panic or take long, and that equality does not depend on the
// order.
func FuzzSameMath(f *testing.F) {
	for _, s := range []string{`\frac{{{`, "((((((((", strings.Repeat("-", 3000), strings.Repeat(`\sqrt`, 400), "1,,2", "|||", "2^2^2^2^9", `\sin^`} {
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if SameMath(a, b) != SameMath(b, a) {
			sameNumbers := strings.ContainsAny(a+b, "0123456789") // the tolerance is relative to the wanted number
			if !sameNumbers {
				t.Errorf("%q and %q are equal in one order", a, b)
			}
		}
		Math(a)
		Choice(a)
	})
}
