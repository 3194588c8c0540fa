package tokenizer

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// specialID and surroundID are the places of ids in post-processors.
var (
	specialID  = regexp.MustCompile(`"ids":\s*\[\d+\]`)
	surroundID = regexp.MustCompile(`"(sep|cls)":\["[^"]*",\d+\]`)
)

// FuzzLoad: no file makes Load panic, and a tokenizer that loads can encode and decode.
func FuzzLoad(f *testing.F) {
	var p pipelines
	parse(f, referenceFile(f, "pipelines.json"), &p)
	f.Add(small)
	for name, c := range releases(f).Cases {
		if name != "unigram-level" { // its vocabulary has every byte
			p.Cases["release "+name] = c
		}
	}
	for _, c := range p.Cases {
		// Short enough to mutate well: the pipeline with the vocabulary of the small tokenizer.
		var file, model map[string]json.RawMessage
		parse(f, c.File, &file)
		parse(f, file["model"], &model)
		if string(model["type"]) == `"Unigram"` {
			model["vocab"] = json.RawMessage(`[["<unk>",0],["▁",-1],["a",-2],["b",-2.5],["ab",-3],["<s>",0],["</s>",0],["Ġ",-4],["<0x0A>",0],["[UNK]",0]]`)
		} else {
			model["vocab"] = json.RawMessage(`{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4,"<s>":5,"</s>":6,"Ġ":7,"<0x0A>":8,"[UNK]":9}`)
		}
		if string(model["type"]) == `"BPE"` {
			model["merges"] = json.RawMessage(`[["a","b"]]`)
		}
		file["model"], _ = json.Marshal(model)
		file["added_tokens"] = json.RawMessage(`[{"id":5,"content":"<s>","single_word":false,"lstrip":true,"rstrip":true,"normalized":true,"special":true}]`)
		b, _ := json.Marshal(file)
		seed := surroundID.ReplaceAllString(specialID.ReplaceAllString(string(b), `"ids":[5]`), `"$1":["<s>",5]`)
		if _, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: []byte(seed)}}, "."); err != nil {
			f.Fatalf("a seed does not load: %v", err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: []byte(file)}}, ".")
		if err != nil {
			return
		}
		for _, text := range []string{"", " ab  <s> b'll 12\n\n", "é漢字\x00 e\u0301", "\xff<s>"} {
			e := tok.Encode(text, true)
			check(t, tok, text, e)
			if ids := tok.IDs(text, true); !slices.Equal(ids, e.IDs) {
				t.Errorf("%q: IDs gives %v, Encode %v", text, ids, e.IDs)
			}
			tok.Decode(e.IDs, true)
		}
		tok.Decode([]int32{-1, 1 << 30, 0, 1, 2}, false)
	})
}

// check holds an encoding to what is true of every one: ids of the vocabulary, offsets inside the text and in order.
func check(t *testing.T, tok *Tokenizer, text string, e Encoding) {
	t.Helper()
	if len(e.IDs) != len(e.Tokens) || len(e.IDs) != len(e.Offsets) {
		t.Fatalf("%q: %d ids, %d tokens, %d offsets", text, len(e.IDs), len(e.Tokens), len(e.Offsets))
	}
	n := utf8.RuneCountInString(text)
	for i, id := range e.IDs {
		if _, ok := tok.Token(id); !ok || int(id) >= tok.VocabSize() {
			t.Fatalf("%q: id %d is not in the vocabulary of %d", text, id, tok.VocabSize())
		}
		if o := e.Offsets[i]; o[0] < 0 || o[0] > o[1] || o[1] > n {
			t.Fatalf("%q: token %d has offsets %v in a text of %d", text, i, o, n)
		}
	}
}

// FuzzRoundTrip: the ids of any text decode to that text where the pipeline loses nothing, both ways of encoding agree,
// and a stream gives out the same text.
func FuzzRoundTrip(f *testing.F) {
	var corpus []string
	parse(f, referenceFile(f, "corpus.json"), &corpus)
	for _, text := range corpus {
		if len(text) < 500 {
			f.Add(text)
		}
	}
	llama, gpt2 := embedded(f, "stories260K"), embedded(f, "smollm")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*Tokenizer{llama, gpt2} {
			e := tok.Encode(text, false)
			check(t, tok, text, e)
			ids := tok.IDs(text, false)
			if !slices.Equal(ids, e.IDs) {
				t.Fatalf("%q: IDs gives %v, Encode %v", text, ids, e.IDs)
			}
			got := tok.Decode(ids, false)
			// Llama: "▁" and "<0x41>" stand for other things, and a special token swallows the space that Prepend put
			// after it.
			if tok == llama && utf8.ValidString(text) && !strings.ContainsAny(text, "▁<\uFFFD") && got != text {
				t.Fatalf("%q decodes to %q", text, got)
			}
			if tok == gpt2 && utf8.ValidString(text) && !tok.model.(*bpe).lacks(text) && !strings.Contains(text, "[PAD]") && !strings.Contains(text, "<") && got != text {
				t.Fatalf("%q decodes to %q", text, got)
			}
			s := tok.NewStream()
			var b strings.Builder
			for _, id := range ids {
				b.WriteString(s.Push(id))
			}
			b.WriteString(s.Flush())
			if want := tok.Decode(ids, true); b.String() != want && !strings.Contains(want, "\uFFFD") {
				t.Fatalf("%q: the stream gives %q, Decode %q", text, b.String(), want)
			}
		}
	})
}

// FuzzMerge: the heap and the scan leave the same tokens.
func FuzzMerge(f *testing.F) {
	f.Add("abababcabc")
	f.Add(strings.Repeat("the ", 40))
	tok := embedded(f, "smollm")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 400 {
			text = text[:400]
		}
		var a, b scratch
		for i := range len(text) {
			if id := tok.model.(*bpe).byteID[text[i]]; id >= 0 {
				a.symbols = append(a.symbols, symbol{id: id, size: 1})
			}
		}
		if len(a.symbols) < 2 {
			return
		}
		b.symbols = slices.Clone(a.symbols)
		a.mergeShort(&tok.model.(*bpe).pairs)
		b.mergeLong(&tok.model.(*bpe).pairs)
		same := func(x, y symbol) bool { return x.id == y.id && x.size == y.size }
		if !slices.EqualFunc(a.symbols, b.symbols, same) {
			t.Errorf("%q: scan %v, heap %v", text, a.symbols, b.symbols)
		}
	})
}
