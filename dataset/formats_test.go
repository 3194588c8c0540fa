package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFormatRows(t *testing.T) {
	ask := func(s string) string { return "### Instruction:\n" + s + "\n\n### Response:\n" }
	checkRows(t, []rowsOfFile{
		{"alpaca with a system text", `{"instruction":"Do it.","output":"done","system":"Be kind."}`, nil, []string{"<s>Be kind.\n\n" + ask("Do it.") + "[done</s>]"}},
		{"alpaca with history", `{"instruction":"c","input":"x","output":"d","history":[["a","b"]]}`, nil,
			[]string{"<s>" + alpacaIntro + ask("a") + "[b</s>]\n\n" + ask("c\n\n### Input:\nx") + "[d</s>]"}},
		{"alpaca with an empty history", `{"instruction":"a","output":"b","history":[]}`, nil, []string{"<s>" + alpacaIntro + ask("a") + "[b</s>]"}},
		{"segments", `{"segments":[{"text":"<s>q ","label":false},{"text":"a</s>","label":true},{"text":" q","label":false}]}`, nil, []string{"<s>q [a</s>] q"}},
		{"segments bring their own ends", `{"segments":[{"text":"q","label":false},{"text":"a","label":true}]}`, nil, []string{"q[a]"}},
		{"preference", `{"prompt":"q","chosen":"a","rejected":"b"}`, nil, []string{"<s>q[a</s>]<s>q[b</s>]"}},
		{"nested fields", `{"q":{"text":"a"},"r":[{"s":"b"}]}`, func(c *Config) { c.Fields = map[string]string{"prompt": "q.text", "completion": "r.0.s"} }, []string{"<s>a\n[b</s>]"}},
		{"a key with a dot", `{"q.text":"a","q":{"text":"no"},"completion":"b"}`, func(c *Config) { c.Fields = map[string]string{"prompt": "q.text"} }, []string{"<s>a\n[b</s>]"}},
		{"input and output", `{"input":"a","output":"b"}`, nil, []string{"<s>a\n[b</s>]"}},
		{"query and response", `{"query":"a","response":"b","type":"GSM"}`, nil, []string{"<s>a\n[b</s>]"}},
		{"alpaca with an input is alpaca", `{"instruction":"Do it.","input":"","output":"done"}`, nil, []string{"<s>" + alpacaIntro + ask("Do it.") + "[done</s>]"}},
		{"alpaca with its prompt is alpaca", `{"instruction":"Do it.","output":"done","prompt":"Instruction: Do it."}`, nil, []string{"<s>" + alpacaIntro + ask("Do it.") + "[done</s>]"}},
		{"auto", `{"prompt":"a","completion":"b"}`, func(c *Config) { c.Format = FormatAuto }, []string{"<s>a\n[b</s>]"}},
		{"a long text", `{"text":"abcdefgh"}`, func(c *Config) { c.MaxLength = 4 }, []string{"<s>[abc]", "d[efg]", "h[</s>]"}},
		{"no chunk of one token", `{"text":"abcdefg"}`, func(c *Config) { c.MaxLength = 4 }, []string{"<s>[abc]", "d[ef]", "g[</s>]"}},
		{"a long text is cut", `{"text":"abcdefgh"}`, func(c *Config) { c.MaxLength, c.OnTruncated = 4, TruncatedKeep }, []string{"<s>[abc]"}},
		{"a long answer is cut", `{"prompt":"q","completion":"abcdef"}`, func(c *Config) { c.MaxLength = 5 }, []string{"<s>q\n[ab]"}},
	})
}

func TestBrokenFormats(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{`{"instruction":"a","output":"b","history":"c"}`, `field "history" is a string, want a list of [instruction, output] pairs of texts`},
		{`{"instruction":"a","output":"b","history":["c"]}`, `history[0] is a string, want a list of [instruction, output] pairs of texts`},
		{`{"instruction":"a","output":"b","history":[["c"]]}`, `history[0] has 1 elements, want [instruction, output]`},
		{`{"instruction":"a","output":"b","history":[["c",1]]}`, `field "history[0]" is a number, want a string`},
		{`{"segments":"a"}`, `field "segments" is a string, want a list of objects`},
		{`{"segments":["a"]}`, `segments[0] is a string, want an object`},
		{`{"segments":[{"text":"a"}]}`, `segments[0] has no label: want {"text": …, "label": true or false}`},
		{`{"segments":[{"text":"a","label":1}]}`, `segments[0]: field "label" is a number, want true or false`},
		{`{"segments":[{"text":1,"label":true}]}`, `segments[0]: field "text" is a number, want a string`},
	} {
		_, _, err := loadText(t, "d.jsonl", c.file, nil)
		if err == nil || err.Error() != "d.jsonl:1: "+c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.file, err, c.want)
		}
	}
}

