package main

import "testing"

// TestRetiredTemplate: the key that old runs have in their config.yaml is passed over where it says nothing; one with
// a value, and the name of other programs, are told what to do.
func TestRetiredTemplate(t *testing.T) {
	const head = "base_model: m\noutput_dir: o\ndataset:\n  path: d.jsonl\n"
	const advice = "has no counterpart here: chat templates are not applied; write the conversation into the fields of a format, such as prompt and completion of dataset.format: completion"
	for _, c := range []struct{ text, want string }{
		{head + "  template: \"\"\n", ""},
		{head + "  template: chatml\n", "run.yaml:5:3: dataset.template: " + advice},
		{head + "  template: {}\n", "run.yaml:5:3: dataset.template: " + advice},
		{head + "chat_template: chatml\n", "run.yaml:5:1: chat_template: " + advice},
	} {
		if got := problemsOf(c.text, nil, nil); got != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}
