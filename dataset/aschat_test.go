package dataset_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// asChatGolden is what transformers makes of rows of columns that are written as messages.
type asChatGolden struct {
	Rows []struct {
		Format   string
		Row      json.RawMessage
		Messages json.RawMessage
	}
	Templates []struct {
		Name, Source string
		BOS          string `json:"bos_token"`
		EOS          string `json:"eos_token"`
		Rendered     []struct {
			Text, Error string
			Unprefixed  bool
			IDs, Labels []int32
		}
	}
}

// withSources loads one row with a model's chat template; an empty template is a model without one.
func withSources(t testing.TB, row, template, bos, eos string, change func(*dataset.Config)) (*dataset.Set, *dataset.Report, error) {
	t.Helper()
	cfg := dataset.Default()
	cfg.Path, cfg.MaxLength = "rows.jsonl", 4096
	sources := &chat.Sources{Templates: map[string]string{}, Tokens: jinja.NewDict()}
	if template != "" {
		sources.Templates["default"] = template
	}
	for name, token := range map[string]string{"bos_token": bos, "eos_token": eos} {
		if token != "" {
			sources.Tokens.Set(name, jinja.Str(token))
		}
	}
	cfg.Chat = func() (*chat.Sources, error) { return sources, nil }
	change(&cfg)
	return dataset.LoadFS(context.Background(), fstest.MapFS{"rows.jsonl": {Data: []byte(row + "\n")}}, cfg, stories(t))
}

// TestAsChatEqualsMessages: ids and loss masks of rows with as_chat equal those of the same rows written as messages, and
// those of transformers' apply_chat_template.
func TestAsChatEqualsMessages(t *testing.T) {
	var want asChatGolden
	golden.JSON(t, golden.Path(t, "chat/as_chat.json"), &want)
	compared := 0
	for _, template := range want.Templates {
		for i, rendered := range template.Rendered {
			row := want.Rows[i]
			load := func(row, format, asChat string) (*dataset.Set, *dataset.Report, error) {
				return withSources(t, row, template.Source, template.BOS, template.EOS, func(c *dataset.Config) { c.Format, c.AsChat = format, asChat })
			}
			set, report, err := load(string(row.Row), row.Format, dataset.AsChatYes)
			same, _, err2 := load(`{"messages":`+string(row.Messages)+`}`, "messages", "")
			if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
				t.Errorf("%s, row %d: %v; as messages %v", template.Name, i, err, err2)
				continue
			}
			if rendered.Error != "" {
				if err == nil || !strings.Contains(err.Error(), rendered.Error) {
					t.Errorf("%s, row %d: %v, want %s", template.Name, i, err, rendered.Error)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, row %d: %v", template.Name, i, err)
				continue
			}
			if !report.AsChat || report.Warning != "" || report.Chat.Conversations != 1 {
				t.Errorf("%s, row %d: %v", template.Name, i, report)
			}
			for _, asChat := range []string{dataset.AsChatAuto, dataset.AsChatYes} {
				detected, _, err := load(string(row.Row), "", asChat)
				if err != nil || !equalRows(detected, set) {
					t.Errorf("%s, row %d, %s: other rows without format: %v", template.Name, i, asChat, err)
				}
			}
			if !equalRows(set, same) {
				t.Errorf("%s, row %d: other rows than as messages", template.Name, i)
			}
			if rendered.Unprefixed {
				continue
			}
			got := set.Train.Row(0)
			if !slices.Equal(got.IDs, rendered.IDs) || !slices.Equal(got.Labels, rendered.Labels) {
				t.Errorf("%s, row %d: ids or labels differ\n%q\nwant\n%q", template.Name, i, stories(t).Decode(got.IDs, false), rendered.Text)
			}
			compared++
		}
	}
	if compared != 31 {
		t.Errorf("%d rows were compared with transformers", compared)
	}
}

func equalRows(a, b *dataset.Set) bool {
	if a.Train.Len() != b.Train.Len() {
		return false
	}
	for i := range a.Train.Len() {
		x, y := a.Train.Row(i), b.Train.Row(i)
		if !slices.Equal(x.IDs, y.IDs) || !slices.Equal(x.Labels, y.Labels) {
			return false
		}
	}
	return true
}

const (
	testTemplate = `{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`
	answerRow    = `{"question":"Two and two?","answer":"Four."}`
)

