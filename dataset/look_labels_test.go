package dataset

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLookShowsLabels checks that rows with labels are shown with their texts as parts and their labels by name.
func TestLookShowsLabels(t *testing.T) {
	names := []string{"bad", "good"}
	for _, c := range []struct {
		aim    Aim
		row    string
		roles  []string
		target string
	}{
		{Aim{Kind: AimClass, Names: names, Count: 2}, `{"text": "ab", "text_pair": "c", "label": "good"}`,
			[]string{"text", "text_pair"}, "label good"},
		{Aim{Kind: AimClass, Count: 2}, `{"input_ids": [5, 6], "label": 1}`, []string{"tokens"}, "label 1"},
		{Aim{Kind: AimLabels, Names: names, Count: 2}, `{"text": "ab", "label": ["good", "bad"]}`, []string{"text"},
			"labels bad, good"},
		{Aim{Kind: AimLabels, Names: names, Count: 2}, `{"text": "ab", "label": []}`, []string{"text"}, "no label"},
		{Aim{Kind: AimLabels, Count: 1}, `{"text": "ab", "label": 0.5}`, []string{"text"}, "label 0.5"},
		{Aim{Kind: AimNumbers, Count: 2}, `{"text": "ab", "label": [1, -2.5]}`, []string{"text"}, "label 1, -2.5"},
		{Aim{Kind: AimPairs}, `{"anchor": "ab", "positive": "cd", "negative": ["e"]}`,
			[]string{"anchor", "positive", "negative"}, ""},
		{Aim{Kind: AimTokens, Names: names, Count: 2}, `{"tokens": ["ab", "c"], "ner_tags": [0, 1]}`, []string{"words"}, ""},
	} {
		cfg := Default()
		cfg.Path, cfg.Aim = filepath.Join(t.TempDir(), "rows.jsonl"), c.aim
		if err := os.WriteFile(cfg.Path, []byte(c.row+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		set, _, err := Load(t.Context(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := set.Look(t.Context(), 0, 1, bytesTokenizer{})
		if err != nil || rows[0].Target != c.target || rows[0].Note != "" || len(rows[0].Parts) != len(c.roles) {
			t.Errorf("%s: %+v %v", c.row, rows, err)
			continue
		}
		end := 0
		for i, p := range rows[0].Parts {
			if p.Role != c.roles[i] || p.From != end || p.To <= p.From {
				t.Errorf("%s: part %d is %+v, want %s from token %d", c.row, i, p, c.roles[i], end)
			}
			end = p.To
		}
		if end != len(rows[0].Tokens) {
			t.Errorf("%s: the parts end at token %d of %d", c.row, end, len(rows[0].Tokens))
		}
	}
}
