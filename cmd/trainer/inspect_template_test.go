package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInspectTemplate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("t.jinja", "{{ bos_token }}{% for m in messages %}\n{%- if m.role == 'system' %}{{ raise_exception('no "+
		"system message') }}{% endif %}\n"+
		"{{- m.role }}: {% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}\n{% endfor %}\n"+
		"{%- if add_generation_prompt %}{{ strftime_now('%Y') }}{{ style }}{% endif %}")
	write("bad.jinja", "a\n{% if x %}")
	write("c.jsonl", `{"messages": [{"role": "user", "content": "é"}], "style": "short"}`+"\n\n"+
		`[{"role": "system", "content": "x"}]`+"\n"+`[{"role": "user", "content": "hi"}]`+"\n")
	write("c.json", `[{"messages": [{"role": "user", "content": "a"}]}, [{"role": "user", "content": "b"}]]`)
	write("bad.jsonl", `{"text": 1}`+"\n"+`[{"role": "user", "content": "hi"}]`+"\n"+`{"messages": [}`+"\n")
	write("broken.jsonl", `{"messages": [}`+"\n"+`{"messages"}`+"\n")
	run := func(args ...string) (int, string, string) {
		t.Helper()
		return trainer(t, dir, nil, "", append([]string{"inspect", "template"}, args...)...)
	}
	code, out, errOut := run("--file", "t.jinja", "--conversations", "c.jsonl", "--bos", "<s>", "--eos",
		"</s>", "--json")
	want := `{"text":"<s>user: é</s>\n","generation":[[9,10]]}` + "\n" +
		`{"error":"line 2: TemplateError: no system message"}` + "\n" +
		`{"text":"<s>user: hi</s>\n","generation":[[9,11]]}` + "\n"
	if code != 0 || out != want || !strings.Contains(errOut, "the template refuses 1 of 3 conversations") {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, out, want, errOut)
	}
	code, out, _ = run("--file", "t.jinja", "--conversations", "c.jsonl", "--generation-prompt", "--now",
		"2025-03-14T15:09:26", "--json")
	if first, _, _ := strings.Cut(out, "\n"); code != 0 ||
		first != `{"text":"user: é\n2025short","generation":[[6,7]]}` {
		t.Errorf("exit code %d, %s", code, first)
	}
	code, out, _ = run("--file", "t.jinja", "--conversations", "c.json")
	if code != 0 || out != "conversation 0\nuser: a\n\n\nconversation 1\nuser: b\n\n\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
	code, out, errOut = run("--file", "t.jinja", "--conversations", "bad.jsonl", "--json")
	want = `{"error":"line 1: the object has no messages"}` + "\n" + `{"text":"user: hi\n","generation":[[6,8]]}` +
		"\n" +
		`{"error":"line 3: JSON at byte 14: a value cannot begin with '}'"}` + "\n"
	if code != 0 || out != want || !strings.Contains(errOut, "2 of 3 conversations cannot be read") {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, out, want, errOut)
	}
	for name, text := range map[string]string{
		"an object over lines":  "\ufeff{\n \"messages\": [{\"role\": \"user\",\n \"content\": \"a\"}]\n}\n",
		"messages over lines":   "[\n {\"role\": \"user\", \"content\": \"a\"}\n]\n",
		"a line with a mark":    "\ufeff" + `[{"role": "user", "content": "a"}]`,
		"a list of one of them": `[[{"role": "user", "content": "a"}]]`,
	} {
		write("one.json", text)
		if code, out, errOut := run("--file", "t.jinja", "--conversations", "one.json", "--json"); code != 0 ||
			out != `{"text":"user: a\n","generation":[[6,7]]}`+"\n" {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errOut)
		}
	}
	for name, c := range map[string]struct {
		args []string
		err  string
	}{
		"nothing": {nil, "name a template and conversations: --file T.jinja --conversations C.jsonl"},
		"bad template": {[]string{"--file", "bad.jinja", "--conversations", "c.jsonl"},
			"compile bad.jinja: line 2: TemplateSyntaxError: Unexpected end of template."},
		"no file": {[]string{"--file", "none.jinja", "--conversations", "c.jsonl"},
			"read text: open none.jinja: no such file"},
		"no JSON": {[]string{"--file", "t.jinja", "--conversations", "broken.jsonl"},
			"broken.jsonl: line 1: JSON at byte 14: a value cannot begin with '}'"},
		"bad time": {[]string{"--file", "t.jinja", "--conversations", "c.jsonl", "--now", "noon"},
			"--now noon: write a time such as 2025-03-14T15:09:26"},
	} {
		if code, _, errOut := run(c.args...); code != 2 || !strings.Contains(errOut, c.err) {
			t.Errorf("%s: exit code %d, %s, want %q", name, code, errOut, c.err)
		}
	}
}