// TestAsChatModes: which rows are conversations, and what the report says of it.
func TestAsChatModes(t *testing.T) {
	plain, _, err := withSources(t, answerRow, "", "", "", func(*dataset.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asChat, template, named string
		chat, warns             bool
	}{
		{"", "", "", false, false},
		{"", testTemplate, "", false, true}, // as it was, and not without a word
		{"no", testTemplate, "", false, false},
		{"no", "", "", false, false},
		{"yes", testTemplate, "", true, false},
		{"yes", "", "chatml", true, false},
		{"auto", testTemplate, "", true, false},
		{"auto", "", "", false, false},
		{"auto", "", "chatml", true, false},
	} {
		set, report, err := withSources(t, answerRow, c.template, "", "</s>", func(cfg *dataset.Config) { cfg.AsChat, cfg.ChatTemplate = c.asChat, c.named })
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if report.AsChat != c.chat || (report.Warning == dataset.PlainTextWarning) != c.warns || (report.Chat.Conversations == 1) != c.chat || equalRows(set, plain) == c.chat {
			t.Errorf("%+v: %v", c, report)
		}
		if said := strings.Contains(report.String(), "\n  warning: rows are trained as plain text although"); said != c.warns {
			t.Errorf("%+v: the report warns: %v\n%v", c, said, report)
		}
	}
	if _, _, err := withSources(t, answerRow, "", "", "", func(c *dataset.Config) { c.AsChat = "yes" }); err == nil || !strings.Contains(err.Error(), "hold no chat template") {
		t.Errorf("yes without a template: %v", err)
	}
	for _, row := range []string{`{"text":"a"}`, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`} {
		if _, report, err := withSources(t, row, testTemplate, "", "</s>", func(*dataset.Config) {}); err != nil || report.Warning != "" || report.AsChat {
			t.Errorf("%s: %v\n%v", row, err, report)
		}
	}
}

// TestAsChatSystem: the system message is the row's, else that of the configuration; the report knows the one of all.
func TestAsChatSystem(t *testing.T) {
	row := func(s *dataset.Set) string {
		return strings.ReplaceAll(stories(t).Decode(s.Train.Row(0).IDs, false), "</s> ", "</s>")
	}
	rows := answerRow + "\n" + `{"question":"Hi","answer":"Ho","tone":"Be loud."}`
	for _, c := range []struct {
		name, rows, system string
		fields             map[string]string
		first, all         string // text of the first row; system message of all
	}{
		{"none", rows, "", nil, "user:Two and two?</s>assistant:Four.</s>", ""},
		{"fixed", rows, "Be brief.", nil, "system:Be brief.</s>user:Two and two?</s>assistant:Four.</s>", "Be brief."},
		{"column and fixed", rows, "Be brief.", map[string]string{"system": "tone"}, "system:Be brief.</s>user:Two and two?</s>assistant:Four.</s>", ""},
		{"column", rows, "", map[string]string{"system": "tone"}, "user:Two and two?</s>assistant:Four.</s>", ""},
		{"known column", `{"system_prompt":"Be loud.","question":"Hi","response":"Ho"}`, "Be brief.", nil, "system:Be loud.</s>user:Hi</s>assistant:Ho</s>", "Be loud."},
		{"blank column", `{"system_prompt":" ","question":"Hi","response":"Ho"}`, "", nil, "user:Hi</s>assistant:Ho</s>", ""},
		{"alpaca", `{"instruction":"Hi","output":"Ho"}`, "Be brief.", nil, "system:Be brief.</s>user:Hi</s>assistant:Ho</s>", "Be brief."},
		{"messages", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}`, "Be brief.", nil, "system:Be brief.</s>user:Hi</s>assistant:Ho</s>", "Be brief."},
		{"own system", `{"messages":[{"role":"system","content":"Be loud."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}`, "Be brief.", nil, "system:Be loud.</s>user:Hi</s>assistant:Ho</s>", "Be loud."},
		{"sharegpt", `{"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Ho"}]}`, "Be brief.", nil, "system:Be brief.</s>user:Hi</s>assistant:Ho</s>", "Be brief."},
	} {
		set, report, err := withSources(t, c.rows, testTemplate, "", "</s>", func(cfg *dataset.Config) {
			cfg.AsChat, cfg.System, cfg.Fields = dataset.AsChatYes, c.system, c.fields
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := row(set); got != c.first || report.Chat.System != c.all {
			t.Errorf("%s: %q, want %q; system %q, want %q", c.name, got, c.first, report.Chat.System, c.all)
		}
		if several := strings.HasPrefix(c.name, "column"); (report.Chat.SystemPrompts == "several") != several {
			t.Errorf("%s: system prompts %q", c.name, report.Chat.SystemPrompts)
		}
		// A row that is shown is the row that is trained.
		shown, err := set.Look(context.Background(), 0, 1, stories(t))
		if err != nil || len(shown) != 1 || shown[0].Note != "" || len(shown[0].Parts) < 2 {
			t.Errorf("%s: shown %+v: %v", c.name, shown, err)
		}
	}
}

// TestAsChatBroken: wrong rows and settings, with the whole error.
func TestAsChatBroken(t *testing.T) {
	for _, c := range []struct {
		name, row string
		change    func(*dataset.Config)
		want      string
	}{
		{"no such value", answerRow, func(c *dataset.Config) { c.AsChat = "ja" }, `dataset.as_chat: "ja" is not one of auto, yes, no`},
		{"text", `{"text":"a"}`, func(c *dataset.Config) { c.AsChat = "yes" },
			`rows.jsonl:1: dataset.as_chat is yes, and rows of the format text have no prompt and answer to make a conversation of: remove it`},
		{"given text", `{"text":"a"}`, func(c *dataset.Config) { c.AsChat, c.Format = "yes", "text" },
			`dataset.as_chat is yes, and rows of the format text have no prompt and answer to make a conversation of: remove it`},
		{"separator", answerRow, func(c *dataset.Config) { c.AsChat, c.Separator = "auto", "\n\n" },
			`rows.jsonl:1: dataset.separator does nothing with format completion: remove it`},
		{"prompt", answerRow, func(c *dataset.Config) { c.AsChat, c.Format, c.TrainOnPrompt = "yes", "completion", true },
			`dataset.train_on_prompt does nothing with format completion, where rows are conversations and dataset.train_on says what is trained: remove it`},
		{"system of plain text", answerRow, func(c *dataset.Config) { c.System, c.Format = "Be brief.", "completion" },
			`dataset.system does nothing with format completion, whose rows are trained as plain text: remove it, or set dataset.as_chat: yes to train them as conversations`},
		{"field of conversations", answerRow, func(c *dataset.Config) { c.Format, c.Fields = "completion", map[string]string{"system": "tone"} },
			`dataset.fields: format completion has no field "system", it has prompt, completion; with dataset.as_chat: yes it has system too`},
		{"system is a list", `{"question":"a","answer":"b","system":["c"]}`, func(c *dataset.Config) { c.AsChat = "yes" }, `rows.jsonl:1: field "system" is a list, want a string`},
		{"history is text", `{"question":"a","answer":"b","history":"c"}`, func(c *dataset.Config) { c.AsChat = "yes" },
			`rows.jsonl:1: field "history" is a string, want a list of [instruction, output] pairs of texts`},
		{"no such key", answerRow, func(c *dataset.Config) { c.AsChat, c.Fields = "yes", map[string]string{"prompt": "q"} }, `rows.jsonl:1: `},
	} {
		_, _, err := withSources(t, c.row, testTemplate, "", "</s>", c.change)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	if _, report, err := withSources(t, `{"question":"a","answer":""}`+"\n"+answerRow, testTemplate, "", "</s>", func(c *dataset.Config) { c.AsChat = "yes" }); err != nil || report.DroppedRows() != 1 {
		t.Errorf("an empty answer: %v %v", report, err)
	}
}

// TestAsChatCache: the cache tells conversations from plain text, and system messages apart.
func TestAsChatCache(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ asChat, system, note string }{
		{"", "", "written"}, {"yes", "", "written"}, {"yes", "Be brief.", "written"}, {"yes", "Be brief.", "read"}, {"auto", "Be brief.", "written"}, {"", "", "read"},
	} {
		set, report, err := withSources(t, answerRow, testTemplate, "", "</s>", func(cfg *dataset.Config) {
			cfg.AsChat, cfg.System, cfg.CacheDir = c.asChat, c.system, filepath.Join(dir, "cache")
		})
		if err != nil || set.Train.Len() != 1 {
			t.Fatalf("%+v: %v", c, err)
		}
		if !strings.HasPrefix(report.CacheNote, "tokens "+c.note) || report.Chat.System != c.system || report.AsChat != (c.asChat != "") || (report.Warning == "") != (c.asChat != "") {
			t.Errorf("%+v: %v", c, report)
		}
	}
}

// TestPromptsOfMessagesAreNoPlainText checks that prompts which are messages are conversations without a warning, and
// that prompts of text warn.
func TestPromptsOfMessagesAreNoPlainText(t *testing.T) {
	for row, talks := range map[string]bool{`{"prompt": [{"role": "user", "content": "Two?"}]}`: true,
		`{"prompt": "Two?"}`: false} {
		_, report, err := withSources(t, row, testTemplate, "", "</s>", func(c *dataset.Config) { c.Prompts = true })
		if err != nil {
			t.Fatal(err)
		}
		if report.AsChat != talks || (report.Warning == "") != talks {
			t.Errorf("%s: conversations %v, warning %q", row, report.AsChat, report.Warning)
		}
	}
}
