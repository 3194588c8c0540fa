package dataset

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTargets checks what rows of labels, numbers, tags and margins become, and the message of each that is none.
func TestTargets(t *testing.T) {
	classes := Aim{Kind: AimClass, Names: []string{"bad", "good"}, Count: 2}
	numbered := Aim{Kind: AimClass, Count: 3}
	labels := Aim{Kind: AimLabels, Names: []string{"a", "b", "c"}, Count: 3}
	degree := Aim{Kind: AimLabels, Count: 1}
	number, two := Aim{Kind: AimNumbers, Count: 1}, Aim{Kind: AimNumbers, Count: 2}
	tags := Aim{Kind: AimTokens, Count: 2}
	for _, c := range []struct {
		aim  Aim
		row  string
		want string // the targets, or the error behind the row's place
	}{
		{classes, `{"text": "ab", "label": "good"}`, "[1]"},
		{classes, `{"text": "ab", "label": 0}`, "[0]"},
		{classes, `{"text": "ab", "label": "1"}`, "[1]"},
		{classes, `{"sentence1": "ab", "sentence2": "cd", "label": true}`, "[1]"},
		{classes, `{"text": "ab", "label": "godo"}`,
			`field "label" is "godo", which is not one of the labels bad, good; did you mean good?`},
		{classes, `{"text": "ab", "label": 2}`, `field "label" is 2, and there are the labels 0 to 1: set ` +
			`classification.labels or classification.num_labels to all that the data has`},
		{classes, `{"text": "ab", "label": -1}`, `field "label" is -1, and there are the labels 0 to 1: set ` +
			`classification.labels or classification.num_labels to all that the data has`},
		{classes, `{"text": "ab", "label": 0.5}`, `field "label" is 0.5, want a label: its name, or its number from 0`},
		{classes, `{"text": "ab", "label": [1]}`, `field "label" is [1], want a label: its name, or its number from 0`},
		{classes, `{"text": "ab", "label": null}`, "[]"}, // which the objective refuses
		{classes, `{"text": 3, "label": 1}`, `field "text" is a number, want a string`},
		{numbered, `{"text": "ab", "label": "good"}`,
			`field "label" is "good", and the labels have no names: list them in classification.labels`},
		{labels, `{"text": "ab", "labels": ["a", "c"]}`, "[1 0 1]"},
		{labels, `{"text": "ab", "labels": [0, 1, 1]}`, "[0 1 1]"},
		{labels, `{"text": "ab", "labels": []}`, "[0 0 0]"},
		{labels, `{"text": "ab", "labels": "b"}`, "[0 1 0]"},
		{labels, `{"text": "ab", "labels": ["a", "a"]}`, `field "labels" has the label 0 twice`},
		{labels, `{"text": "ab", "labels": ["a", "d"]}`, `labels[1] is "d", which is not one of the labels a, b, c`},
		{degree, `{"query": "ab", "document": "cd", "score": 0.25}`, "[0.25]"},
		{degree, `{"query": "ab", "document": "cd", "score": 2}`, `field "score" is 2, want 0 to 1`},
		{number, `{"text": "ab", "score": "-2.5"}`, "[-2.5]"},
		{number, `{"text": "ab", "score": "much"}`, `field "score" is "much", want a number`},
		{number, `{"text": "ab", "score": "nan"}`, `field "score" is "nan", want a number`},
		{number, `{"text": "ab", "score": 1e12}`, `field "score" is 1e12, want a number between -1e9 and 1e9`},
		{two, `{"text": "ab", "score": [1, 2]}`, "[1 2]"},
		{two, `{"text": "ab", "score": [1]}`, `field "score" has 1 number, want 2`},
		{tags, `{"tokens": ["ab", "c"], "ner_tags": [1, -100]}`, "[-100 1 -100 -100 -100]"},
		{tags, `{"input_ids": [101, 102], "labels": [0, 1]}`, "[0 1]"},
		{tags, `{"tokens": ["ab", "c"], "ner_tags": [1]}`,
			`field "tokens" has 2 elements and field "ner_tags" has 1: they must be equally long`},
		{tags, `{"tokens": ["ab", 3], "ner_tags": [1, 0]}`, `tokens[1] is a number, want a word`},
		{tags, `{"tokens": "ab", "ner_tags": [1]}`, `field "tokens" is a string, want a list of words`},
		{tags, `{"tokens": ["ab"], "ner_tags": [2]}`, `ner_tags[0] is 2, and there are the labels 0 to 1: set ` +
			`classification.labels or classification.num_labels to all that the data has`},
		{Aim{Kind: AimMargin}, `{"prompt": "a", "chosen": "b", "rejected": "c", "margin": 1.5}`, "[1.5]"},
		{Aim{Kind: AimMargin}, `{"prompt": "a", "chosen": "b", "rejected": "c"}`, "[]"},
		{Aim{Kind: AimMargin}, `{"prompt": "a", "chosen": "b", "rejected": "c", "margin": "wide"}`,
			`field "margin" is "wide", want a number`},
		{Aim{}, `{"prompt": "a", "chosen": "b", "rejected": "c", "margin": "wide"}`, "[]"},
		{Aim{Kind: AimPairs}, `{"anchor": "a", "positive": "b"}`, "[]"},
		{Aim{Kind: AimPairs}, `{"query": "a", "document": "b", "negatives": ["c", "d"]}`, "[]"},
		{Aim{Kind: AimPairs}, `{"sentence1": "a", "sentence2": "b", "score": 0.25}`, "[0.25]"},
		{Aim{Kind: AimPairs}, `{"sentence1": "a", "sentence2": "b", "score": "near"}`,
			`field "score" is "near", want a number`},
		{Aim{Kind: AimPairs}, `{"anchor": "a", "positive": "b", "negative": ["c", 1]}`,
			"negative[1] is a number, want a string"},
	} {
		cfg := Default()
		cfg.Path, cfg.Aim, cfg.Preferences = "d.jsonl", c.aim, c.aim.Kind == AimMargin
		files := fstest.MapFS{"d.jsonl": {Data: []byte(c.row + "\n")}}
		set, _, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "d.jsonl:1: ")
		} else {
			got = fmt.Sprint(set.Train.Row(0).Targets)
		}
		if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s\ngot  %s\nwant %s", c.row, got, c.want)
		}
	}
}
