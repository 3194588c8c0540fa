package tokenizer

import (
	"strings"
	"testing"
	"testing/fstest"
)

const (
	unigramModel = `{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁",-1.5],["a",-2],["b",-2.5],["ab",-3.25],["<s>",0]],"byte_fallback":false}`
	wordModel    = `{"type":"WordPiece","unk_token":"<unk>","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"<unk>":0,"a":1,"##b":2,"ab":3,"▁":4,"<s>":5}}`
)

// withModel is the small tokenizer with another model.
func withModel(model string) string {
	return small[:strings.Index(small, `"model":`)] + `"model":` + model + "}"
}

func TestOtherModels(t *testing.T) {
	for model, want := range map[string]string{unigramModel: "<s> ▁ ab ▁ b a <unk>", wordModel: "<s> <unk> <unk>"} {
		tok, err := loadSmall(withModel(model), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(tok.Encode("ab ba?", true).Tokens, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestBrokenModels(t *testing.T) {
	const bad = "load tokenizer m: tokenizer.json: "
	for _, test := range []struct{ model, old, new, want string }{
		{unigramModel, `"unk_id":0`, `"unk_id":6`, "model: unk_id 6 is not in the vocabulary of 6"},
		{unigramModel, `"unk_id":0`, `"unk_id":-1`, "model: unk_id -1 is not in the vocabulary of 6"},
		{unigramModel, `"unk_id":0`, `"unk_id":null`, "model: unk_id is null: there is no id for a character that the vocabulary lacks"},
		{unigramModel, `-2.5`, `"low"`, "model: vocab[3]: not a string and a number"},
		{unigramModel, `-2.5`, `1e999`, "model: vocab[3]: not a string and a number"},
		{unigramModel, `["a",-2]`, `["a"]`, "model: vocab[2]: not a string and a number"},
		{unigramModel, `"byte_fallback":false`, `"byte_fallback":false,"nbest":3`, `model: unknown field "nbest"`},
		{unigramModel, `"byte_fallback":false`, `"byte_fallback":false,"merges":[]`, "model: merges: a Unigram model has none"},
		{unigramModel, `"type":"Unigram"`, `"type":["Unigram"]`, `model: type ["Unigram"]: only BPE, Unigram, WordPiece and WordLevel are supported`},
		{wordModel, `"<unk>":0`, `"<none>":0`, `model: unk_token "<unk>" is not in the vocabulary`},
		{wordModel, `100`, `-1`, "model: max_input_chars_per_word -1 is negative"},
		{wordModel, `"##b":2`, `"##b":1`, `model: vocab: "a" and "##b" both have id 1`},
	} {
		if strings.Count(test.model, test.old) != 1 {
			t.Errorf("%q stands in the model %d times", test.old, strings.Count(test.model, test.old))
		}
		_, err := loadSmall(withModel(strings.Replace(test.model, test.old, test.new, 1)), nil)
		if err == nil || err.Error() != bad+test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.new, err, bad+test.want)
		}
	}
	for _, test := range []struct{ old, new, want string }{
		{`{"type":"NFC"}`, `{"type":"Precompiled","precompiled_charsmap":"?"}`, "normalizer: Precompiled: precompiled_charsmap: illegal base64 data at input byte 0"},
		{`{"type":"NFC"}`, `{"type":"Precompiled","precompiled_charsmap":"AAA="}`, "normalizer: Precompiled: precompiled_charsmap: 2 bytes are too few for a table"},
		{`{"type":"NFC"}`, `{"type":"Precompiled","precompiled_charsmap":"CAAAAAAA"}`,
			"normalizer: Precompiled: precompiled_charsmap: it says that its array has 8 bytes, of 2 that follow"},
		{`{"type":"NFC"}`, `{"type":"BertNormalizer","clean":true}`, `normalizer: BertNormalizer: unknown field "clean"`},
		{`"type":"Digits","individual_digits":true`, `"type":"FixedLength","length":0`, "pre_tokenizer.pretokenizers[0]: FixedLength: length 0 is not above zero"},
		{`"type":"Digits","individual_digits":true`, `"type":"CharDelimiterSplit","delimiter":"ab"`,
			`pre_tokenizer.pretokenizers[0]: CharDelimiterSplit: delimiter "ab" is not one character`},
		{`"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"Regex":"[a"},"behavior":"Isolated","invert":false`,
			`pre_tokenizer.pretokenizers[0]: pattern "[a": byte 2: a class does not end`},
		{`"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"Regex":"\\p{Klingon}"},"behavior":"Isolated","invert":false`,
			`pre_tokenizer.pretokenizers[0]: pattern "\\p{Klingon}": byte 11: unknown property "Klingon"`},
		{`"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"Regex":"(a{9}){999}{999}"},"behavior":"Isolated","invert":false`,
			`pre_tokenizer.pretokenizers[0]: pattern "(a{9}){999}{999}": byte 16: the pattern is too large`},
		{`"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"Regex":"(?<=a+)b"},"behavior":"Isolated","invert":false`,
			`pre_tokenizer.pretokenizers[0]: pattern "(?<=a+)b": byte 7: a look behind of no fixed length cannot be run`},
	} {
		_, err := loadSmall(strings.Replace(small, test.old, test.new, 1), nil)
		if err == nil || err.Error() != bad+test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.new, err, bad+test.want)
		}
	}
	cls := strings.Replace(small[:strings.Index(small, `"post_processor"`)], `"normalizer"`, `"post_processor":{"type":"BertProcessing","sep":["x"],"cls":["<s>",5]},"normalizer"`, 1) +
		small[strings.Index(small, `"decoder"`):]
	if _, err := loadSmall(cls, nil); err == nil || err.Error() != bad+`post_processor: BertProcessing: ["x"] is not a token with its id` {
		t.Error(err)
	}
}

// TestForeignTokenizers: a folder whose tokenizer has another form says how to convert it.
func TestForeignTokenizers(t *testing.T) {
	const advice = ", which is not read: in Python, transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes tokenizer.json"
	for name, form := range map[string]string{"tokenizer.model": "SentencePiece's", "tekken.json": "mistral-common's", "vocab.txt": "BERT's older"} {
		_, err := LoadFS(fstest.MapFS{"m/" + name: {Data: []byte("x")}}, "m")
		if want := "load tokenizer m: of a tokenizer only " + name + " is there, in " + form + " form" + advice; err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
