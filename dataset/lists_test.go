package dataset

import (
	"strings"
	"testing"
)

// TestBareLists: a conversation that is a list by itself is read as the object around it is, as lines and as a list.
func TestBareLists(t *testing.T) {
	const one, two = `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, `[{"from":"human","value":"c\n"},{"from":"gpt","value":"d"}]`
	row := func(list string) string { return `{"messages":` + list + `}` }
	load := func(content string) string {
		t.Helper()
		set, report, err := withTemplate(t, content, plainTemplate, nil)
		if err != nil {
			t.Fatalf("%s: %v", content, err)
		}
		if report.Format != "messages" || report.Rows != 2 {
			t.Errorf("%s: format %s, %d rows", content, report.Format, report.Rows)
		}
		return digest(set.Train)
	}
	want := load(row(one) + "\n" + row(two))
	for _, content := range []string{
		one + "\n" + two, one + "\n" + two + "\n", "\n" + one + "\r\n  \n" + two, "[" + one + "," + two + "]", "[\n" + one + ",\n" + two + "\n]\n", row(one) + "\n" + two,
		"\ufeff" + one + "\n" + two,
	} {
		if got := load(content); got != want {
			t.Errorf("%q gives other tokens than rows of objects", content)
		}
	}
	long := `[{"role":"user","content":"` + strings.Repeat("a", 200_000) + `"},{"role":"assistant","content":"b"}]`
	cut := func(c *Config) { c.MaxLength = 1 << 20 }
	if _, report, err := withTemplate(t, long+"\n"+long+"\n", plainTemplate, cut); err != nil || report.Rows != 2 {
		t.Errorf("lists longer than a buffer: %v", err)
	}
	_, _, err := withTemplate(t, one+"\n"+`[{"role":"user"]`, plainTemplate, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "data.jsonl:2: byte 16 of the row: ") {
		t.Errorf("a broken second line: %v", err)
	}
}
