package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// countedTalks are rows whose numbers are known by hand: with plainTemplate and a token for each byte, "user:hi</s>\n"
// is 9 tokens and "assistant:ho</s>\n" 14, of which "ho</s>" is trained.
const countedTalks = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}
{"messages":[{"role":"user","content":"a</s>b"},{"role":"assistant","content":"c"}]}
{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}
{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"},{"role":"assistant","content":"w"}]}
{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","weight":0}]}
`

// TestReportOfConversations: every number of a small file, as text and as JSON.
func TestReportOfConversations(t *testing.T) {
	set, report, err := withTemplate(t, countedTalks, plainTemplate, nil)
	if err != nil {
		t.Fatal(err)
	}
	sha := report.Template.SHA256
	want := `data: data.jsonl (sha256 ` + report.SHA256[:12] + `), format messages, found from the keys of the first row
  rows: 5 read, 4 kept, 1 dropped
  dropped: 1 because no token is trained (data.jsonl:5)
  tokens: 114, trained 12 (10.5%), longest row 42
  longest: 42 tokens in 4 messages (data.jsonl:4); shortest: 20 tokens in 2 messages (data.jsonl:5)
  conversations: 5, turns trained 5
  special tokens: 1 inside the messages of 1 rows, read as plain text: </s> in 1 row
  template: the model's default template (sha256 ` + sha[:12] + `)
  trained: every message of the assistant, up to and with </s>, which ends its turn; all else is context
  duplicates: 1 rows have the tokens of an earlier row`
	if report.String() != want {
		t.Errorf("got\n%s\nwant\n%s", report, want)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(&again, report) {
		t.Errorf("read back from JSON (%v):\n%v\nwant\n%v", err, &again, report)
	}
	for _, part := range []string{
		`"rows":5,"kept":4,"dropped":[{"reason":"no token is trained","count":1,"where":["data.jsonl:5"]}]`,
		`"trained_tokens":12,"tokens":114,"cut_tokens":0`,
		`"longest":{"tokens":42,"messages":4,"where":"data.jsonl:4"}`,
		`"shortest":{"tokens":20,"messages":2,"where":"data.jsonl:5"}`, `"duplicates":1`,
		`"special_as_text":1,"special_as_text_rows":1`,
		`"special_found":[{"token":"\u003c/s\u003e","rows":1}]`, `"end_of_turn":["\u003c/s\u003e"]`,
		`"format_detected":true`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the JSON has no %s:\n%s", part, text)
		}
	}
	if c, err := set.Chat(); c == nil || err != nil {
		t.Errorf("the set's chat: %v, %v", c, err)
	}
}

// The sentence of what is trained, by the keys.
func TestReportSaysWhatIsTrained(t *testing.T) {
	markerless := strings.Replace(plainTemplate, `{{ '</s>\n' }}`, "", 1)
	markerless = strings.Replace(markerless, `{{ m.role + ':' }}`, `{{ '<s>' + m.role + ':' }}`, 1)
	markerless = strings.Replace(markerless, `{{ 'assistant:' }}`, `{{ '<s>assistant:' }}`, 1)
	for _, c := range []struct {
		name, template string
		change         func(*Config)
		want           string
	}{
		{"last", plainTemplate, func(c *Config) {
			c.TrainOn = "last"
		}, "the last message of the assistant, up to and with </s>, which ends its turn; all else is context"},
		{"all", plainTemplate, func(c *Config) { c.TrainOn = "all" }, "every token, what the template writes too"},
		{"roles", plainTemplate, func(c *Config) { c.RolesToTrain = []string{"assistant", "user"} },
			"every message of the assistant and user, up to and with </s>, which ends its turn; all else is context"},
		{"without", plainTemplate, func(c *Config) { c.TrainReasoning, c.TrainToolCalls = false, false },
			"every message of the assistant, up to and with </s>, which ends its turn, without its reasoning and its " +
				"tool calls; all else is context"},
		{"next role", markerless, nil, "every message of the assistant, up to and with the token that begins the " +
			"next turn (<s>); all else is context"},
	} {
		_, report, err := withTemplate(t, goodTalk, c.template, c.change)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if report.Trained != c.want {
			t.Errorf("%s: %q, want %q", c.name, report.Trained, c.want)
		}
	}
	for row, want := range map[string]string{
		`{"text":"a"}`: "every token", `{"input_ids":[5,6],"labels":[-100,6]}`: "what the labels of the rows say",
		`{"prompt":"p","completion":"c"}`: "the answer and </s> behind it; the prompt is context",
	} {
		if _, report, err := loadText(t, "d.jsonl", row, nil); err != nil || report.Trained != want {
			t.Errorf("%s: %q, %v, want %q", row, report.Trained, err, want)
		}
	}
}

func TestReportOfBatches(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		// 4 rows of 23, 26, 23 and 42 tokens, 114 in all; two of them in 64, padded or packed, leave 3 sequences or
		// more.
		{func(c *Config) {
			c.MaxLength, c.PadTo = 64, PadMaxLength
		}, "2 per epoch, of 128 tokens; rows are padded, 55.5% padding"},
		{func(c *Config) {
			c.MaxLength, c.Packing = 64, true
		}, "2 per epoch, of 96 tokens; rows are packed into sequences of 48 tokens, as there are too few to fill " +
			"max_length, 40.6% padding"},
	} {
		set, report, err := withTemplate(t, countedTalks, plainTemplate, c.change)
		if err != nil {
			t.Fatal(err)
		}
		l, err := set.TrainLoader(2)
		if err != nil {
			t.Fatal(err)
		}
		report.Batches = l.Report()
		if got := report.Batches.String(); got != c.want || !strings.Contains(report.String(), "\n  batches: "+c.want) {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// Of several files the numbers are added up, and the longest row is that of all.
func TestReportOfSeveralFiles(t *testing.T) {
	_, one, err := withTemplate(t, countedTalks, plainTemplate, nil)
	if err != nil {
		t.Fatal(err)
	}
	two := *one
	two.LongestRow, two.Chat.Found = Extent{99, 3, "other.jsonl:1"}, []Found{{"<s>", 2}, {"</s>", 1}}
	all := joinReports([]*Report{one, &two}, nil)
	if all.Chat.Conversations != 10 || all.Chat.Turns != 10 || all.Chat.Plain != 2 ||
		all.LongestRow.Where != "other.jsonl:1" || all.ShortestRow != one.ShortestRow {
		t.Errorf("%+v, longest %v, shortest %v", all.Chat, all.LongestRow, all.ShortestRow)
	}
	if want := []Found{{"</s>", 2}, {"<s>", 2}}; !reflect.DeepEqual(all.Chat.Found, want) || len(one.Chat.Found) != 1 ||
		one.Chat.Found[0].Rows != 1 {
		t.Errorf("found %v, want %v; the parts are changed: %v", all.Chat.Found, want, one.Chat.Found)
	}
}

// shape is a row's parts as text: "user 0-13 (0)".
func shape(in Inspected) string {
	var parts []string
	for _, p := range in.Parts {
		parts = append(parts, fmt.Sprintf("%s %d-%d (%d)", p.Role, p.From, p.To, p.Trained))
	}
	return strings.Join(parts, ", ")
}

func TestLook(t *testing.T) {
	set, _, err := withTemplate(t, countedTalks, plainTemplate, func(c *Config) { c.MaxLength = 30; c.ValSplit = 0.25 })
	if err != nil {
		t.Fatal(err)
	}
	rows, err := set.Look(context.Background(), 0, 9, bytesTokenizer{})
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := map[string]string{
		"data.jsonl:1": "user 0-9 (0), assistant 9-23 (3)", "data.jsonl:2": "user 0-13 (0), assistant 13-26 (2)",
		"data.jsonl:3": "user 0-9 (0), assistant 9-23 (3)",
		"data.jsonl:4": "user 0-8 (0), assistant 8-20 (2)", // cut behind the last whole turn
	}
	vals := 0
	for _, r := range rows {
		if got := shape(r); got != want[r.Where] || r.Note != "" {
			t.Errorf("%s: %s, want %s; %s", r.Where, got, want[r.Where], r.Note)
		}
		if r.Split == "val" {
			vals++
		}
		last := r.Tokens[len(r.Tokens)-1]
		if r.Where == "data.jsonl:4" && (r.Cut != 22 || !last.End || !last.Special || !last.Trained) {
			t.Errorf("cut %d, the last token %+v", r.Cut, last)
		}
		if r.Where == "data.jsonl:2" && (r.Tokens[6].Special || !r.Tokens[11].Special || r.Tokens[11].End) {
			t.Errorf("</s> in the text %+v, the template's %+v", r.Tokens[6], r.Tokens[11])
		}
	}
	if vals != 1 {
		t.Errorf("%d validation rows", vals)
	}
}

// The rows of a text that became several are found each.
func TestLookAtChunks(t *testing.T) {
	set, _, err := loadText(t, "d.jsonl", `{"text":"abcdefghij"}`, func(c *Config) { c.MaxLength = 5 })
	if err != nil {
		t.Fatal(err)
	}
	rows, err := set.Look(context.Background(), 0, 9, bytesTokenizer{})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []string{"text 0-5 (4)", "text 0-5 (4)", "text 0-2 (1)"} { // <s>abcd efghi j</s>
		if shape(rows[i]) != want || rows[i].Note != "" || rows[i].Cut != 0 {
			t.Errorf("row %d: %s, want %s; %s", i, shape(rows[i]), want, rows[i].Note)
		}
	}
}

// Formats without messages show their pieces; a source that has changed shows what is trained.
func TestLookAtOtherFormats(t *testing.T) {
	alpaca := 1 + len(alpacaIntro+"### Instruction:\na\n\n### Response:\n") // behind <s>
	for _, c := range []struct{ row, want string }{
		{`{"prompt":"ab","completion":"cde"}`, "prompt 0-4 (0), answer 4-8 (4)"}, // <s>ab\n cde</s>
		{`{"text":"abc"}`, "text 0-5 (4)"},
		{`{"segments":[{"text":"<s>ab","label":false},{"text":"c</s>","label":true}]}`,
			"prompt 0-3 (0), answer 3-5 (2)"},
		{`{"instruction":"a","output":"b"}`, fmt.Sprintf("prompt 0-%d (0), answer %d-%d (2)", alpaca,
			alpaca, alpaca+2)},
		{`{"input_ids":[5,6,7],"labels":[-100,6,-100]}`, "tokens 0-3 (1)"},
	} {
		set, _, err := loadText(t, "d.jsonl", c.row, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := set.Look(context.Background(), 0, 1, bytesTokenizer{})
		if err != nil || shape(rows[0]) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.row, shape(rows[0]), err, c.want)
		}
		set.again = nil
		rows, err = set.Look(context.Background(), 0, 1, bytesTokenizer{})
		if err != nil || !strings.HasPrefix(shape(rows[0]), "masked 0-") || rows[0].Note == "" {
			t.Errorf("%s without its source: %s, %v", c.row, shape(rows[0]), err)
		}
	}
}
