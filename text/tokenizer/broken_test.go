package tokenizer

import (
	"strings"
	"testing"
	"testing/fstest"
)

// small is a whole tokenizer that the tests below break in one place each.
const small = `{"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":5,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
"normalizer":{"type":"NFC"},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},
"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":false,"ignore_merges":false,
"vocab":{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4},"merges":["a b"]}}`

func loadSmall(json string, more fstest.MapFS) (*Tokenizer, error) {
	fsys := fstest.MapFS{"m/tokenizer.json": {Data: []byte(json)}}
	for name, f := range more {
		fsys["m/"+name] = f
	}
	return LoadFS(fsys, "m")
}

func TestSmall(t *testing.T) {
	tok, err := loadSmall(small, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := tok.Encode("ab ba?1", true)
	if got, want := strings.Join(e.Tokens, " "), "<s> ▁ ab ▁ b a <unk> ▁ <unk>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if id, ok := tok.BOS(); !ok || id != 5 || !tok.AddsBOS() || tok.VocabSize() != 6 {
		t.Errorf("BOS %d %v, AddsBOS %v, VocabSize %d", id, ok, tok.AddsBOS(), tok.VocabSize())
	}
	if _, ok := tok.EOS(); ok {
		t.Error("there is no EOS in the vocabulary")
	}
}

