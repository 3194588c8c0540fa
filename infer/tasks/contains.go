package tasks

import (
	"errors"
	"strings"
)

// contains checks whether the answer contains the expected text.
var contains = Kind{
	About: "the expected text is somewhere in the answer",
	Expect: func(_ *Task, expected string) error {
		if strings.TrimSpace(expected) == "" {
			return errors.New("the expected answer is empty: every answer would contain it")
		}
		return nil
	},
	Score: func(t *Task, expected, answer string) Score {
		found := strings.Contains(t.fold(answer), t.fold(strings.TrimSpace(expected)))
		return Score{strings.TrimSpace(answer), map[string]float64{"contains": right(found)}}
	},
}
