package dataset

import "testing"

// TestBrokenAnswers: what is wrong with a row of labelled answers is an error with its line, whole.
func TestBrokenAnswers(t *testing.T) {
	const (
		q = `{"role":"user","content":"q"}`
		a = `{"role":"assistant","content":"a"}`

		text   = `{"prompt":"q","completion":"a","label":true}`
		talk   = `{"prompt":[` + q + `],"completion":[` + a + `],"label":true}`
		whole  = `{"messages":[` + q + `,` + a + `],"label":true}`
		tokens = `{"input_ids":[101,102],"labels":[-100,102],"label":true}`

		mixed = ", and the first row of the file has texts: the rows of a file must all be texts or all be " +
			"conversations, and dataset.as_chat: yes makes conversations of texts"
		said   = "dataset.fields says which keys are read, and rows of one source have one format"
		either = ", want true for an answer to learn or false for one to avoid"
		object = ", want an object like {\"prompt\": …, \"completion\": …}"
		ends   = " does not end with a message of the assistant, which the label is about"
	)
	for _, c := range []struct{ first, row, want string }{
		{text, `{"prompt":"q","completion":null,"label":true}`, `field "completion" is null`},
		{text, `{"prompt":null,"completion":"a","label":true}`,
			`field "prompt" is missing: the row has an answer and no prompt`},
		{text, `{"prompt":"q","label":true}`, `field "completion" is missing; the row has prompt, label: ` + said},
		{text, `{"prompt":"q","completon":"a","label":true}`,
			`field "completion" is missing; the nearest key of the row is "completon"`},
		{text, `{"prompt":"q","completion":"a","lable":true}`,
			`field "label" is missing; the nearest key of the row is "lable"`},
		{text, `{"prompt":"q","completion":7,"label":true}`, `field "completion" is a number, want a string`},
		{text, `{"prompt":7,"completion":"a","label":true}`, `field "prompt" is a number, want a string`},
		{text, `{"prompt":"q","completion":{"x":1},"label":true}`, `field "completion" is an object` + mixed},
		{text, `{"prompt":"q","completion":["a"],"label":true}`, `field "completion" is a list` + mixed},
		{text, `{"prompt":[` + q + `],"completion":"a","label":true}`, `field "prompt" is a list` + mixed},
		{text, `{"prompt":"q","completion":"\ud800","label":true}`,
			`field "completion" holds half of a surrogate pair (\ud800), which is no character`},
		{text, `{"prompt":"q","completion":"a","label":"yes"}`, `field "label" is "yes"` + either},
		{text, `{"prompt":"q","completion":"a","label":-1}`, `field "label" is -1` + either},
		{text, `{"prompt":"q","completion":"a","label":0.5}`, `field "label" is 0.5` + either},
		{text, `{"prompt":"q","completion":"a","label":{}}`, `field "label" is {}` + either},
		{text, `{"prompt":"q","completion":"a","label":""}`, `field "label" is ""` + either},
		{text, `{"prompt":"q","input":7,"completion":"a","label":true}`, `field "input" is a number, want a string`},
		{text, `{"prompt":"q","chosen":"a","rejected":"b"}`,
			`field "completion" is missing; the row has prompt, chosen, rejected: ` + said},
		{text, `[1]`, "the row is a list" + object}, {text, `7`, "the row is a number" + object},
		{text, `null`, "the row is null" + object},
		{text, `{"prompt":"q",`,
			"the row ends in the middle of its JSON (JSONL needs a whole object on one line)"},
		{talk, `{"prompt":[],"completion":[` + a + `],"label":true}`, `field "prompt" is an empty list of messages`},
		{talk, `{"prompt":[` + q + `],"completion":[],"label":true}`,
			`field "completion" is an empty list of messages`},
		{talk, `{"prompt":[` + q + `],"completion":["a"],"label":true}`,
			`completion[0] is a string, want an object with role and content`},
		{talk, `{"prompt":[` + q + `],"completion":[{"role":"assistant"}],"label":true}`,
			`completion[0] has no content; it has role`},
		{talk, `{"prompt":[{"content":"q"}],"completion":[` + a + `],"label":true}`,
			`prompt[0] has no role; it has content`},
		{talk, `{"prompt":[{"role":"usr","content":"q"}],"completion":[` + a + `],"label":true}`,
			`prompt[0].role is "usr", want one of system, developer, user, assistant, tool, function, ipython`},
		{talk, `{"prompt":[` + q + `],"completion":7,"label":true}`,
			`field "completion" is a number, want a text, a message or a list of messages`},
		{talk, `{"prompt":[` + q + `],"completion":[` + q + `],"label":true}`, `field "completion"` + ends},
		{talk, `{"prompt":[` + q + `],"completion":[{"role":"assistant","content":[{"type":"image"}]}],"label":true}`,
			`completion[0].content[0] is of type "image": only text is trained on (docs/IMAGES.md lists ` +
				`the models and formats that read images)`},
		{talk, `{"prompt":[` + q + `],"completion":[{"role":"assistant","content":null}],"label":true}`,
			`completion[0].content is null: only a message with tool_calls may go without`},
		{talk, `{"prompt":[` + q + `],"completion":[` + a + `]}`,
			`field "label" is missing; the row has prompt, completion: ` + said},
		{talk, `{"prompt":[` + q + `],"completion":[` + a + `],"label":"thumbs up"}`,
			`field "label" is "thumbs up"` + either},
		{talk, `{"system":7,"prompt":[` + q + `],"completion":[` + a + `],"label":true}`,
			`field "system" is a number, want a string`},
		{talk, `{"tools":7,"prompt":[` + q + `],"completion":[` + a + `],"label":true}`,
			`field "tools" is a number, want a list of tools`},
		{whole, `{"messages":[],"label":true}`, `field "messages" is an empty list of messages`},
		{whole, `{"messages":[` + q + `],"label":true}`, `field "messages"` + ends},
		{whole, `{"messages":"q","label":true}`,
			`field "messages" is a string, and the row has no prompt before it: give a list of messages, or a prompt`},
		{tokens, `{"input_ids":[101,102],"labels":[-100],"label":true}`,
			`field "input_ids" has 2 elements and field "labels" has 1: they must be equally long`},
		{tokens, `{"input_ids":[101,102],"labels":[-100,9],"label":true}`, "labels[1] is 9, but input_ids[1] is 102: " +
			"a label is -100 or the id at its own position (labels are not shifted)"},
		{tokens, `{"input_ids":"a","labels":[-100,102],"label":true}`,
			`field "input_ids" is a string, want a list of whole numbers`},
		{tokens, `{"input_ids":[101,999],"labels":[-100,999],"label":true}`,
			"input_ids[1] is 999, which is not in the vocabulary"},
		{tokens, `{"input_ids":[101,1.5],"labels":[-100,102],"label":true}`,
			"input_ids[1] is 1.5, want a whole number"},
		{tokens, `{"input_ids":[101,102],"labels":[-100,102]}`,
			`field "label" is missing; the nearest key of the row is "labels"`},
		{tokens, `{"input_ids":[101,102],"labels":[-100,102],"label":3}`, `field "label" is 3` + either},
	} {
		_, _, err := loadPreferences(c.first+"\n"+c.row, nil)
		if err == nil || err.Error() != "d.jsonl:2: "+c.want {
			t.Errorf("%s\ngot  %v\nwant d.jsonl:2: %s", c.row, err, c.want)
		}
	}
}
