package dataset

import (
	"strings"
	"testing"
)

// TestNestedConversations: dataset.fields reaches inside of objects and lists for what is JSON as for what is text.
func TestNestedConversations(t *testing.T) {
	fields := map[string]string{"messages": "data.0.turns", "tools": "data.0.has.tools", "chat_template_kwargs": "more"}
	row := `{"data":[{"turns":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}],"has":{"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]}}],"more":{"loud":true}}`
	template := `{% if tools %}{{ tools[0].function.name }}{% endif %}{% if loud %}!{% endif %}` + plainTemplate
	set, _, err := withTemplate(t, row+"\n", template, func(c *Config) { c.Format, c.Fields = "messages", fields })
	if err != nil {
		t.Fatal(err)
	}
	text := bytesTokenizer{}.Decode(set.Train.Row(0).IDs, false)
	if want := "f!user:hi</s>\nassistant:ho</s>\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	_, _, err = withTemplate(t, strings.Replace(row, `"turns":[`, `"turns":5,"x":[`, 1), template, func(c *Config) { c.Format, c.Fields = "messages", fields })
	if want := `data.jsonl:1: field "data.0.turns" is a number, want a list of messages`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
