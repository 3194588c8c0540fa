package main

import "testing"

// TestRetiredTemplate: the key that old runs have in their config.yaml is passed over where it says nothing; one with
// a value, and the name of other programs, are told what to do.
func TestRetiredTemplate(t *testing.T) {
	const head = "base_model: m\noutput_dir: o\ndataset:\n  path: d.jsonl\n"
	const advice = "is not a key here: no data format uses a chat template; put the whole prompt into the rows (dataset.format completion) and remove the key"
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
