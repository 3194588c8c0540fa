package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tierlora/tierlora/internal/cputime"
)

// vocabulary256 is a model whose tokens are these and every byte of ASCII.
func modelOf(kind string, tokens ...string) string {
	vocab := map[string]int{"<unk>": 0, "[UNK]": 1}
	scores := [][2]any{{"<unk>", 0}}
	for c := rune(0); c < 128; c++ {
		tokens = append(tokens, string(c))
	}
	for _, t := range tokens {
		if _, ok := vocab[t]; !ok {
			vocab[t] = len(vocab)
			scores = append(scores, [2]any{t, -1})
		}
	}
	m := map[string]any{"type": kind, "vocab": vocab}
	switch kind {
	case "Unigram":
		m["vocab"], m["unk_id"] = scores, 0
	case "BPE":
		m["merges"] = []string{}
	case "WordPiece":
		m["unk_token"], m["max_input_chars_per_word"] = "[UNK]", 1<<30
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func bomb(normalizer, preTokenizer, model string) string {
	return fmt.Sprintf(`{"version":"1.0","added_tokens":[],"normalizer":%s,"pre_tokenizer":%s,"post_processor":null,"decoder":null,"model":%s}`,
		normalizer, preTokenizer, model)
}

func sequence(kind, part string, n int) string {
	return fmt.Sprintf(`{"type":"Sequence","%s":[%s]}`, kind, strings.TrimSuffix(strings.Repeat(part+",", n), ","))
}

func split(pattern string) string {
	p, _ := json.Marshal(pattern)
	return fmt.Sprintf(`{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated","invert":false}`, p)
}

// TestBombs: tokenizers whose patterns, replacements, sequences or vocabulary are made to take time or memory end with
// an error, when they are loaded or when a text comes, and soon.
func TestBombs(t *testing.T) {
	bpe := modelOf("BPE")
	ten := `{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`
	deep := func(kind, list, inner string, n int) string {
		return strings.Repeat(fmt.Sprintf(`{"type":"Sequence","%s":[`, list), n) + inner + strings.Repeat("]}", n)
	}
	pieces := map[string]string{"normalizers": `{"type":"Lowercase"}`, "pretokenizers": `{"type":"Whitespace"}`}
	huge, _ := json.Marshal(strings.Repeat("a", 1<<20))
	for name, c := range map[string]struct{ file, text string }{
		"growth":               {bomb(sequence("normalizers", ten, 12), "null", bpe), "a"},
		"growth of a pattern":  {bomb(sequence("normalizers", `{"type":"Replace","pattern":{"Regex":"a|(?=a)"},"content":"aaaaaaaaaa"}`, 12), "null", bpe), "a"},
		"one large content":    {bomb(fmt.Sprintf(`{"type":"Replace","pattern":{"String":"a"},"content":%s}`, huge), "null", bpe), strings.Repeat("a", 10000)},
		"bytes of bytes":       {bomb("null", sequence("pretokenizers", `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":false}`, 40), bpe), "é"},
		"deep normalisers":     {bomb(deep("normalizer", "normalizers", pieces["normalizers"], 3000), "null", bpe), ""},
		"deep pre-tokenizers":  {bomb("null", deep("pre_tokenizer", "pretokenizers", pieces["pretokenizers"], 3000), bpe), ""},
		"many normalisers":     {bomb(sequence("normalizers", pieces["normalizers"], 5000), "null", bpe), ""},
		"many pre-tokenizers":  {bomb("null", sequence("pretokenizers", pieces["pretokenizers"], 5000), bpe), ""},
		"to the end each time": {bomb("null", split(".*X"), bpe), strings.Repeat("a", 200_000)},
		"repeats in repeats":   {bomb("null", split("(?:a{0,1000}){0,1000}b"), bpe), strings.Repeat("a", 200_000)},
		"plus of plus":         {bomb("null", split("(?:a+)+b"), bpe), strings.Repeat("a", 200_000)},
		"looking ahead":        {bomb("null", split("a(?=a*b)"), bpe), strings.Repeat("a", 200_000)},
		"lazy":                 {bomb("null", split("a*?b"), bpe), strings.Repeat("a", 200_000)},
		"pattern normaliser":   {bomb(`{"type":"Replace","pattern":{"Regex":".*X"},"content":"b"}`, "null", bpe), strings.Repeat("a", 200_000)},
		"long unigrams":        {bomb("null", "null", modelOf("Unigram", strings.Repeat("a", 100_000))), strings.Repeat("a", 200_000)},
		"long words":           {bomb("null", "null", modelOf("WordPiece", "a", "##a")), strings.Repeat("a", 100_000)},
	} {
		start := cputime.Process()
		err := func() (err error) {
			tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: []byte(c.file)}}, ".")
			if err != nil {
				return err
			}
			defer Caught(&err)
			tok.IDs(c.text, true)
			return nil
		}()
		took := cputime.Process() - start
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if c.text != "" && !errors.As(err, new(*LimitError)) {
			t.Errorf("%s: %v", name, err)
		}
		if took > 8*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		t.Logf("%-22s %.2f s %.150v", name, took.Seconds(), err)
	}
}

// TestDecodingBombs: what a decoder makes of a few tokens stays in proportion.
func TestDecodingBombs(t *testing.T) {
	file := bomb("null", "null", modelOf("BPE"))
	ten := `{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`
	for _, decoder := range []string{sequence("decoders", ten, 12), sequence("decoders", `{"type":"BPEDecoder","suffix":""}`, 60)} {
		tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: []byte(strings.Replace(file, `"decoder":null`, `"decoder":`+decoder, 1))}}, ".")
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(tok.IDs("aaaa", false), false); got != "\uFFFD" {
			t.Errorf("%.60q of %d bytes", got, len(got))
		}
	}
}
