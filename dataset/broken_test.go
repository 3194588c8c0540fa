package dataset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset/source"
)

// brokenFiles is every way a data file is known to be wrong, with the whole error.
// brokenFile is a file that cannot be loaded, and the whole error.
type brokenFile struct {
	name, path, content string
	change              func(*Config)
	want                string
}

func checkBroken(t *testing.T, files []brokenFile) {
	t.Helper()
	for _, c := range files {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := loadText(t, c.path, c.content, c.change)
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			if err.Error() != c.want {
				t.Errorf("\ngot  %q\nwant %q", err.Error(), c.want)
			}
		})
	}
}

var brokenFiles = []brokenFile{
	{"no rows", "data.jsonl", "", nil, "data.jsonl: the file holds no row"},
	{"blank lines only", "data.jsonl", "\n \n\t\n", nil, "data.jsonl: the file holds no row"},
	{"byte order mark only", "data.jsonl", "\xef\xbb\xbf", nil, "data.jsonl: the file holds no row"},
	{"empty list", "data.json", " [ ] \n", nil, "data.json: the file holds no row"},
	{"gzip", "data.jsonl", "\x1f\x8b\x08\x00", nil, "data.jsonl: the file ends in the middle of its gzip data: it is cut off"},
	{"parquet", "data.jsonl", "PAR1....", nil, "data.jsonl: the Parquet file is damaged: it has 8 bytes"},
	{"utf-16", "data.jsonl", "\xff\xfe{\x00", nil, "data.jsonl: the file is UTF-16: save it as UTF-8"},
	{"not json", "data.jsonl", "{\"text\":\"a\"}\nhello\n", nil,
		"data.jsonl:2: byte 1 of the row: expected a value, found hello"},
	{"missing comma", "data.jsonl", "\n{\"prompt\":\"a\" \"completion\":\"b\"}\n", nil,
		"data.jsonl:2: byte 15 of the row: expected ',' or '}' behind the value, found '\"'"},
	{"pretty-printed object", "data.json", "\n{\n  \"text\": \"a\"\n}\n", nil,
		"data.json:2: the first row ends in the middle of its JSON: want JSONL (a whole object on one line) or a JSON list of objects"},
	{"plain text", "data.dat", "\nFirst Citizen:\n", nil, "data.dat:2: the file begins with 'F': want JSONL (an object a line) or a JSON list of objects, or a name that ends in .csv, .tsv, .txt or .parquet"},
	{"row cut off", "data.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b", nil,
		"data.jsonl:2: the row ends in the middle of its JSON (JSONL needs a whole object on one line)"},
	{"rows on one line of a list", "data.json", `[{"text":"a"},{"text":"b"},{"text":null}]`, nil, `data.json:1 (row 3): field "text" is null`},
	{"two rows on a line", "data.jsonl", `{"text":"a"}{"text":"b"}`, nil,
		"data.jsonl:1: byte 13 of the row: expected the end of the text, found '{' behind the value"},
	{"row is a list", "data.jsonl", "{\"text\":\"a\"}\n[1]\n", nil,
		"data.jsonl:2: the row is a list, want an object like {\"prompt\": …, \"completion\": …}"},
	{"row is a number", "data.json", "[1]", nil,
		"data.json:1: the row is a number, want an object like {\"prompt\": …, \"completion\": …}"},
	{"row is null", "data.jsonl", "{\"text\":\"a\"}\nnull", nil,
		"data.jsonl:2: the row is null, want an object like {\"prompt\": …, \"completion\": …}"},
	{"error inside a list names its own line", "data.json", "[\n{\"text\": \"a\"},\n{\n \"text\": \"b\",\n \"x\": tru\n}\n]", nil,
		"data.json:5: byte 23 of the row: expected a value, found tru"},
	{"lines inside rows are counted", "data.json", "[{\n\"text\": \"a\"\n}\n,\n{\"text\":\n1}]", nil, "data.json:5: field \"text\" is a number, want a string"},
	{"list cut off", "data.json", "[\n{\"text\": \"a\"},\n{\"text\": \"b", nil,
		"data.json:3: the file ends inside its list: it is cut off"},
	{"list cut off behind a row", "data.json", "[{\"text\": \"a\"},\n", nil, "data.json:2: the file ends inside its list: it is cut off"},
	{"comma before the bracket", "data.json", "[{\"text\": \"a\"},\n]", nil, "data.json:2: a row was expected, found ']'"},
	{"something behind the list", "data.json", "[{\"text\": \"a\"}]\n{}", nil, "data.json:2: found '{' behind the end of the list"},
	{"invalid UTF-8", "data.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xe9t\xe9\"}", nil, "data.jsonl:2: byte 10 of the row (0xe9) is not UTF-8"},
	{"half a surrogate pair", "data.jsonl", `{"text":"\ud83d!"}`, nil,
		`data.jsonl:1: field "text" holds half of a surrogate pair (\ud83d), which is no character`},
	{"deep nesting", "data.jsonl", `{"text":"a","x":` + strings.Repeat("[", 70000) + strings.Repeat("]", 70000) + "}", nil,
		"data.jsonl:1: the row is nested deeper than 64 levels"},
	{"huge row", "data.jsonl", "{\"text\":\"a\"}\n{\"text\":\"" + strings.Repeat("a", source.MaxRowBytes) + "\"}\n{\"text\":1}", nil,
		"data.jsonl:2: the row is longer than 16 MiB\ndata.jsonl:3: field \"text\" is a number, want a string"},
	{"huge row in a list", "data.json", "[{\"text\":\"" + strings.Repeat("a", source.MaxRowBytes) + "\"},\n{\"text\":1}]", nil,
		"data.json:1: the row is longer than 16 MiB\ndata.json:2: field \"text\" is a number, want a string"},
	{"a key twice", "data.jsonl", `{"text":"a","text":"b"}`, nil, `data.jsonl:1: the key "text" is given twice`},
	{"wrong type", "data.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":7}", nil,
		`data.jsonl:2: field "completion" is a number, want a string`},
	{"null field", "data.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":null}", nil,
		`data.jsonl:2: field "completion" is null`},
	{"missing field, near key", "data.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completions\":\"b\"}", nil,
		`data.jsonl:2: field "completion" is missing; the nearest key of the row is "completions"`},
	{"missing field, no near key", "data.jsonl", `{"q":"a","reply":"b"}`, func(c *Config) { c.Format = "alpaca" },
		`data.jsonl:1: field "instruction" is missing; the row has q, reply: dataset.fields says which keys are read, and rows of one source have one format`},
	{"ids without labels", "data.jsonl", `{"input_ids":[1,2],"attention_mask":[1,1]}`, nil,
		`data.jsonl:1: the keys input_ids, attention_mask are those of format tokenized, but field "labels" is missing: where every token is trained, dataset.fields: {labels: input_ids} says so`},
	{"ids without labels, named", "data.jsonl", `{"input_ids":[1,2]}`, func(c *Config) { c.Format = "tokenized" },
		`data.jsonl:1: field "labels" is missing; the row has input_ids: where every token is trained, dataset.fields: {labels: input_ids} says so`},
	{"mapped field missing", "data.jsonl", `{"question":"a","answer":"b"}`,
		func(c *Config) {
			c.Format, c.Fields = "completion", map[string]string{"prompt": "questions", "completion": "answer"}
		},
		`data.jsonl:1: field "questions" is missing; the nearest key of the row is "question"`},
	{"unknown format", "data.jsonl", "\n{\"letters\":[]}", nil,
		"data.jsonl:2: no format fits the keys letters (alpaca needs instruction and output; chat_completion needs prompt and completion as lists of messages; completion needs prompt and completion; messages needs messages; preference needs chosen and rejected; segments needs segments; sharegpt needs conversations; text needs text; tokenized needs input_ids and labels; tokenized_preference needs chosen_input_ids and chosen_labels and rejected_input_ids and rejected_labels): set dataset.format and dataset.fields"},
	{"rows in an object", "data.json", `{"version":"1.0","data":[{"prompt":"a","completion":"b"}]}`, nil,
		`data.json:1: the rows are a list under the key "data" of one object: write that list alone into the file (with jq: jq .data FILE)`},
	{"rows under a key with a blank", "data.json", `{"my rows":[{"prompt":"a","completion":"b"}]}`, nil,
		`data.json:1: the rows are a list under the key "my rows" of one object: write that list alone into the file (with jq: jq '.["my rows"]' FILE)`},
	{"conversations under a key", "data.json", `{"version":1,"all":[[{"role":"user","content":"a"}]]}`, nil,
		`data.json:1: the rows are a list under the key "all" of one object: write that list alone into the file (with jq: jq .all FILE)`},
	{"a conversation under another key", "data.jsonl", `{"chat":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n" + `{"chat":[{"role":"user","content":"c"}]}`, nil,
		`data.jsonl:1: the row's conversation is under the key "chat": set dataset.fields to {messages: chat}`},
	{"turns under another key", "data.jsonl", `{"id":1,"chat log":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}],"tags":[{"a":1}]}`, nil,
		`data.jsonl:1: the row's conversation is under the key "chat log": set dataset.fields to {conversations: "chat log"}`},
	{"two conversations", "data.jsonl", `{"a":[{"role":"user","content":"a"}],"b":[{"role":"user","content":"b"}]}`, nil,
		`data.jsonl:1: the row has conversations under the keys a, b: set dataset.fields to {messages: KEY} with the one to train on`},
	{"one message a row", "data.json", `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, nil,
		`data.json:1: the row is one message, and a row is a whole conversation, such as {"messages": [...]}: where the file is a single one, wrap it (with jq: jq '{messages: .}' FILE)`},
	{"lists of something else", "data.jsonl", "[1,2]\n[3,4]\n", nil,
		"data.jsonl:1: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\ndata.jsonl:2: the row is a list, want an object like {\"prompt\": …, \"completion\": …}"},
	{"an answer in a list", "data.jsonl", `{"id":1,"instruction":"a","instances":[{"input":"","output":"b"}]}`, nil,
		`data.jsonl:1: the keys id, instruction, instances hold a part of a row of format alpaca, and what it lacks lies in a list: set dataset.fields to {input: instances.0.input, output: instances.0.output}`},
	{"ambiguous format", "data.jsonl", `{"instruction":"a","output":"b","prompt":"c","completion":"d"}`, nil,
		"data.jsonl:1: the keys instruction, output, prompt, completion fit the formats alpaca (instruction, output) and completion (prompt, completion): set dataset.format to the one to train on; keys that it does not read are named in the report"},
	{"lengths differ", "data.jsonl", `{"input_ids":[5,6,7],"labels":[5,6]}`, nil,
		`data.jsonl:1: field "input_ids" has 3 elements and field "labels" has 2: they must be equally long`},
	{"id outside the vocabulary", "data.jsonl", `{"input_ids":[5,260],"labels":[5,260]}`, nil,
		"data.jsonl:1: input_ids[1] is 260, which is not in the vocabulary"},
	{"negative id", "data.jsonl", `{"input_ids":[5,-1],"labels":[5,-100]}`, nil,
		"data.jsonl:1: input_ids[1] is -1, which is not in the vocabulary"},
	{"id is no whole number", "data.jsonl", `{"input_ids":[5,6.5],"labels":[5,6]}`, nil, "data.jsonl:1: input_ids[1] is 6.5, want a whole number"},
	{"id beyond 32 bits", "data.jsonl", `{"input_ids":[5,4294967301],"labels":[5,5]}`, nil, "data.jsonl:1: input_ids[1] is 4294967301, want a whole number"},
	{"ids are text", "data.jsonl", `{"input_ids":"5 6","labels":[5,6]}`, nil, `data.jsonl:1: field "input_ids" is a string, want a list of whole numbers`},
	{"labels are shifted", "data.jsonl", `{"input_ids":[5,6,7],"labels":[6,7,2]}`, nil,
		"data.jsonl:1: labels[0] is 6, but input_ids[0] is 5: a label is -100 or the id at its own position (labels are not shifted)"},
	{"padding on the left", "data.jsonl", `{"input_ids":[0,6,7],"labels":[-100,6,7],"attention_mask":[0,1,1]}`, nil,
		"data.jsonl:1: attention_mask[1] is 1: want ones, then zeros for padding on the right"},
	{"every row masked", "data.jsonl", "{\"input_ids\":[5,6],\"labels\":[-100,-100]}\n{\"input_ids\":[5],\"labels\":[5]}", nil,
		"data.jsonl: no row is left to train on, all 2 were dropped: 2 because no token is trained (data.jsonl:1, data.jsonl:2)"},
	{"every answer cut off or empty", "data.jsonl", "{\"prompt\":\"abcdefgh\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":\"\"}", func(c *Config) { c.MaxLength = 8 },
		"data.jsonl: no row is left to train on, all 2 were dropped: 1 because the answer is empty (data.jsonl:2); 1 because the answer is cut off entirely at max_length (data.jsonl:1); raise dataset.max_length, or shorten the rows"},
	{"cut is an error", "data.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"abcdefgh\"}", func(c *Config) { c.MaxLength, c.OnTruncated = 8, TruncatedError },
		"data.jsonl:2: the row has 10 tokens, more than max_length 8 (on_truncated is error)"},
	{"key that does nothing with the format found", "data.jsonl", `{"text":"a"}`, func(c *Config) { c.TrainOnPrompt = true },
		"data.jsonl:1: dataset.train_on_prompt does nothing with format text, where every token is trained already: remove it"},
	{"many malformed rows", "data.jsonl", "{\"text\":\"a\"}" + strings.Repeat("\n[]", 7), nil,
		"data.jsonl:2: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\n" +
			"data.jsonl:3: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\n" +
			"data.jsonl:4: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\n" +
			"data.jsonl:5: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\n" +
			"data.jsonl:6: the row is a list, want an object like {\"prompt\": …, \"completion\": …}\n" +
			"data.jsonl: 2 more rows are malformed"},
	{"nothing left to train on", "data.jsonl", `{"text":"a"}`, func(c *Config) { c.ValSplit = 0.5 },
		"data.jsonl: val_split 0.5 of 1 rows leaves no row to train on"},
}

func TestBrokenFiles(t *testing.T) { checkBroken(t, brokenFiles) }

func TestUnreadable(t *testing.T) {
	cfg := Default()
	dir := t.TempDir()
	ctx := context.Background()
	cfg.Path = filepath.Join(dir, "absent.jsonl")
	_, _, err := Load(ctx, cfg, bytesTokenizer{})
	if !errors.Is(err, os.ErrNotExist) || err.Error() != "read data: open "+cfg.Path+": no such file or directory" {
		t.Errorf("absent file: %v", err)
	}
	cfg.Path = dir
	if _, _, err = Load(ctx, cfg, bytesTokenizer{}); err == nil || err.Error() != "read data: the folder "+dir+" holds no data file (.arrow, .csv, .json, .jsonl, .ndjson, .parquet, .tsv, .txt, also with .gz or .zst)" {
		t.Errorf("folder: %v", err)
	}
	cfg.Path = filepath.Join(dir, "d.jsonl")
	if err := os.WriteFile(cfg.Path, []byte(`{"text":"a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = Load(ctx, cfg, bytesTokenizer{noEOS: true}); err == nil ||
		err.Error() != "prepare data: the tokenizer names no end token (eos_token), so a model could not learn to stop" {
		t.Errorf("no end token: %v", err)
	}
	ids := cfg
	ids.Path, ids.Format = filepath.Join(dir, "ids.jsonl"), "tokenized"
	if err := os.WriteFile(ids.Path, []byte(`{"input_ids":[101,102],"labels":[-100,102]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if set, _, err := Load(ctx, ids, bytesTokenizer{noEOS: true}); err != nil || set.Train.Len() != 1 {
		t.Errorf("ids need no end token: %v", err)
	}
	ids.Sources, ids.Path = []Source{{Path: ids.Path, Weight: 1}, {Path: cfg.Path, Format: "text", Weight: 1}}, ""
	if _, _, err = Load(ctx, ids, bytesTokenizer{noEOS: true}); err == nil || !strings.Contains(err.Error(), "names no end token") {
		t.Errorf("ids and a text: %v", err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, _, err = Load(stopped, cfg, bytesTokenizer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"default with a path", func(*Config) {}, nil},
		{"all at once", func(c *Config) {
			c.Path, c.MaxLength, c.ValSplit, c.PadTo, c.OnTruncated, c.Format = "", 1, 1, "long", "cut", "alpacca"
		}, []string{
			`dataset.format: "alpacca" is not one of auto, alpaca, chat_completion, classification, completion, messages, pairs, preference, prompts, rollouts, segments, sharegpt, text, token_classification, tokenized, tokenized_classification, tokenized_preference, tokenized_token_classification, tokenized_unpaired, unpaired; did you mean alpaca?`,
			"dataset.max_length: 1 must be from 2 to 1048576",
			"dataset.val_split: 1 must be at least 0 and below 1",
			`dataset.pad_to: "long" is not one of none, max_length`,
			`dataset.on_truncated: "cut" is not one of auto, chunk, keep, drop, error`,
			"dataset.path is missing: name a data file, a folder or a hub data set such as org/name, or list dataset.sources",
		}},
		{"two validation sources", func(c *Config) { c.ValSplit, c.ValPath = 0.1, "data.jsonl" }, []string{
			"dataset.val_split and val_path are both set: keep one",
			"dataset.val_path is the training file itself: use val_split to hold out a part of it",
		}},
		{"keys that do nothing", func(c *Config) {
			c.Format, c.Separator, c.TrainOnPrompt = "tokenized", "", true
		}, []string{
			"dataset.separator does nothing with format tokenized: remove it",
			"dataset.train_on_prompt does nothing with format tokenized, where the labels decide what is trained: remove it",
		}},
		{"fields", func(c *Config) {
			c.Format, c.Fields = "completion", map[string]string{"promt": "a", "completion": ""}
		}, []string{
			"dataset.fields.completion is empty: name a key of the file",
			`dataset.fields: format completion has no field "promt", it has prompt, completion; did you mean prompt?`,
		}},
		{"fields without a format", func(c *Config) { c.Fields = map[string]string{"instuction": "a", "output": "b", "input": "b"} }, []string{
			`dataset.fields: no format has a field "instuction"; did you mean instruction?`,
			`dataset.fields: input and output both name the key "b"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Default()
			cfg.Path = "data.jsonl"
			c.change(&cfg)
			var got []string
			for _, err := range cfg.Validate() {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("\ngot  %q\nwant %q", got, c.want)
			}
		})
	}
}
