package dataset_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
)

// promptCompletionGolden is what TRL trains of rows whose prompt and completion are lists of messages.
type promptCompletionGolden struct {
	Rows      []json.RawMessage
	Templates []struct {
		Name, Source string
		BOS          string `json:"bos_token"`
		EOS          string `json:"eos_token"`
		Trained      []struct {
			Text, Error string
			Unprefixed  bool
			IDs, Labels []int32
		}
	}
}

// TestPromptAndCompletionEqualTRL: ids and loss masks of such rows are those of TRL's SFTTrainer.
func TestPromptAndCompletionEqualTRL(t *testing.T) {
	var want promptCompletionGolden
	golden.JSON(t, golden.Path(t, "chat/prompt_completion.json"), &want)
	compared := 0
	for _, template := range want.Templates {
		for i, trl := range template.Trained {
			set, report, err := withSources(t, string(want.Rows[i]), template.Source, template.BOS, template.EOS, func(*dataset.Config) {})
			if trl.Error != "" {
				if err == nil || !strings.Contains(err.Error(), trl.Error) {
					t.Errorf("%s, row %d: %v, want %s", template.Name, i, err, trl.Error)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, row %d: %v", template.Name, i, err)
				continue
			}
			got := set.Train.Row(0)
			if trl.Unprefixed {
				if text := trained(t, got); text != "Ahoy!</s>" {
					t.Errorf("%s, row %d: trained %q", template.Name, i, text)
				}
				continue
			}
			if set.Train.Len() != 1 || !slices.Equal(got.IDs, trl.IDs) || !slices.Equal(got.Labels, trl.Labels) {
				t.Errorf("%s, row %d: ids or labels differ\n%q\nwant\n%q\ntrained %q", template.Name, i, stories(t).Decode(got.IDs, false), trl.Text, trained(t, got))
			}
			if report.Format != "chat_completion" || report.KeysNotRead() != "" || report.Warning != "" {
				t.Errorf("%s, row %d: %v", template.Name, i, report)
			}
			compared++
		}
	}
	if compared != 28 {
		t.Errorf("%d rows were compared with TRL", compared)
	}
}

// trained is the text of a row's trained tokens.
func trained(t *testing.T, row dataset.Row) string {
	var ids []int32
	for _, label := range row.Labels {
		if label != dataset.Ignore {
			ids = append(ids, label)
		}
	}
	return stories(t).Decode(ids, false)
}

// TestPromptAndCompletionMessages: which messages are trained, what a mixed row's error says, and what the report says.
func TestPromptAndCompletionMessages(t *testing.T) {
	hi, hello := `[{"role":"user","content":"Hi"}]`, `[{"role":"assistant","content":"Hello"}]`
	quoted := func(s string) string { return strings.ReplaceAll(s, `"`, `\"`) }
	for _, c := range []struct {
		name, row string
		change    func(*dataset.Config)
		want      string // the trained text, or the error
	}{
		{"the case", `{"prompt":` + hi + `,"completion":` + hello + `}`, nil, "Hello</s>\n"},
		{"as it is named", `{"prompt":` + hi + `,"completion":` + hello + `}`, func(c *dataset.Config) { c.Format = "chat_completion" }, "Hello</s>\n"},
		{"with as_chat", `{"prompt":` + hi + `,"completion":` + hello + `}`, func(c *dataset.Config) { c.AsChat = "yes" }, "Hello</s>\n"},
		{"as text, which a table has", `{"prompt":"` + quoted(hi) + `","completion":"` + quoted(hello) + `"}`, nil, "Hello</s>\n"},
		{"an answer in the prompt", `{"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"completion":` + hello + `}`, nil, "Hello</s>\n"},
		{"a prompt's message that is to be trained", `{"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b","train":true},{"role":"user","content":"c"}],"completion":` + hello + `}`, nil,
			"b</s>Hello</s>\n"},
		{"a user in the completion", `{"prompt":` + hi + `,"completion":[{"role":"assistant","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]}`, nil, "a</s>c</s>\n"},
		{"the last", `{"prompt":` + hi + `,"completion":[{"role":"assistant","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]}`,
			func(c *dataset.Config) { c.TrainOn = "last" }, "c</s>\n"},
		{"turns of ShareGPT", `{"prompt":[{"from":"human","value":"Hi"}],"completion":[{"from":"gpt","value":"Hello"}]}`, nil, "Hello</s>\n"},
		{"a system column", `{"prompt":` + hi + `,"completion":` + hello + `,"system":"x"}`, nil, "Hello</s>\n"},

		{"a text and a list", `{"prompt":"Hi","completion":` + hello + `}`, nil,
			`field "completion" is a list of messages and field "prompt" is a string: both must be lists of messages, such as [{"role": "user", "content": …}], or both texts`},
		{"a list and a text", `{"prompt":` + hi + `,"completion":"Hello"}`, nil,
			`field "prompt" is a list of messages and field "completion" is a string: both must be lists of messages, such as [{"role": "assistant", "content": …}], or both texts`},
		{"as texts", `{"prompt":` + hi + `,"completion":` + hello + `}`, func(c *dataset.Config) { c.Format = "completion" },
			"prompt or completion is a list of messages: set dataset.format: chat_completion"},
		{"texts", `{"prompt":"a","completion":"b"}`, func(c *dataset.Config) { c.Format = "chat_completion" }, "prompt and completion are no lists of messages: set dataset.format: completion"},
		{"a later row", `{"prompt":"a","completion":"b"}` + "\n" + `{"prompt":` + hi + `,"completion":` + hello + `}`, nil,
			`rows.jsonl:2: field "prompt" is a list of messages, want a string: messages are read by the formats messages and sharegpt, and by chat_completion`},
		{"an empty completion", `{"prompt":` + hi + `,"completion":[]}`, nil, `field "prompt" is a list of messages and field "completion" is a list: both must be`},
		{"a wrong message", `{"prompt":` + hi + `,"completion":[{"role":"assistant","content":"a"},{"role":"assistant"}]}`, nil, "completion[1] has no content; it has role"},
		{"a prompt and its conversation", `{"prompt":` + hi + `,"completion":` + hello + `,"messages":` + hi + `}`, nil, "fit the formats chat_completion (prompt, completion) and messages (messages)"},
	} {
		set, report, err := withSources(t, c.row, toolsTemplate, "<s>", "</s>", func(cfg *dataset.Config) {
			if c.change != nil {
				c.change(cfg)
			}
		})
		switch {
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		case err == nil:
			if got := strings.ReplaceAll(trained(t, set.Train.Row(0)), "</s> ", "</s>"); strings.ReplaceAll(got, " ", "") != c.want || report.Format != "chat_completion" {
				t.Errorf("%s: trained %q, want %q\n%v", c.name, got, c.want, report)
			}
		}
		if want := "in the completion, up to and with </s>, which ends its turn, and what the template writes behind the last message"; err == nil && !strings.Contains(report.Trained, want) {
			t.Errorf("%s: %s", c.name, report.Trained)
		}
	}
}