func TestBrokenFiles(t *testing.T) {
	const bad = "load tokenizer m: tokenizer.json: "
	tests := []struct{ name, old, new, want string }{
		{"not JSON", `{"version":"1.0",`, `{version:"1.0",`, bad + "line 1, column 2: expected a key in double quotes, found version"},
		{"cut off", `"merges":["a b"]}}`, `"merges":["a b"`, bad + `line 8, column 61: expected ',' or ']' behind the value, found the end of the text`},
		{"more after the end", `"merges":["a b"]}}`, `"merges":["a b"]}} x`, bad + `line 8, column 65: expected the end of the text, found 'x' behind the value`},
		{"other version", `"1.0"`, `"2.0"`, bad + `version "2.0": only "1.0" is known`},
		{"unknown field", `"padding":null`, `"padding":null,"chunking":1`, bad + `unknown field "chunking"`},
		{"unknown normaliser", `"type":"NFC"`, `"type":"NFX"`, bad + `normalizer: unknown normalizer "NFX"`},
		{"unknown normaliser field", `"type":"NFC"`, `"type":"NFC","fast":true`, bad + `normalizer: NFC: unknown field "fast"`},
		{"field of another type", `"individual_digits":true`, `"individual_digits":"yes"`, bad + `pre_tokenizer.pretokenizers[0]: Digits: individual_digits is a string, want true or false`},
		{"type that is a number", `"type":"NFC"`, `"type":7`, bad + `normalizer: type is a number, want a string`},
		{"component that is a list", `{"type":"NFC"}`, `[1]`, bad + `normalizer: the value is a list, want an object`},
		{"unknown pre-tokenizer", `"type":"Digits","individual_digits":true`, `"type":"UnicodeWords"`, bad + `pre_tokenizer.pretokenizers[0]: unknown pre-tokenizer "UnicodeWords"`},
		{"pattern that cannot run", `"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"Regex":"(a)\\1"},"behavior":"Isolated","invert":false`,
			bad + `pre_tokenizer.pretokenizers[0]: pattern "(a)\\1": byte 4: \1 cannot be run`},
		{"unknown behavior", `"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{"String":"a"},"behavior":"Kept","invert":false`, bad + `pre_tokenizer.pretokenizers[0]: unknown behavior "Kept"`},
		{"no pattern", `"type":"Digits","individual_digits":true`, `"type":"Split","pattern":{},"behavior":"Isolated","invert":false`, bad + `pre_tokenizer.pretokenizers[0]: a pattern is either String or Regex`},
		{"no type", `{"type":"Digits","individual_digits":true}`, `{}`, bad + `pre_tokenizer.pretokenizers[0]: no type`},
		{"long mark", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}]}`, `{"type":"Metaspace","replacement":"▁▁"}]}`, bad + `pre_tokenizer.pretokenizers[1]: Metaspace: replacement "▁▁" is not one character`},
		{"unknown scheme", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}]}`, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"last"}]}`, bad + `pre_tokenizer.pretokenizers[1]: unknown prepend_scheme "last"`},
		{"unknown post-processor", `"type":"TemplateProcessing"`, `"type":"PairProcessing"`, bad + `post_processor: unknown post-processor "PairProcessing"`},
		{"template without its token", `"special_tokens":{"<s>"`, `"special_tokens":{"<t>"`, bad + `post_processor: TemplateProcessing: single[0] names "<s>", which special_tokens lacks`},
		{"template with a foreign id", `"ids":[5]`, `"ids":[77]`, bad + `post_processor: special token id 77 is not in the vocabulary`},
		{"template without the text", `,{"Sequence":{"id":"A","type_id":0}}]`, `]`, bad + `post_processor: TemplateProcessing: single has sequence A 0 times, not once`},
		{"unknown decoder", `"decoder":{"type":"Metaspace"`, `"decoder":{"type":"CTC"`, bad + `decoder: unknown decoder "CTC"`},
		{"other model", `"type":"BPE"`, `"type":"WordSalad"`, bad + `model: type "WordSalad": only BPE, Unigram, WordPiece and WordLevel are supported`},
		{"unknown model field", `"fuse_unk":true`, `"fuse_unk":true,"temperature":1`, bad + `model: unknown field "temperature"`},
		{"dropout", `"dropout":null`, `"dropout":0.1`, bad + `model: dropout 0.1: encoding would be random; set it to null`},
		{"empty vocabulary", `{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, `{}`, bad + `model: vocab: empty`},
		{"vocabulary as a list", `{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, `["a"]`, bad + `model: vocab: not an object of token to id`},
		{"id that is no number", `"a":2`, `"a":"two"`, bad + `model: vocab: the id of "a" is not an integer`},
		{"negative id", `"a":2`, `"a":-2`, bad + `model: vocab: "a" has id -2, which is out of range (largest allowed here: 65555)`},
		{"id beyond reason", `"a":2`, `"a":4000000000`, bad + `model: vocab: "a" has id 4000000000, which is out of range (largest allowed here: 65555)`},
		{"one id twice", `"a":2`, `"a":3`, bad + `model: vocab: "a" and "b" both have id 3`},
		{"one token twice", `"b":3`, `"b":3,"b":9`, bad + `model: vocab: "b" stands there twice`},
		{"merge of unknown tokens", `["a b"]`, `["a c"]`, bad + `model: merges[0]: "c" is not in the vocabulary`},
		{"merge into an unknown token", `["a b"]`, `["b a"]`, bad + `model: merges[0]: "b" and "a" make "ba", which is not in the vocabulary`},
		{"merge of three", `["a b"]`, `["a b c"]`, bad + `model: merges[0]: "a b c" is not two tokens parted by one space`},
		{"merge list of three", `["a b"]`, `[["a","b","c"]]`, bad + `model: merges[0]: not two strings`},
		{"merge that is a number", `["a b"]`, `[7]`, bad + `model: merges[0]: neither a string nor a list`},
		{"unknown unk", `"unk_token":"<unk>"`, `"unk_token":"<what>"`, bad + `model: unk_token "<what>" is not in the vocabulary`},
		{"added token against the vocabulary", `"id":5,"content":"<s>"`, `"id":5,"content":"a"`, `load tokenizer m: added token "a" has id 5, but 2 in the vocabulary`},
		{"added token on another's id", `"id":5,"content":"<s>"`, `"id":4,"content":"<s>"`, `load tokenizer m: added token "<s>" has id 4, which is "ab"`},
		{"added id beyond reason", `"id":5,"content":"<s>"`, `"id":2000000000,"content":"<s>"`, `load tokenizer m: added token "<s>": id 2000000000 is out of range (largest allowed here: 65559)`},
	}
	for _, test := range tests {
		if strings.Count(small, test.old) != 1 {
			t.Errorf("%s: %q stands in the file %d times", test.name, test.old, strings.Count(small, test.old))
			continue
		}
		_, err := loadSmall(strings.Replace(small, test.old, test.new, 1), nil)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.name, err, test.want)
		}
	}
	t.Logf("%d broken files", len(tests))
}

func TestBrokenFolders(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const gpt2 = `{"tokenizer_class":"GPT2Tokenizer"}`
	tests := []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		{"empty", fstest.MapFS{}, "neither tokenizer.json nor vocab.json with merges.txt is there"},
		{"no merges", fstest.MapFS{"vocab.json": file(`{"a":0}`)}, "neither tokenizer.json nor vocab.json with merges.txt is there"},
		{"no class", fstest.MapFS{"vocab.json": file(`{"a":0}`), "merges.txt": file("")},
			`vocab.json and merges.txt without tokenizer.json: tokenizer_class "" in tokenizer_config.json is not one of GPT2Tokenizer, Qwen2Tokenizer`},
		{"other class", fstest.MapFS{"vocab.json": file(`{"a":0}`), "merges.txt": file(""), "tokenizer_config.json": file(`{"tokenizer_class":"CLIPTokenizer"}`)},
			`vocab.json and merges.txt without tokenizer.json: tokenizer_class "CLIPTokenizer" in tokenizer_config.json is not one of GPT2Tokenizer, Qwen2Tokenizer`},
		{"vocabulary not JSON", fstest.MapFS{"vocab.json": file(`{"a":0`), "merges.txt": file(""), "tokenizer_config.json": file(gpt2)}, "vocab.json: line 1, column 7: expected ',' or '}' behind the value, found the end of the text"},
		{"merge line", fstest.MapFS{"vocab.json": file(`{"a":0}`), "merges.txt": file("#version: 0.2\naa\n"), "tokenizer_config.json": file(gpt2)},
			`merges.txt: line 2: "aa" is not two tokens parted by one space`},
		{"merge of an unknown token", fstest.MapFS{"vocab.json": file(`{"a":0}`), "merges.txt": file("a b\n"), "tokenizer_config.json": file(gpt2)},
			`merges[0]: "b" is not in the vocabulary`},
		{"settings not JSON", fstest.MapFS{"tokenizer.json": file(small), "tokenizer_config.json": file(`{`)}, "tokenizer_config.json: line 1, column 2: expected a key in double quotes, found the end of the text"},
		{"setting of another type", fstest.MapFS{"tokenizer.json": file(small), "tokenizer_config.json": file("{\n \"add_bos_token\": \"yes\"}")},
			"tokenizer_config.json: line 2, column 19: add_bos_token is a string, want true or false"},
		{"added token of another type", fstest.MapFS{"tokenizer.json": file(small), "added_tokens.json": file(`{"x": "7"}`)},
			"added_tokens.json: line 1, column 7: the value is a string, want a whole number of 32 bits"},
		{"unknown end token", fstest.MapFS{"tokenizer.json": file(small), "tokenizer_config.json": file(`{"eos_token":"</s>"}`)}, `eos_token "</s>" is not in the vocabulary`},
		{"end token of a strange kind", fstest.MapFS{"tokenizer.json": file(small), "special_tokens_map.json": file(`{"eos_token":3}`)},
			"special_tokens_map.json: eos_token is neither a string nor a token"},
		{"added id", fstest.MapFS{"tokenizer.json": file(small), "tokenizer_config.json": file(`{"added_tokens_decoder":{"x":{}}}`)},
			`tokenizer_config.json: added_tokens_decoder: "x" is not an id`},
		{"added flag", fstest.MapFS{"tokenizer.json": file(small), "tokenizer_config.json": file(`{"added_tokens_decoder":{"9":{"content":"x","bold":true}}}`)},
			`tokenizer_config.json: added_tokens_decoder[9]: unknown field "bold"`},
	}
	for _, test := range tests {
		_, err := LoadFS(test.fsys, ".")
		if err == nil || err.Error() != "load tokenizer .: "+test.want {
			t.Errorf("%s:\n got %v\nwant load tokenizer .: %s", test.name, err, test.want)
		}
	}
	if _, err := Load("no/such/folder"); err == nil {
		t.Error("a folder that is not there loads")
	}
}
