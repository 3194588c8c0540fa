package tokenizer

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

func TestNamedTokens(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	vocab := strings.Replace(small, `"ab":4}`, `"ab":4,"</s>":6,"<pad>":7,"[PAD]":8}`, 1)
	tests := []struct {
		name          string
		files         fstest.MapFS
		bos, eos, pad int32 // -1: none
	}{
		{"conventional names", nil, 5, 6, 7},
		{"settings", fstest.MapFS{"tokenizer_config.json": file(`{"bos_token":"a","eos_token":{"content":"b","lstrip":false},"pad_token":"[PAD]"}`)}, 2, 3, 8},
		{"null means none", fstest.MapFS{"tokenizer_config.json": file(`{"bos_token":null,"pad_token":null}`)}, -1, 6, -1},
		{"special tokens map", fstest.MapFS{"special_tokens_map.json": file(`{"eos_token":"ab"}`)}, 5, 4, 7},
		{"settings before the map", fstest.MapFS{"tokenizer_config.json": file(`{"eos_token":"a"}`), "special_tokens_map.json": file(`{"eos_token":"ab"}`)}, 5, 2, 7},
		{"added by the settings", fstest.MapFS{"tokenizer_config.json": file(`{"pad_token":"<new>","added_tokens_decoder":{"9":{"content":"<new>","special":true}}}`)}, 5, 6, 9},
	}
	for _, test := range tests {
		tok, err := loadSmall(vocab, test.files)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		get := func(id int32, ok bool) int32 {
			if ok != (id >= 0) {
				t.Errorf("%s: id %d, %v", test.name, id, ok)
			}
			return id
		}
		if b, e, p := get(tok.BOS()), get(tok.EOS()), get(tok.PAD()); b != test.bos || e != test.eos || p != test.pad {
			t.Errorf("%s: got %d %d %d, want %d %d %d", test.name, b, e, p, test.bos, test.eos, test.pad)
		}
	}
}

// TestSurround: what transformers 4.57 puts around a text where the class of the tokenizer decides on it.
func TestSurround(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	vocab := strings.Replace(small, `"ab":4}`, `"ab":4,"</s>":6}`, 1)
	for _, test := range []struct {
		settings string
		want     string
		addsBOS  bool
	}{
		{`{"tokenizer_class":"PreTrainedTokenizerFast","add_bos_token":false,"add_eos_token":true}`, "<s> ▁ a", true},
		{`{"tokenizer_class":"LlamaTokenizerFast"}`, "<s> ▁ a", true},
		{`{"tokenizer_class":"LlamaTokenizer","add_bos_token":false}`, "▁ a", false},
		{`{"tokenizer_class":"GemmaTokenizerFast"}`, "<s> ▁ a", true},
		{`{"tokenizer_class":"GemmaTokenizer","add_bos_token":false,"add_eos_token":true}`, "▁ a </s>", false},
		{`{"tokenizer_class":"GPTNeoXTokenizerFast"}`, "▁ a", false},
		{`{"tokenizer_class":"GPTNeoXTokenizerFast","add_bos_token":true}`, "<s> ▁ a", true},
		{`{"tokenizer_class":"LlamaTokenizer","add_bos_token":true,"add_eos_token":true}`, "<s> ▁ a </s>", true},
	} {
		tok, err := loadSmall(vocab, fstest.MapFS{"tokenizer_config.json": file(test.settings)})
		if err != nil {
			t.Errorf("%s: %v", test.settings, err)
			continue
		}
		if got := strings.Join(tok.Encode("a", true).Tokens, " "); got != test.want || tok.AddsBOS() != test.addsBOS {
			t.Errorf("%s: got %s, AddsBOS %v", test.settings, got, tok.AddsBOS())
		}
		if got := tok.Encode("a", true).IDs; !slices.Equal(got, tok.IDs("a", true)) {
			t.Errorf("%s: IDs gives %v, Encode %v", test.settings, tok.IDs("a", true), got)
		}
	}
	_, err := loadSmall(small, fstest.MapFS{"tokenizer_config.json": file(`{"tokenizer_class":"LlamaTokenizer","bos_token":null}`)})
	if err == nil || err.Error() != "load tokenizer m: tokenizer_config.json: a LlamaTokenizer adds bos_token, but there is none" {
		t.Error(err)
	}
}

