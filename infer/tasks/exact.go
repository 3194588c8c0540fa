package tasks

import "strings"

// exactMatch compares whole answers without surrounding white space.
var exactMatch = Kind{
	About: "the answer is the expected text, but for space around it",
	Score: func(t *Task, expected, answer string) Score {
		answer = strings.TrimSpace(answer)
		return Score{answer,
			map[string]float64{"exact_match": right(t.fold(answer) == t.fold(strings.TrimSpace(expected)))}}
	},
}

// fold returns a text in the form in which it is compared.
func (t *Task) fold(s string) string {
	if t.IgnoreCase {
		return strings.ToLower(s)
	}
	return s
}

func right(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