// TestRealFormats loads a real data set of every format. The counts were taken from the files by other means (jq, wc).
func TestRealFormats(t *testing.T) {
	root := os.Getenv("TRAINER_DATA")
	if root == "" {
		t.Skip("TRAINER_DATA is unset: it names the folder with the shared data and goldens")
	}
	chatml := func(c *Config) { c.ChatTemplate = "chatml" }
	for _, c := range []struct {
		path, format   string
		change         func(*Config)
		rows, kept     int
		fields, untrue string
	}{
		{path: "axolotl-fixtures/alpaca.json", format: "alpaca", rows: 2, kept: 2},
		{path: "torchtune-tiny/alpaca_tiny.json", format: "alpaca", rows: 100, kept: 100},
		{path: "torchtune-tiny/instruct_tiny.json", format: "alpaca", rows: 2, kept: 2},
		{path: "litgpt-fixtures/dolly.json", format: "alpaca", rows: 12, kept: 12},
		{path: "litgpt-fixtures/longform_train.json", format: "completion", rows: 17, kept: 17},
		{path: "seed_tasks.jsonl", format: "alpaca", rows: 175, kept: 175,
			change: func(c *Config) {
				c.Fields = map[string]string{"input": "instances.0.input", "output": "instances.0.output"}
			}},
		{path: "gsm8k/test.jsonl", format: "completion", rows: 1319, kept: 1319},
		{path: "mlx-wikisql", format: "text", rows: 1000, kept: 1000},
		{path: "axolotl-fixtures/conversation.tokenized.json", format: "tokenized", rows: 1, kept: 1},
		{path: "torchtune-tiny/hh_rlhf_tiny.json", format: "preference", rows: 1, kept: 1, change: chatml},
		{path: "torchtune-tiny/stack_exchange_paired_tiny.json", format: "preference", rows: 25, kept: 25},
		{path: "llamafactory/v1_dpo_demo.jsonl", format: "preference", rows: 10, kept: 10, change: chatml},
		{path: "tinystories/*.txt", format: "text", change: func(c *Config) { c.TextBy, c.MaxLength = "document", 4096 }, rows: 1},
		{path: "tinyshakespeare/input.txt", format: "text", change: func(c *Config) { c.TextBy = "paragraph" }, rows: 7222, kept: 7222},
	} {
		t.Run(c.path, func(t *testing.T) {
			cfg := Default()
			cfg.Path, cfg.MaxLength = filepath.Join(root, "data/datasets", c.path), 1<<20
			cfg.Preferences = c.format == "preference"
			if c.change != nil {
				c.change(&cfg)
			}
			_, report, err := Load(context.Background(), cfg, wideTokenizer{})
			if err != nil {
				t.Fatal(err)
			}
			if report.Format != c.format || report.Rows != c.rows || c.kept > 0 && report.Kept != c.kept || report.CutTokens > 0 {
				t.Errorf("%v", report)
			}
		})
	}
}

// wideTokenizer takes the ids of real vocabularies too.
type wideTokenizer struct{ bytesTokenizer }

func (wideTokenizer) Token(id int32) (string, bool) { return "x", id >= 0 && id < 1<<17 }

// TestWeights: how many rows an epoch takes of each source, and that the same seed takes the same ones.
func TestWeights(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a", "b", "c"} {
		var text strings.Builder
		for i := range 10 {
			fmt.Fprintf(&text, "{\"text\":\"%s%d\"}\n", name, i)
		}
		files[name+".jsonl"] = &fstest.MapFile{Data: []byte(text.String())}
	}
	rows := func(seed uint64, change func(*Config)) ([]string, []string, *Report) {
		t.Helper()
		cfg := Default()
		cfg.Seed = seed
		cfg.Sources = []Source{{Path: "a.jsonl", Weight: 2.5}, {Path: "b.jsonl", Weight: 0.3}, {Path: "c.jsonl", Weight: 1, Split: "train[:20%]+train[8:]"}}
		if change != nil {
			change(&cfg)
		}
		set, report, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		var train, val []string
		for i, r := range all(set.Train) {
			train = append(train, strings.Trim(show(r), "<s>[]/"))
			if set.Train.Length(i) != len(r.IDs) || set.Train.Trained(i) != r.Trained() {
				t.Errorf("row %d: length %d, trained %d", i, set.Train.Length(i), set.Train.Trained(i))
			}
		}
		for _, r := range all(set.Val) {
			val = append(val, strings.Trim(show(r), "<s>[]/"))
		}
		return train, val, report
	}
	count := func(rows []string, row string) (n int) {
		for _, r := range rows {
			if r == row {
				n++
			}
		}
		return n
	}
	train, _, report := rows(1, nil)
	if len(train) != 25+3+4 || report.TrainRows != 32 || report.Kept != 24 {
		t.Fatalf("%d rows: %q\n%v", len(train), train, report)
	}
	if !slices.Equal(train[28:], []string{"c0", "c1", "c8", "c9"}) || !slices.IsSorted(train) {
		t.Errorf("rows are not in file order: %q", train)
	}
	for i := range 10 {
		if n := count(train, fmt.Sprint("a", i)); n != 2 && n != 3 {
			t.Errorf("a%d is taken %d times with weight 2.5", i, n)
		}
		if n := count(train, fmt.Sprint("b", i)); n > 1 {
			t.Errorf("b%d is taken %d times with weight 0.3", i, n)
		}
	}
	again, _, _ := rows(1, nil)
	other, _, _ := rows(2, nil)
	if !slices.Equal(train, again) || slices.Equal(train, other) {
		t.Error("the seed does not decide the rows")
	}
	train, val, report := rows(1, func(c *Config) { c.ValSplit = 0.25 })
	if len(val) != 6 || report.ValRows != 6 || report.Leaked != 0 {
		t.Errorf("held out: %q\n%v", val, report)
	}
	for _, r := range val {
		if count(train, r) > 0 {
			t.Errorf("%s is held out and trained on", r)
		}
	}
	_, val, report = rows(1, func(c *Config) {
		c.ValSources = []Source{{Path: "c.jsonl", Split: "train[-2:]", Weight: 1}, {Path: "b.jsonl", Split: "train[:1]", Weight: 1}}
	})
	if !slices.Equal(val, []string{"c8", "c9", "b0"}) || report.Leaked < 2 {
		t.Errorf("validation sources: %q, %d leaked", val, report.Leaked)
	}
	for _, want := range []string{
		"data: 3 sources (sha256 ", "), format text, found from the keys of the first row\n  rows: 24 read, 24 kept, 0 dropped\n",
		"\nsource 0: a.jsonl (sha256 ", "0 dropped; weight 2.5 takes 25 an epoch\n", "\nsource 1: b.jsonl (sha256 ", "weight 0.3 takes 3 an epoch\n",
		"\nsource 2: c.jsonl, train[:20%]+train[8:] (sha256 ", "format text, found from the keys of the first row, 2 files\n  rows: 4 read, 4 kept", "\nvalidation data: 2 sources", "\nvalidation source 1: b.jsonl, train[:1]",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report has no %q:\n%v", want, report)
		}
	}
}