func TestNamedTokensShared(t *testing.T) {
	dir := shared(t)
	want := map[string][4]string{ // bos, eos, pad, whether BOS is added
		"mistral-v0.3":     {"<s>", "</s>", "", "true"},
		"qwen2.5":          {"", "<|im_end|>", "<|endoftext|>", "false"},
		"smollm":           {"<|endoftext|>", "<|endoftext|>", "[PAD]", "false"},
		"smollm-newformat": {"<|endoftext|>", "<|endoftext|>", "[PAD]", "false"},
		"stories260K":      {"<s>", "</s>", "", "true"},
		"tinyllama":        {"<s>", "</s>", "</s>", "true"},
	}
	for name, folder := range sharedFolders {
		tok, err := Load(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		text := func(id int32, ok bool) string {
			s, _ := tok.Token(id)
			if !ok {
				return ""
			}
			return s
		}
		got := [4]string{text(tok.BOS()), text(tok.EOS()), text(tok.PAD()), strconv.FormatBool(tok.AddsBOS())}
		if got != want[name] {
			t.Errorf("%s: got %q, want %q", name, got, want[name])
		}
		for _, f := range []string{"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"} {
			onDisk, err := os.ReadFile(filepath.Join(dir, folder, f))
			if inFiles, ok := tok.Files()[f]; ok != (err == nil) || string(inFiles) != string(onDisk) {
				t.Errorf("%s: Files has %s: %v, %d bytes", name, f, ok, len(inFiles))
			}
		}
	}
}

// TestLlamaCpp compares with the ids that llama.cpp has for its own test texts.
func TestLlamaCpp(t *testing.T) {
	dir := shared(t)
	for vocab, name := range map[string]string{"qwen2": "qwen2.5", "llama-spm": "tinyllama", "phi-3": "tinyllama"} {
		tok, err := Load(filepath.Join(dir, sharedFolders[name]))
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Join(dir, "data/tokenizers/golden-llamacpp/ggml-vocab-"+vocab+".gguf")
		inp, err := os.ReadFile(base + ".inp")
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.ReadFile(base + ".out")
		if err != nil {
			t.Fatal(err)
		}
		texts := strings.Split(string(inp), "\n__ggml_vocab_test__\n")
		lines := strings.Split(string(out), "\n")
		n := 0
		for i, text := range texts {
			if i >= len(lines) || text == "" && i == len(texts)-1 {
				break
			}
			want := strings.Fields(lines[i])
			var got []string
			for _, id := range tok.IDs(text, false) {
				got = append(got, strconv.Itoa(int(id)))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, text %d %q:\n got %v\nwant %v", vocab, i, text, got, want)
			}
			n++
		}
		if n < 40 {
			t.Errorf("%s: only %d texts", vocab, n)
		}
	}
}

func TestStream(t *testing.T) {
	var corpus []string
	parse(t, referenceFile(t, "corpus.json"), &corpus)
	for _, name := range []string{"stories260K", "smollm"} {
		tok := embedded(t, name)
		for _, text := range corpus {
			ids := tok.IDs(text, true)
			want := tok.Decode(ids, true)
			s := tok.NewStream()
			var got strings.Builder
			for _, id := range ids {
				part := s.Push(id)
				if !utf8.ValidString(part) {
					t.Fatalf("%s, %q: half a character: %q", name, text, part)
				}
				got.WriteString(part)
			}
			got.WriteString(s.Flush())
			if got.String() != want && !strings.Contains(want, "\uFFFD") {
				t.Errorf("%s: got %q, want %q", name, got.String(), want)
			}
		}
	}
	tok := embedded(t, "stories260K")
	s := tok.NewStream()
	var parts []string
	for _, id := range tok.IDs("One 😀 day\nx", true) {
		parts = append(parts, s.Push(id))
	}
	if got, want := strings.Join(parts, "|"), "|One| ||||😀| day|\n|x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestConcurrent uses one tokenizer from several goroutines (run it with -race) and compares with what one alone gives.
func TestConcurrent(t *testing.T) {
	var corpus []string
	parse(t, referenceFile(t, "corpus.json"), &corpus)
	alone, tok := embedded(t, "smollm"), embedded(t, "smollm")
	want := make([][]int32, len(corpus))
	for i, text := range corpus {
		want[i] = alone.IDs(text, true)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for k := range corpus {
				i := (k + g*41) % len(corpus)
				if got := tok.IDs(corpus[i], true); !slices.Equal(got, want[i]) {
					t.Errorf("text %d: ids differ", i)
				}
				if got := tok.Encode(corpus[i], true).IDs; !slices.Equal(got, want[i]) {
					t.Errorf("text %d: ids with offsets differ", i)
				}
			}
		})
	}
	wg.Wait()
}

func TestInvalidUTF8(t *testing.T) {
	tok := embedded(t, "stories260K")
	got, want := tok.Encode("a\xffb\xe2\x82", false), tok.Encode("a\uFFFDb\uFFFD\uFFFD", false)
	if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Offsets, want.Offsets) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLossy: one U+FFFD for each maximal part (the examples of the Unicode standard, table 3-8, and others).
func TestLossy(t *testing.T) {
	for in, want := range map[string]string{
		"a\xF1\x80\x80\xE1\x80\xC2b\x80c\x80\xBFd": "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd",
		"\xE0\x80\x80":     "\uFFFD\uFFFD\uFFFD",
		"\xED\xA0\x80":     "\uFFFD\uFFFD\uFFFD",
		"\xF0\x9F\x98":     "\uFFFD",
		"\xF4\x90\x80\x80": "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xE2\x82":         "\uFFFD",
		"ok\uFFFD":         "ok\uFFFD",
	} {
		if got := lossy([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestFilesAreKept: a tokenizer loaded from its own Files gives the same ids.
func TestFilesAreKept(t *testing.T) {
	tok := embedded(t, "smollm")
	fsys := fstest.MapFS{}
	for name, b := range tok.Files() {
		fsys[name] = &fstest.MapFile{Data: b}
	}
	again, err := LoadFS(fsys, ".")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(tok.Files(), again.Files(), slices.Equal) || !slices.Equal(tok.IDs("Hello there 12", true), again.IDs("Hello there 12", true)) {
		t.Error("the copy differs")
	}
}

// TestSuffixAsBytes: byte fallback of the last character takes the suffix with it, which is not part of the text.
func TestSuffixAsBytes(t *testing.T) {
	vocab := `{"<unk>":0`
	for b := range 256 {
		vocab += fmt.Sprintf(`,"<0x%02X>":%d`, b, b+1)
	}
	file := strings.NewReplacer(`"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, `"byte_fallback":false`, `"byte_fallback":true`,
		`{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, vocab+`}`, `["a b"]`, `[]`, `"id":5`, `"id":257`, `[5]`, `[257]`).Replace(small)
	tok, err := loadSmall(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := tok.Encode("x", false)
	if len(e.IDs) != 3+1+4 {
		t.Errorf("got %v", e)
	}
	check(t, tok, "x", e)
}
