package tasks

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// regex extracts the answer by a regular expression. Go's expressions (RE2) take time linear in the text.
var regex = Kind{
	About: "what a regular expression finds in the answer is the expected text",
	Check: func(t *Task) error {
		if t.Regex == "" {
			return errors.New("regex is missing: write what finds the answer, such as \"answer is (\\\\w+)\"")
		}
		if _, err := regexp.Compile(t.Regex); err != nil {
			return fmt.Errorf("regex: %w (expressions are RE2's, without look-around and back references)", err)
		}
		return nil
	},
	Score: func(t *Task, expected, answer string) Score {
		found := ""
		m := regexp.MustCompile(t.Regex).FindStringSubmatch(answer) // compiled before, by Check
		switch {
		case len(m) > 1:
			found = strings.TrimSpace(m[1])
		case len(m) == 1:
			found = strings.TrimSpace(m[0])
		}
		return Score{found, map[string]float64{"regex": right(m != nil &&
			t.fold(found) == t.fold(strings.TrimSpace(expected)))}}
	},
}
