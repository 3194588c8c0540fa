package dataset

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// show writes a row as text with the trained part in brackets.
func show(r Row) string {
	tok := bytesTokenizer{}
	var b strings.Builder
	trained := false
	for t, id := range r.IDs {
		if now := r.Labels[t] != Ignore; now != trained {
			b.WriteString(map[bool]string{true: "[", false: "]"}[now])
			trained = now
		}
		piece, _ := tok.Token(id)
		b.WriteString(piece)
	}
	if trained {
		b.WriteString("]")
	}
	return b.String()
}

// rowsOfFile is a file and its rows: trained tokens in brackets.
type rowsOfFile struct {
	name, file string
	change     func(*Config)
	want       []string
}

func checkRows(t *testing.T, files []rowsOfFile) {
	t.Helper()
	for _, c := range files {
		t.Run(c.name, func(t *testing.T) {
			set, _, err := loadText(t, "data.jsonl", c.file, c.change)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range all(set.Train) {
				got = append(got, show(r))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestRows(t *testing.T) {
	checkRows(t, []rowsOfFile{
		{"completion", `{"prompt":"q","completion":"a"}`, nil, []string{"<s>q\n[a</s>]"}},
		{"question and answer", `{"question":"q","answer":"a"}`, nil, []string{"<s>q\n[a</s>]"}},
		{"fields of one's choice", `{"x":"q","y":"a"}`, func(c *Config) { c.Fields = map[string]string{"prompt": "x", "completion": "y"} }, []string{"<s>q\n[a</s>]"}},
		{"verbatim", `{"prompt":"q ","completion":"a"}`, func(c *Config) { c.Separator = "" }, []string{"<s>q [a</s>]"}},
		{"train on prompt", `{"prompt":"q","completion":"a"}`, func(c *Config) { c.TrainOnPrompt = true }, []string{"<s>[q\na</s>]"}},
		{"own start and end", `{"prompt":"<s>q","completion":"a</s>"}`, nil, []string{"<s>q\n[a</s>]"}},
		{"text", "\xef\xbb\xbf{\"text\":\"ab\"}\r\n\n  \n{\"text\":\"\\u00e9\"}", nil, []string{"<s>[ab</s>]", "<s>[é</s>]"}},
		{"surrogate pair", `{"text":"\ud83d\ude00\\ud83d"}`, nil, []string{"<s>[😀\\ud83d</s>]"}},
		{"list", "[\n {\"text\": \"ab\", \"meta\": {\"k\": [1, \"]\\\"}\"]}}\n,\n {\"text\": \"c\"} ]\n", nil, []string{"<s>[ab</s>]", "<s>[c</s>]"}},
		{"alpaca", `{"instruction":"Do it.","output":"done","input":null}`, nil,
			[]string{"<s>" + alpacaIntro + "### Instruction:\nDo it.\n\n### Response:\n[done</s>]"}},
		{"alpaca with input", `{"instruction":"Do it.","input":"x","output":"done","text":"the whole"}`, nil,
			[]string{"<s>" + alpacaIntroInput + "### Instruction:\nDo it.\n\n### Input:\nx\n\n### Response:\n[done</s>]"}},
		{"tokenized", `{"input_ids":[101,102,2,0],"labels":[-100,102,2,-100],"attention_mask":[1,1,1,0]}`, nil, []string{"a[b</s>]"}},
		{"tokenized with a boolean mask", `{"input_ids":[101,102,2,0],"labels":[-100,102,2,-100],"attention_mask":[true,true,true,false]}`, nil, []string{"a[b</s>]"}},
		{"tokenized, ids alone", `{"input_ids":[101,102,2,0],"attention_mask":[1,1,1,0]}`, func(c *Config) { c.Fields = map[string]string{"labels": "input_ids"} }, []string{"a[b</s>]"}},
		{"dolly", `{"instruction":"Do it.","context":"","response":"done","category":"x"}`, nil,
			[]string{"<s>" + alpacaIntro + "### Instruction:\nDo it.\n\n### Response:\n[done</s>]"}},
		{"first label is never trained", `{"input_ids":[101,102],"labels":[101,102]}`, nil, []string{"a[b]"}},
		{"cut", `{"prompt":"q","completion":"abcdef"}`, func(c *Config) { c.MaxLength = 5 }, []string{"<s>q\n[ab]"}},
	})
}

func TestNoBOS(t *testing.T) {
	cfg := Default()
	cfg.Path = "d.jsonl"
	files := fstest.MapFS{"d.jsonl": {Data: []byte(`{"prompt":"q","completion":"a"}`)}}
	set, _, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{noBOS: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(set.Train.Row(0)); got != "q\n[a</s>]" {
		t.Errorf("got %q", got)
	}
}
