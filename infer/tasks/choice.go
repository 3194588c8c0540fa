package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tierlora/tierlora/dataset"
)

// multipleChoice selects the choice that is likeliest after the prompt. As in lm-eval, acc compares the sums of
// log-probabilities, acc_norm divides them by the choice's characters, and acc_bytes by its UTF-8 bytes. Of equal
// choices the first wins.
var multipleChoice = Kind{
	About: "the likeliest of several choices is the right one",
	Check: func(t *Task) error {
		var problems []error
		if (len(t.Choices) == 0) == (t.ChoiceKey == "") {
			problems = append(problems, errors.New("choices or choices_field: give one of them"))
		} else if len(t.Choices) == 1 {
			problems = append(problems, errors.New("choices: there is 1, a choice needs at least 2"))
		}
		if t.Gold == "" {
			problems = append(problems, errors.New("gold_field is missing: name the field with the right choice"))
		}
		if t.Answer != "" {
			problems = append(problems, errors.New("answer does nothing in a task of kind multiple_choice: remove it"))
		}
		return errors.Join(problems...)
	},
}

// maxChoices is the most choices of a question.
const maxChoices = 256

// choicesOf returns a row's choices and the index of the right one.
func (t *Task) choicesOf(row dataset.Item) (choices []string, gold int, err error) {
	if t.ChoiceKey != "" {
		raw, err := row.JSON(t.ChoiceKey)
		if err != nil {
			return nil, 0, err
		}
		if err := json.Unmarshal(raw, &choices); err != nil {
			return nil, 0, fmt.Errorf("%s: field %q is not a list of texts", row.Where(), t.ChoiceKey)
		}
	}
	for _, c := range t.Choices {
		text, err := fill(c, row)
		if err != nil {
			return nil, 0, err
		}
		choices = append(choices, text)
	}
	if n := len(choices); n < 2 || n > maxChoices {
		return nil, 0, fmt.Errorf("%s: the question has %d choices, want 2 to %d", row.Where(), n, maxChoices)
	}
	if i := slices.Index(choices, ""); i >= 0 {
		return nil, 0, fmt.Errorf("%s: choice %d is empty", row.Where(), i)
	}
	gold, err = t.goldOf(row, choices)
	return choices, gold, err
}

// goldOf parses the right choice: a number is its index; a text is one of the choices, else a letter or an index.
func (t *Task) goldOf(row dataset.Item, choices []string) (int, error) {
	raw, err := row.JSON(t.Gold)
	if err != nil {
		return 0, err
	}
	text, err := row.Text(t.Gold)
	if err != nil {
		return 0, err
	}
	gold, numeric := 0, false
	if i := slices.Index(choices, text); i >= 0 && len(raw) > 0 && raw[0] == '"' {
		return i, nil
	}
	if len(text) == 1 && text[0] >= 'A' && text[0] <= 'Z' {
		gold, numeric = int(text[0]-'A'), true
	} else if n, err := strconv.Atoi(text); err == nil {
		gold, numeric = n, true
	}
	switch {
	case !numeric:
		return 0, fmt.Errorf("%s: field %q is %q: want the index, the letter or the text of one of the %d choices",
			row.Where(), t.Gold, clip(text, 40), len(choices))
	case gold < 0 || gold >= len(choices):
		return 0, fmt.Errorf("%s: field %q names choice %s, and the question has %d (indices begin at 0)", row.Where(),
			t.Gold, clip(text, 40), len(choices))
	}
	return gold, nil
}

// scoreChoices compares log-likelihoods of choices.
func scoreChoices(choices []string, gold int, likelihoods []float64) (chosen int, metrics map[string]float64) {
	best := func(size func(string) float64) int {
		best := 0
		for i := range choices {
			if likelihoods[i]/size(choices[i]) > likelihoods[best]/size(choices[best]) {
				best = i
			}
		}
		return best
	}
	chosen = best(func(string) float64 { return 1 })
	return chosen, map[string]float64{
		"acc":       right(chosen == gold),
		"acc_norm":  right(best(func(s string) float64 { return float64(utf8.RuneCountInString(s)) }) == gold),
		"acc_bytes": right(best(func(s string) float64 { return float64(len(s)) }) == gold),
	}
}
