package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWordLevel compares with tokenizers 0.22.1: ids, offsets in code points, and the text of the ids.
func TestWordLevel(t *testing.T) {
	dir := t.TempDir()
	file := `{"version": "1.0", "truncation": null, "padding": null,
		"added_tokens": [{"id": 19, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
			{"id": 20, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
		"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
		"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
			"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [19], "tokens": ["<s>"]}}},
		"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "hello": 2, "world": 3, "é": 4, "ß": 5, "日本": 6, ".": 7, ",": 8, "!": 9, "t1": 10, "Hello": 11,
			"<unk>": 12, "[UNK]": 13, "x y": 14, "0": 15, "12": 16, "▁hello": 17, "▁a": 18}, "unk_token": "[UNK]"}}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text    string
		ids     []int32
		offsets [][2]int
		decoded string
	}{
		{"", []int32{19}, [][2]int{{0, 0}}, "<s>"},
		{"hello world", []int32{19, 2, 3}, [][2]int{{0, 0}, {0, 5}, {6, 11}}, "<s> hello world"},
		{"Hello, world! 日本 é zz", []int32{19, 13, 13, 6, 4, 13}, [][2]int{{0, 0}, {0, 6}, {7, 13}, {14, 16}, {17, 18}, {19, 21}}, "<s> [UNK] [UNK] 日本 é [UNK]"},
		{" a  b\n12</s>x", []int32{19, 0, 1, 16, 20, 13}, [][2]int{{0, 0}, {1, 2}, {4, 5}, {6, 8}, {8, 12}, {12, 13}}, "<s> a b 12 </s> [UNK]"},
		{"x y", []int32{19, 13, 13}, [][2]int{{0, 0}, {0, 1}, {2, 3}}, "<s> [UNK] [UNK]"},
		{"hello!\n日本x y!é,<unk>", []int32{19, 13, 13, 13}, [][2]int{{0, 0}, {0, 6}, {7, 10}, {11, 20}}, "<s> [UNK] [UNK] [UNK]"},
		{"é\nb 0 .t1b", []int32{19, 4, 1, 15, 13}, [][2]int{{0, 0}, {0, 1}, {2, 3}, {4, 5}, {6, 10}}, "<s> é b 0 [UNK]"},
	} {
		e := tok.Encode(c.text, true)
		if !slices.Equal(e.IDs, c.ids) || !slices.Equal(e.Offsets, c.offsets) {
			t.Errorf("%q: %v %v, want %v %v", c.text, e.IDs, e.Offsets, c.ids, c.offsets)
		}
		if s := tok.Decode(e.IDs, false); s != c.decoded {
			t.Errorf("%q: decoded %q, want %q", c.text, s, c.decoded)
		}
	}
	for _, c := range []struct{ model, want string }{
		{`{"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}`, `unk_token "<unk>" is not in the vocabulary`},
		{`{"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "merges": []}`, `merges: a WordLevel model has none`},
		{`{"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "prefix": "##"}`, `unknown field "prefix"`},
	} {
		if _, err := parseModel(c.model); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.model, err, c.want)
		}
	}
}
