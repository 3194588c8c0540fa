package dataset

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// showSequences is show for each sequence of a row, and its label.
func showSequences(r Row) string {
	var parts []string
	for k := range r.Sequences() {
		ids, labels := r.Sequence(k)
		parts = append(parts, show(Row{IDs: ids, Labels: labels}))
	}
	text := strings.Join(parts, " | ")
	if r.Desirable != Unlabelled {
		text += " " + r.Desirable.String()
	}
	return text
}

// letterTemplate writes a letter for the role, the content and a line end.
const letterTemplate = "{%- for m in messages %}{{ m.role[0] }}:" +
	"{{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"

// loadPreferences loads a file as a run that learns from preferences does.
func loadPreferences(content string, change func(*Config)) (*Set, *Report, error) {
	cfg := Default()
	cfg.Path, cfg.Preferences, cfg.MaxLength = "d.jsonl", true, 512
	cfg.Chat = func() (*chat.Sources, error) {
		return &chat.Sources{Templates: map[string]string{"default": letterTemplate}, Tokens: jinja.NewDict()}, nil
	}
	if change != nil {
		change(&cfg)
	}
	files := fstest.MapFS{"d.jsonl": {Data: []byte(content)}, "d.csv": {Data: []byte(content)}}
	return LoadFS(context.Background(), files, cfg, bytesTokenizer{})
}

