package dataset

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestSurveyLabels checks what labels of rows are found to be, and the messages of those that are none.
func TestSurveyLabels(t *testing.T) {
	text := func(labels ...string) (rows []string) {
		for _, l := range labels {
			rows = append(rows, `{"text": "a", "label": `+l+`}`)
		}
		return rows
	}
	words := func(labels ...string) (rows []string) {
		for _, l := range labels {
			rows = append(rows, `{"tokens": ["a", "b"], "ner_tags": `+l+`}`)
		}
		return rows
	}
	for _, c := range []struct {
		rows []string
		each bool
		want any // a LabelSurvey, or the end of the error
	}{
		{text(`"sad"`, `"happy"`, `"sad"`), false, LabelSurvey{AimClass, []string{"happy", "sad"}, 2, "label"}},
		{text(`0`, `2`), false, LabelSurvey{AimClass, nil, 3, "label"}},
		{text(`"0"`, `"1"`), false, LabelSurvey{AimClass, nil, 2, "label"}},
		{text(`true`, `false`), false, LabelSurvey{AimClass, nil, 2, "label"}},
		{text(`0.5`, `2`), false, LabelSurvey{AimNumbers, nil, 1, "label"}},
		{text(`"0.5"`, `"2"`), false, LabelSurvey{AimNumbers, nil, 1, "label"}},
		{text(`-1`, `1`), false, LabelSurvey{AimNumbers, nil, 1, "label"}},
		{text(`12000`, `1`), false, LabelSurvey{AimNumbers, nil, 1, "label"}},
		{text(`["b", "a"]`, `[]`, `["c"]`), false, LabelSurvey{AimLabels, []string{"a", "b", "c"}, 3, "label"}},
		{text(`[0, 1, 1]`, `[1, 0, 0]`), false, LabelSurvey{AimLabels, nil, 3, "label"}},
		{text(`[0, 3]`, `[1]`), false, LabelSurvey{AimLabels, nil, 4, "label"}},
		{text(`[0.5, 3]`, `[1, 2]`), false, LabelSurvey{AimNumbers, nil, 2, "label"}},
		{words(`["O", "B"]`, `["O", "O"]`), true, LabelSurvey{AimTokens, []string{"B", "O"}, 2, "ner_tags"}},
		{words(`[0, -100]`, `[2, 1]`), true, LabelSurvey{AimTokens, nil, 3, "ner_tags"}},
		{text(`"a"`, `1`), false, `rows.jsonl:2: field "label" is 1, and other rows have labels of another kind: names ` +
			"and numbers cannot be mixed"},
		{text(`"a"`, `"a"`), false, `field "label" has one label alone in all 2 rows: there is nothing to tell apart`},
		{text(`["a"]`, `"b"`), false, `field "label" is a list in 1 of 2 rows: write lists in all of them, or in none`},
		{text(`{"a": 1}`), false, `rows.jsonl:1: field "label" is an object, want a label: a name or a number`},
		{text(`[0.5]`, `[1, 2]`), false, `field "label" has lists of numbers of different lengths`},
		{words(`[0.5, 1]`), true, `field "ner_tags" has numbers from 0 to 1, want labels: names, or numbers from 0 to 999`},
		{words(`"O"`), true, `rows.jsonl:1: field "ner_tags" is a string, want a list of labels`},
		{[]string{`{"text": "a"}`}, false, "rows.jsonl:1: the keys text hold no text with a label"},
	} {
		cfg := Default()
		cfg.Path = filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(cfg.Path, []byte(strings.Join(c.rows, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := SurveyLabels(t.Context(), nil, cfg, c.each)
		if want, ok := c.want.(string); ok {
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v: %v, want %s", c.rows, err, want)
			}
		} else if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v %v, want %+v", c.rows, got, err, c.want)
		}
	}
}
