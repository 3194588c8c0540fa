package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readTexts reads the rows of a file for predictions.
func readTexts(t *testing.T, kind TextKind, fields map[string]string, maxLength int, file string) (all []TextRow,
	keys []string, err error) {
	t.Helper()
	c := Default()
	c.Path, c.Fields, c.MaxLength = filepath.Join(t.TempDir(), "rows.jsonl"), fields, maxLength
	if err := os.WriteFile(c.Path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	r := NewTextReader(c, kind, bytesTokenizer{})
	if err := r.CheckFields(); err != nil {
		return nil, nil, err
	}
	err = EachRow(t.Context(), nil, c, func(item Item) error {
		row, err := r.Read(item)
		all, keys = append(all, row), r.Keys(item)
		return err
	})
	return all, keys, err
}

// TestTextRowsEqualTraining checks that rows without a label have the tokens of training rows with one.
func TestTextRowsEqualTraining(t *testing.T) {
	for name, c := range map[string]struct {
		kind     TextKind
		aim      Aim
		row, key string
	}{
		"one text":  {TextsOfRow, Aim{Kind: AimClass, Count: 2}, `{"review": "good film"%s}`, `, "label": 1`},
		"two texts": {TextsOfRow, Aim{Kind: AimNumbers, Count: 1}, `{"query": "who", "document": "me"%s}`, `, "label": 1`},
		"too long": {TextsOfRow, Aim{Kind: AimClass, Count: 2},
			`{"text": "a text of more tokens than max_length"%s}`, `, "label": 0`},
		"ids": {TextsOfRow, Aim{Kind: AimClass, Count: 2},
			`{"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0]%s}`, `, "label": 0`},
		"answer": {AnswerOfRow, Aim{}, `{"prompt": "who", "chosen": "me"%s}`, `, "rejected": "you"`},
		"words": {WordsOfRow, Aim{Kind: AimTokens, Count: 2}, `{"tokens": ["John", "", "went"]%s}`,
			`, "ner_tags": [1, 0, 0]`},
		"split": {WordsOfRow, Aim{Kind: AimTokens, Count: 2}, `{"text": "John  went"%s}`,
			`, "tokens": ["John", "went"], "ner_tags": [1, 0]`},
	} {
		cfg := Default()
		cfg.MaxLength, cfg.Aim, cfg.Preferences = 16, c.aim, c.kind == AnswerOfRow
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(path, fmt.Appendf(nil, c.row+"\n", c.key), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg.Path = path
		set, _, err := Load(t.Context(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := set.Train.Row(0).IDs
		if borders := set.Train.Row(0).Borders; borders != nil {
			want = want[:borders[0]]
		}
		rows, keys, err := readTexts(t, c.kind, nil, 16, fmt.Sprintf(c.row+"\n", ""))
		if err != nil || len(rows) != 1 || !slices.Equal(rows[0].IDs, want) {
			t.Errorf("%s: %+v %v, want %v", name, rows, err, want)
			continue
		}
		if lost := name == "too long"; (rows[0].Lost > 0) != lost || len(keys) == 0 {
			t.Errorf("%s: %d tokens lost, keys %v", name, rows[0].Lost, keys)
		}
		if c.kind != WordsOfRow {
			continue
		}
		for i, at := range rows[0].First { // the first token of a word is the one that has its label
			if at >= 0 != (rows[0].Words[i] != "" || i > 0) || at >= 0 &&
				set.Train.Row(0).Targets[at] == float32(Ignore) {
				t.Errorf("%s: the first tokens of %q are %v", name, rows[0].Words, rows[0].First)
			}
		}
	}
}

// TestTextRowsSkip checks rows without a text, words beyond the last token, and token ids with a label each.
func TestTextRowsSkip(t *testing.T) {
	rows, keys, err := readTexts(t, TextOfRow, map[string]string{"text": "meta.body"}, 16,
		`{"meta": {"body": "a text"}}`+"\n"+`{"meta": {"body": ""}}`+"\n")
	if err != nil || rows[0].Skipped != "" || rows[1].Skipped != dropEmptyText || rows[1].IDs != nil ||
		!slices.Equal(keys, []string{"meta.body"}) {
		t.Errorf("%+v %v %v", rows, keys, err)
	}
	rows, _, err = readTexts(t, WordsOfRow, nil, 4, `{"tokens": ["abc", "def", "ghi"]}`+"\n"+`{"tokens": []}`+"\n")
	if err != nil || len(rows[0].IDs) != 4 || rows[0].First[0] < 0 || rows[0].First[2] != -1 || rows[0].Lost == 0 ||
		rows[1].Skipped == "" {
		t.Errorf("%+v %v", rows, err)
	}
	rows, _, err = readTexts(t, WordsOfRow, nil, 4, `{"input_ids": [5, 6]}`+"\n")
	if err != nil || !slices.Equal(rows[0].First, []int{0, 1}) || len(rows[0].Words) != 2 {
		t.Errorf("%+v %v", rows, err)
	}
}

// TestTextRowsRefused checks the messages of rows that have no text to read.
func TestTextRowsRefused(t *testing.T) {
	for _, c := range []struct {
		kind   TextKind
		fields map[string]string
		file   string
		want   string
	}{
		{TextsOfRow, nil, `{"colour": "red"}`, "rows.jsonl:1: none of the keys colour is known to hold text or " +
			"input_ids: name the one that does in fields, such as text=colour"},
		{TextsOfRow, nil, `{"text": "a"}` + "\n" + `{"text": null}`, `rows.jsonl:2: the row has no field "text", or it ` +
			"is null: it has text"},
		{TextsOfRow, nil, `{"text": 3}`, `rows.jsonl:1: field "text" is a number, want a string`},
		{WordsOfRow, nil, `{"tokens": ["a", 3]}`, "rows.jsonl:1: tokens[1] is a number, want a word"},
		{TextsOfRow, map[string]string{"tex": "a"}, `{"text": "a"}`, `fields: there is no field "tex", but text, ` +
			"text_pair, input_ids, attention_mask; did you mean text?"},
		{TextOfRow, nil, `{"input_ids": [1, -7]}`, "rows.jsonl:1: input_ids[1] is -7, which is not in the vocabulary"},
	} {
		_, _, err := readTexts(t, c.kind, c.fields, 16, c.file+"\n")
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.file, err, c.want)
		}
	}
}