// TestPreferenceSpellings: rows in every spelling that is in use become the same pairs and the same labelled answers.
func TestPreferenceSpellings(t *testing.T) {
	const (
		q    = `{"role":"user","content":"q"}`
		a    = `{"role":"assistant","content":"a"}`
		b    = `{"role":"assistant","content":"b"}`
		pair = "u:q\na:[a\n] | u:q\na:[b\n]"
	)
	part := func(role, text string, weight int) string {
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","value":%q}],"loss_weight":%d}`, role, text, weight)
	}
	for _, c := range []struct{ name, file, want string }{
		{"texts", `{"prompt":"q","chosen":"a","rejected":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"stack exchange", `{"question":"q","response_j":"a","response_k":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"Argilla's texts", `{"instruction":"q","chosen_response":"a","rejected_response":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"LLaMA-Factory's ranking", `{"instruction":"q","input":"x","chosen":"a","rejected":"b"}`,
			"<s>q\nx[a</s>] | <s>q\nx[b</s>]"},
		{"an empty input", `{"instruction":"q","input":"","chosen":"a","rejected":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"Axolotl's chatml.icr", `{"input":"q","chosen":"a","rejected":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"an implicit prompt", `{"chosen":"The sun is hot.","rejected":"The sun is cold."}`,
			"<s>The sun is[ hot.</s>] | <s>The sun is[ cold.</s>]"},
		{"one answer begins the other", `{"chosen":"abc","rejected":"abcd"}`, "<s>ab[c</s>] | <s>ab[cd</s>]"},
		{"characters of several bytes", `{"chosen":"éà","rejected":"éè"}`, "<s>é[à</s>] | <s>é[è</s>]"},
		{"HH-RLHF", `{"chosen":"\n\nHuman: q\n\nAssistant: It is a","rejected":"\n\nHuman: q\n\nAssistant: It is b"}`,
			"<s>\n\nHuman: q\n\nAssistant:[ It is a</s>] | <s>\n\nHuman: q\n\nAssistant:[ It is b</s>]"},
		{"HH-RLHF of several turns",
			`{"chosen":"\n\nHuman: q\n\nAssistant: x\n\nHuman: r\n\nAssistant: a","rejected":"\n\nHuman: q\n\nAssistant: x\n\nHuman: r\n\nAssistant: b"}`,
			"<s>\n\nHuman: q\n\nAssistant: x\n\nHuman: r\n\nAssistant:[ a</s>] | " +
				"<s>\n\nHuman: q\n\nAssistant: x\n\nHuman: r\n\nAssistant:[ b</s>]"},
		{"an end of its own", `{"prompt":"q","chosen":"a</s>","rejected":"b"}`, "<s>q[a</s>] | <s>q[b</s>]"},
		{"an empty answer", `{"prompt":"q","chosen":"a","rejected":""}`, "<s>q[a</s>] | <s>q[</s>]"},
		{"lists", `{"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`, pair},
		{"an implicit prompt in lists", `{"chosen":[` + q + `,` + a + `],"rejected":[` + q + `,` + b + `]}`, pair},
		{"the same message written otherwise",
			`{"chosen":[` + q + `,` + a + `],"rejected":[{"content": "\u0071", "role":"user"},` + b + `]}`, pair},
		{"UltraFeedback",
			`{"prompt":"q","prompt_id":"x","messages":[` + q + `,` + a + `],"chosen":[` + q + `,` + a + `],"rejected":[` +
				q + `,` + b + `],"score_chosen":8.5,"score_rejected":7}`, pair},
		{"a text before lists", `{"prompt":"q","chosen":[` + a + `],"rejected":[` + b + `]}`, pair},
		{"lists before texts", `{"prompt":[` + q + `],"chosen":"a","rejected":"b"}`, pair},
		{"OpenAI", `{"input":{"messages":[` + q + `],"tools":[],"parallel_tool_calls":true},"preferred_output":[` + a +
			`],"non_preferred_output":[` + b + `]}`, pair},
		{"Axolotl's chat_template", `{"messages":[` + q + `],"chosen":` + a + `,"rejected":` + b + `}`, pair},
		{"LLaMA-Factory's ShareGPT", `{"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},` +
			`"rejected":{"from":"gpt","value":"b"}}`, pair},
		{"LLaMA-Factory's messages", `{"chosen_messages":[` + part("user", "q", 0) + `,` + part("assistant", "a", 1) +
			`],"rejected_messages":[` + part("user", "q", 0) + `,` + part("assistant", "b", 1) + `]}`, pair},
		{"a system field", `{"system":"s","prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`,
			"s:s\nu:q\na:[a\n] | s:s\nu:q\na:[b\n]"},
		{"several turns",
			`{"chosen":[` + q + `,` + a + `,` + q + `,` + a + `],"rejected":[` + q + `,` + a + `,` + q + `,` + b + `]}`,
			"u:q\na:a\nu:q\na:[a\n] | u:q\na:a\nu:q\na:[b\n]"},
		{"lists as strings",
			`{"chosen":"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]",` +
				`"rejected":"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"b\"}]"}`, pair},
		{"tokens", `{"chosen_input_ids":[101,102,2],"chosen_labels":[-100,102,2],"rejected_input_ids":[101,103],"rejected_labels":[-100,103]}`,
			"a[b</s>] | a[c]"},
		{"tokens with padding",
			`{"chosen_input_ids":[101,102,0],"chosen_labels":[-100,102,-100],"chosen_attention_mask":[1,1,0],` +
				`"rejected_input_ids":[101,103,0],"rejected_labels":[-100,103,-100],"rejected_attention_mask":[1,1,0]}`, "a[b] | a[c]"},

		{"KTO", `{"prompt":"q","completion":"a","label":true}`, "<s>q[a</s>] desirable"},
		{"KTO, to avoid", `{"prompt":"q","completion":"a","label":false}`, "<s>q[a</s>] undesirable"},
		{"KTO with numbers", `{"prompt":"q","completion":"a","label":0}`, "<s>q[a</s>] undesirable"},
		{"KTO with lists", `{"prompt":[` + q + `],"completion":[` + a + `],"label":true}`, "u:q\na:[a\n] desirable"},
		{"LLaMA-Factory's KTO", `{"messages":[` + q + `,` + a + `],"label":false}`, "u:q\na:[a\n] undesirable"},
		{"LLaMA-Factory's KTO of texts", `{"instruction":"q","input":"","output":"a","kto_tag":true}`,
			"<s>q[a</s>] desirable"},
		{"KTO of tokens", `{"input_ids":[101,102],"labels":[-100,102],"label":false}`, "a[b] undesirable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, report, err := loadPreferences(c.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := showSequences(set.Train.Row(0)); set.Train.Len() != 1 || got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if report.Groups.Single() || !Formats[report.Format].Preference || !report.Detected {
				t.Errorf("%v", report)
			}
		})
	}
}

// TestPreferencesOfSupervisedRuns: a run that learns from no preferences reads rows as it always did: pairs are found
// where no other format fits as well, and a label is not read.
func TestPreferencesOfSupervisedRuns(t *testing.T) {
	for _, c := range []struct{ file, format, err string }{
		{`{"prompt":"q","chosen":"a","rejected":"b"}`, "preference", ""},
		{`{"prompt":"q","completion":"a","label":true}`, "completion", ""},
		{`{"input_ids":[101,102],"labels":[-100,102],"label":true}`, "tokenized", ""},
		{`{"prompt":"a","chosen":"b","rejected":"c","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
			"",
			"fit the formats preference (chosen, rejected) and messages (messages)"},
	} {
		_, report, err := loadPreferences(c.file, func(c *Config) { c.Preferences = false })
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s\ngot  %v\nwant %s", c.file, err, c.err)
			}
			continue
		}
		if err != nil || report.Format != c.format {
			t.Errorf("%s: format %v, %v", c.file, report, err)
		}
	}
}

// TestPreferenceTextsAsChat: dataset.as_chat makes conversations of pairs of texts.
func TestPreferenceTextsAsChat(t *testing.T) {
	set, report, err := loadPreferences(`{"prompt":"q","chosen":"a","rejected":"b","system":"s","history":[["x","y"]]}`,
		func(c *Config) { c.AsChat = AsChatYes })
	if err != nil {
		t.Fatal(err)
	}
	const want = "s:s\nu:x\na:y\nu:q\na:[a\n] | s:s\nu:x\na:y\nu:q\na:[b\n]"
	if got := showSequences(set.Train.Row(0)); got != want || !report.AsChat {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if kinds := report.PromptFormat(set.Config).Prompts; fmt.Sprint(kinds) != "[chat]" {
		t.Errorf("prompts %v", kinds)
	}
}

// TestDroppedPreferences: pairs without anything to prefer are dropped as a whole, counted and named.
func TestDroppedPreferences(t *testing.T) {
	const good = `{"prompt":"q","chosen":"a","rejected":"b"}` + "\n"
	for _, c := range []struct {
		file, why string
		change    func(*Config)
	}{
		{`{"prompt":"q","chosen":"a","rejected":"a"}`, dropSamePair, nil},
		{`{"prompt":"q","chosen":"","rejected":""}`, dropSamePair, nil},
		{`{"chosen":"abc","rejected":"abc"}`, dropSamePair, nil},
		{`{"chosen":"abc","rejected":"xyz"}`, dropPrompts, nil},
		{`{"chosen":"\n\nHuman: q\n\nAssistant: a","rejected":"\n\nHuman: other\n\nAssistant: a"}`, dropPrompts, nil},
		{`{"prompt":"0123456789","chosen":"a","rejected":"b"}`, dropCutAnswer, func(c *Config) { c.MaxLength = 8 }},
		{`{"prompt":"q","chosen":"0123456789","rejected":"b"}`,
			dropCut, func(c *Config) { c.MaxLength, c.OnTruncated = 8, TruncatedDrop }},
	} {
		set, report, err := loadPreferences(good+c.file, c.change)
		if err != nil {
			t.Fatal(err)
		}
		if set.Train.Len() != 1 || report.Rows != 2 || len(report.Dropped) != 1 || report.Dropped[0].Reason != c.why ||
			report.Dropped[0].Where[0] != "d.jsonl:2" {
			t.Errorf("%s: %v", c.file, report)
		}
	}
	lists := `{"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"rejected":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}`
	for _, c := range []struct{ q, b, why string }{{"q", "a", dropSamePair}, {"r", "a", dropPrompts}} {
		file := fmt.Sprintf(lists+"\n"+lists, "q", "b", c.q, c.b)
		set, report, err := loadPreferences(file, nil)
		if err != nil || set.Train.Len() != 1 || len(report.Dropped) != 1 || report.Dropped[0].Reason != c.why {
			t.Errorf("%s: %v, %v", c.why, report, err)
		}
	}
	tokens := `{"chosen_input_ids":[101,102],"chosen_labels":[-100,102],"rejected_input_ids":[%d,%d],"rejected_labels":[-100,%d]}`
	for _, c := range []struct {
		first, second int
		why           string
	}{{101, 102, dropSamePair}, {104, 103, dropPrompts}} {
		file := fmt.Sprintf(tokens+"\n"+tokens, 101, 103, 103, c.first, c.second, c.second)
		set, report, err := loadPreferences(file, nil)
		if err != nil || set.Train.Len() != 1 || len(report.Dropped) != 1 || report.Dropped[0].Reason != c.why {
			t.Errorf("%s: %v, %v", c.why, report, err)
		}
	}
}

// TestCutPreferences: each sequence is cut by itself, and the report counts what is lost.
func TestCutPreferences(t *testing.T) {
	set, report, err := loadPreferences(`{"prompt":"q","chosen":"0123456789","rejected":"bcdefg"}`,
		func(c *Config) { c.MaxLength = 6 })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := showSequences(set.Train.Row(0)), "<s>q[0123] | <s>q[bcde]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if report.Truncated.Count != 1 || report.CutTokens != 7+3 || report.Longest != 6 || report.LongestRow.Tokens != 13 {
		t.Errorf("%v", report)
	}
}

// TestReportOfPreferences: the report says that rows are pairs, or how many answers are to learn.
func TestReportOfPreferences(t *testing.T) {
	_, pairs, err := loadPreferences(strings.Repeat(`{"prompt":"q","chosen":"a","rejected":"b"}`+"\n", 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, labels, err := loadPreferences(`{"prompt":"q","completion":"a","label":true}`+"\n"+
		`{"prompt":"q","completion":"a","label":false}`+"\n"+`{"prompt":"q","completion":"b","label":false}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		report *Report
		want   []string
	}{
		{pairs, []string{"groups: 3 pairs of two sequences, which stay together", "duplicates: 2 rows",
			"trained: both answers and what ends them; the prompt is context"}},
		{labels, []string{"labels: 1 desirable, 2 undesirable"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.report.String(), want) {
				t.Errorf("%v\nlacks %s", c.report, want)
			}
		}
	}
	if labels.Duplicates != 0 {
		t.Error("the same answer with another label counts as a duplicate")
	}
}

// TestLookAtPairs: a pair is shown as its prompt and chosen answer, then its prompt and rejected answer, also where it
// was cut.
func TestLookAtPairs(t *testing.T) {
	for _, c := range []struct {
		file string
		most int
		want string
	}{
		{`{"prompt":"q","chosen":"a","rejected":"bc"}`, 512, "2 prompt 0-2 chosen 2-4 prompt 4-6 rejected 6-9 cut 0"},
		{`{"prompt":"q","chosen":"a","rejected":"bcdef"}`, 5, "2 prompt 0-2 chosen 2-4 prompt 4-6 rejected 6-9 cut 3"},
		{`{"prompt":[{"role":"user","content":"q"}],"chosen":"a","rejected":"b"}`, 512,
			"2 prompt 0-6 chosen 6-8 prompt 8-14 rejected 14-16 cut 0"},
		{`{"prompt":"q","completion":"a","label":false}`, 512, "0 prompt 0-2 undesirable 2-4 cut 0"},
		{`{"chosen_input_ids":[101,102],"chosen_labels":[-100,102],"rejected_input_ids":[101,103],"rejected_labels":[-100,103]}`, 512,
			"2 prompt 0-1 chosen 1-2 prompt 2-3 rejected 3-4 cut 0"},
	} {
		set, _, err := loadPreferences(c.file, func(cfg *Config) { cfg.MaxLength = c.most })
		if err != nil {
			t.Fatal(err)
		}
		shown, err := set.Look(context.Background(), 0, 1, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(shown[0].Sequences)
		for _, p := range shown[0].Parts {
			got += fmt.Sprintf(" %s %d-%d", p.Role, p.From, p.To)
		}
		if got += fmt.Sprintf(" cut %d", shown[0].Cut); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.file, got, c.want)
		}
	}
}

// TestBrokenPreferences: what is wrong with a row is an error with its line, whole.
func TestBrokenPreferences(t *testing.T) {
	const (
		q = `{"role":"user","content":"q"}`
		a = `{"role":"assistant","content":"a"}`
		b = `{"role":"assistant","content":"b"}`

		good   = `{"prompt":"q","chosen":"a","rejected":"b"}`
		talk   = `{"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`
		kto    = `{"prompt":"q","completion":"a","label":true}`
		tokens = `{"chosen_input_ids":[101,102],"chosen_labels":[-100,102],"rejected_input_ids":[101,103],"rejected_labels":[-100,103]}`
		list   = ", and the first row of the file has texts: the rows of a file must all be texts or all be conversations, and " +
			"dataset.as_chat: yes makes conversations of texts"
		said = "dataset.fields says which keys are read, and rows of one source have one format"
	)
	for _, c := range []struct{ first, file, want string }{
		{good, `{"prompt":"q","chosen":"a","rejected":null}`, `field "rejected" is null`},
		{good, `{"prompt":"q","chosen":null,"rejected":"b"}`, `field "chosen" is null`},
		{good, `{"prompt":"q","chosen":"a"}`, `field "rejected" is missing; the row has prompt, chosen: ` + said},
		{good, `{"prompt":"q","chosen":"a","rejectd":"b"}`,
			`field "rejected" is missing; the nearest key of the row is "rejectd"`},
		{good, `{"prompt":"q","chosen":1,"rejected":"b"}`, `field "chosen" is a number, want a string`},
		{good, `{"prompt":"q","chosen":"a","rejected":true}`, `field "rejected" is a boolean, want a string`},
		{good, `{"prompt":7,"chosen":"a","rejected":"b"}`, `field "prompt" is a number, want a string`},
		{good, `{"prompt":"q","input":7,"chosen":"a","rejected":"b"}`, `field "input" is a number, want a string`},
		{good, `{"prompt":"q","chosen":["a"],"rejected":"b"}`, `field "chosen" is a list` + list},
		{good, `{"prompt":"q","chosen":"a","rejected":` + b + `}`, `field "rejected" is an object` + list},
		{good, `{"prompt":[` + q + `],"chosen":"a","rejected":"b"}`, `field "prompt" is a list` + list},
		{good, `{"prompt":"q","chosen":"\ud800","rejected":"b"}`,
			`field "chosen" holds half of a surrogate pair (\ud800), which is no character`},
		{talk, `{"prompt":[` + q + `],"chosen":[],"rejected":[` + b + `]}`, `field "chosen" is an empty list of messages`},
		{talk, `{"prompt":[],"chosen":[` + a + `],"rejected":[` + b + `]}`, `field "prompt" is an empty list of messages`},
		{talk, `{"prompt":[` + q + `],"chosen":["a"],"rejected":[` + b + `]}`,
			`chosen[0] is a string, want an object with role and content`},
		{talk, `{"prompt":[` + q + `],"chosen":[{"role":"assistant"}],"rejected":[` + b + `]}`,
			`chosen[0] has no content; it has role`},
		{talk, `{"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[{"content":"b"}]}`,
			`rejected[0] has no role; it has content`},
		{talk, `{"prompt":[{"role":"usr","content":"q"}],"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`prompt[0].role is "usr", want one of system, developer, user, assistant, tool, function, ipython`},
		{talk, `{"prompt":[` + q + `],"chosen":[{"role":"assistant","content":[{"type":"image"}]}],"rejected":[` + b + `]}`,
			`chosen[0].content[0] is of type "image": only text is trained on (docs/IMAGES.md lists ` +
				`the models and formats that read images)`},
		{talk, `{"prompt":[` + q + `],"chosen":[{"role":"assistant","content":null}],"rejected":[` + b + `]}`,
			`chosen[0].content is null: only a message with tool_calls may go without`},
		{talk, `{"prompt":[` + q + `],"chosen":7,"rejected":[` + b + `]}`,
			`field "chosen" is a number, want a text, a message or a list of messages`},
		{talk, `{"prompt":true,"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`field "prompt" is a boolean, want a text or a list of messages`},
		{talk, `{"prompt":{"x":1},"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`field "prompt" is an object without messages, it has x`},
		{talk, `{"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`field "chosen" begins with the assistant's message, and the row has no prompt before it`},
		{talk, `{"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[{"from":"gpt"}]}`,
			`rejected[0] has no value; it has from`},
		{talk, `{"system":7,"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`field "system" is a number, want a string`},
		{talk, `{"tools":7,"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`,
			`field "tools" is a number, want a list of tools`},
		{kto, `{"prompt":"q","completion":"a","label":"good"}`, `field "label" is "good", want true for an answer to learn or false for one to avoid`},
		{kto, `{"prompt":"q","completion":"a","label":2}`,
			`field "label" is 2, want true for an answer to learn or false for one to avoid`},
		{kto, `{"prompt":"q","completion":"a","label":[true]}`,
			`field "label" is [true], want true for an answer to learn or false for one to avoid`},
		{kto, `{"prompt":"q","completion":"a"}`, `field "label" is missing; the row has prompt, completion: ` + said},
		{kto, `{"prompt":"q","completion":"a","label":null}`, `field "label" is null`},
		{kto, `{"completion":"a","label":true}`, `field "prompt" is missing: the row has an answer and no prompt`},
		{`{"messages":[` + q + `,` + a + `],"label":true}`, `{"messages":[` + a + `,` + q + `],"label":true}`,
			`field "messages" begins with the assistant's message, and the row has no prompt before it`},
		{`{"messages":[` + q + `,` + a + `],"label":true}`, `{"messages":[` + q + `,` + a + `,` + q + `],"label":true}`,
			`field "messages" does not end with a message of the assistant, which the label is about`},
		{tokens, strings.Replace(tokens, "[-100,102]", "[-100]", 1),
			`field "chosen_input_ids" has 2 elements and field "chosen_labels" has 1: they must be equally long`},
		{tokens, strings.Replace(tokens, "[-100,103]", "[-100,9]", 1),
			"rejected_labels[1] is 9, but rejected_input_ids[1] is 103: a label is -100 or the id at its own position (labels are not shifted)"},
		{tokens, strings.Replace(tokens, "[101,102]",
			`"a"`, 1), `field "chosen_input_ids" is a string, want a list of whole numbers`},
		{tokens, strings.Replace(tokens, "[101,103]", "[101,1.5]", 1), `rejected_input_ids[1] is 1.5, want a whole number`},
		{tokens, `{"chosen_input_ids":[101,999],"chosen_labels":[-100,999],"rejected_input_ids":[101,103],"rejected_labels":[-100,103]}`,
			"chosen: input_ids[1] is 999, which is not in the vocabulary"},
	} {
		_, _, err := loadPreferences(c.first+"\n"+c.file, nil)
		if err == nil || err.Error() != "d.jsonl:2: "+c.want {
			t.Errorf("%s\ngot  %v\nwant d.jsonl:2: %s", c.file, err, c.want)
		}
	}
}

// TestDifferencesOfPairs checks which tokens of a pair are marked: those in no longest common subsequence of both.
func TestDifferencesOfPairs(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{`{"prompt":"q","chosen":"abcde","rejected":"abXde"}`, "4 12"}, // start q a b c d e end, start q a b X d e end
		{`{"prompt":"q","chosen":"ab","rejected":"abab"}`, "9 10"},
		{`{"prompt":"q","chosen":"aXbYc","rejected":"abc"}`, "3 5"},
	} {
		set, _, err := loadPreferences(c.row, func(*Config) {})
		if err != nil {
			t.Fatal(err)
		}
		shown, err := set.Look(context.Background(), 0, 1, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, token := range shown[0].Tokens {
			if token.Differs {
				got = append(got, fmt.Sprint(i))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s differ, want %s", c.row, text, c.want)
		}
	}
	// Answers beyond the bound differ between what they have in common at both ends.
	row := Row{Borders: []int32{2503}}
	in := Inspected{Tokens: make([]Token, 5006)}
	for i := range in.Tokens {
		in.Tokens[i].ID = int32(i % 2503)
	}
	in.Tokens[1].ID, in.Tokens[2501].ID = -1, -2
	in.markDifferences(row)
	for i, token := range in.Tokens {
		if token.Differs != (i%2503 > 0 && i%2503 < 2502) {
			t.Fatalf("token %d: differs %v", i, token.Differs)
		}
	}
}