// TestSlicesKeepPlaces: a row keeps its number and line, and only the slice is read.
func TestSlicesKeepPlaces(t *testing.T) {
	file := "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n{\"text\":1}\n"
	set, report, err := LoadFS(context.Background(), fstest.MapFS{"d.jsonl": {Data: []byte(file)}},
		func() Config {
			c := Default()
			c.Sources = []Source{{Path: "d.jsonl", Split: "train[1:2]", Weight: 1}}
			return c
		}(), bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	if r := set.Train.Row(0); set.Train.Len() != 1 || r.Index != 1 || r.Line != 3 || r.Where() != "d.jsonl:3" || report.Rows != 1 {
		t.Errorf("%+v\n%v", set.Train.Row(0), report)
	}
}

// TestContainersGiveTheSame: the same rows from every container, through a folder, a pattern and their cache.
func TestContainersGiveTheSame(t *testing.T) {
	dir := t.TempDir()
	rows := "{\"prompt\":\"a\",\"completion\":\"b, c\"}\n{\"prompt\":\"d\",\"completion\":\"é\\n\"}\n"
	for name, text := range map[string]string{"1/d.jsonl": rows, "2/d.csv": "prompt,completion\na,\"b, c\"\nd,\"é\n\"\n", "3/d.tsv": "prompt\tcompletion\na\tb, c\nd\t\"é\n\"\n",
		"4/d.jsonl.gz": gzipped(t, rows), "5/d.json.zst": zstandard(t, "["+strings.Replace(strings.TrimSpace(rows), "\n", ",\n", 1)+"]"), "6/d": rows} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"1", "2", "3", "4", "5", "6/d", "1/*.jsonl", "**/*.gz"} {
		for range 2 {
			cfg := Default()
			cfg.Path, cfg.CacheDir = filepath.Join(dir, path), filepath.Join(dir, "cache")
			set, _, err := Load(context.Background(), cfg, bytesTokenizer{})
			if err != nil {
				t.Error(err)
				continue
			}
			if set.Train.Len() != 2 || show(set.Train.Row(0)) != "<s>a\n[b, c</s>]" || show(set.Train.Row(1)) != "<s>d\n[é\n</s>]" {
				t.Errorf("%s: %q", path, show(set.Train.Row(0)))
			}
		}
	}
	cfg := Default()
	cfg.Path, cfg.CacheDir, cfg.Fields = "source/testdata/chat_zstd_v2.parquet", filepath.Join(dir, "cache"), map[string]string{"prompt": "messages.0.content", "completion": "messages.0.role"}
	var first *Set
	for range 2 {
		set, _, err := Load(context.Background(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		if r := set.Train.Row(17); set.Train.Len() != 60 || r.Where() != "source/testdata/chat_zstd_v2.parquet row 18" || show(r) != "<s>question 17 é 東京\n[user</s>]" {
			t.Errorf("%s: %s", r.Where(), show(r))
		}
		if first != nil && show(first.Train.Row(59)) != show(set.Train.Row(59)) {
			t.Error("the cache gives another row")
		}
		first = set
	}
}
