package dataset

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
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

// TestContainersTrainTheSame: calls of tools give the same tokens from JSONL, Parquet and a folder of save_to_disk, whole
// and as a stream.
func TestContainersTrainTheSame(t *testing.T) {
	const template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }}" +
		"{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
	load := func(change func(*Config)) string {
		t.Helper()
		cfg := Default()
		cfg.MaxLength = 4096
		tokens := jinja.NewDict()
		tokens.Set("eos_token", jinja.Str("</s>"))
		cfg.Chat = func() (*chat.Sources, error) {
			return &chat.Sources{Templates: map[string]string{"default": template}, Tokens: tokens}, nil
		}
		change(&cfg)
		set, report, err := LoadFS(context.Background(), os.DirFS("source/testdata"), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatalf("%s: %v", cfg.Title(), err)
		}
		if cfg.Streaming {
			return fmt.Sprint(report.Rows)
		}
		return fmt.Sprint(report.Rows, digest(set.Train))
	}
	fields := map[string]string{"messages": "whole", "tools": "struct.a"}
	want := load(func(c *Config) { c.Path = "calls.parquet" })
	for name, change := range map[string]func(*Config){
		"JSON columns":          func(c *Config) { c.Path, c.Fields = "json.parquet", fields },
		"JSON columns in Arrow": func(c *Config) { c.Path, c.Fields = "saved", fields },
		"lists of JSON": func(c *Config) {
			c.Path, c.Fields = "saved", map[string]string{"messages": "list", "tools": "struct.a"}
		},
	} {
		if got := load(change); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	two := load(func(c *Config) { c.Sources = []Source{{Path: "calls.parquet", Split: "train[:2]", Weight: 1}} })
	if got := load(func(c *Config) { c.Path = "saved_dict" }); got != two {
		t.Errorf("structs in Arrow: %s, want %s", got, two)
	}
	if got := load(func(c *Config) { c.Path, c.Streaming = "saved_dict", true }); got != "2" {
		t.Errorf("as a stream: %s rows", got)
	}
}
