package tasks

import (
	"fmt"
	"regexp"
	"strings"
)

// gsm8k compares the number at the end of a worked solution (Cobbe et al. 2021, arXiv:2110.14168): the number after the
// last ####, or else the last number. strict_match requires ####.
var gsm8k = Kind{
	About: "the last number of the answer, or that behind ####, is the expected one",
	Expect: func(_ *Task, expected string) error {
		if number, _ := finalNumber(expected); number == "" {
			return fmt.Errorf("the expected answer %q has no number", clip(expected, 60))
		}
		return nil
	},
	Score: func(_ *Task, expected, answer string) Score {
		want, _ := finalNumber(expected)
		got, marked := finalNumber(answer)
		same := got != "" && got == want
		return Score{got, map[string]float64{"exact_match": right(same), "strict_match": right(same && marked)}}
	},
}

var number = regexp.MustCompile(`-?\$?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)`)

// finalNumber returns the number at the end of a solution in one spelling: without $, thousands separators, leading
// zeros and trailing zeros of a fraction. marked reports whether it follows ####.
func finalNumber(text string) (found string, marked bool) {
	if i := strings.LastIndex(text, "####"); i >= 0 {
		if m := number.FindString(text[i:]); m != "" {
			return spelled(m), true
		}
	}
	if all := number.FindAllString(text, -1); len(all) > 0 {
		return spelled(all[len(all)-1]), false
	}
	return "", false
}

func spelled(n string) string {
	n = strings.NewReplacer("$", "", ",", "").Replace(n)
	sign := ""
	if strings.HasPrefix(n, "-") {
		sign, n = "-", n[1:]
	}
	if strings.Contains(n, ".") {
		n = strings.TrimRight(strings.TrimRight(n, "0"), ".")
	}
	if n = strings.TrimLeft(n, "0"); n == "" || n[0] == '.' {
		n = "0" + n
	}
	if n == "0" {
		return n
	}
	return sign + n
}
