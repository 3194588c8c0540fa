package jinja

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
)

// rendering is what Jinja2 gave for a conversation.
type rendering struct {
	Text       *string  `json:"text"`
	Error      kind     `json:"error"`
	Generation [][2]int `json:"generation"` // code points
}

// kind is the name of an exception, which one set of goldens writes as "Name: message" and the other as an object.
type kind string

func (k *kind) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		var e struct{ Type string }
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		s = e.Type
	}
	s, _, _ = strings.Cut(s, ":")
	*k = kind(s)
	return nil
}

// goldenTemplate is a template with what Jinja2 gave for each conversation, without and with a generation prompt.
type goldenTemplate struct {
	name, source, bos, eos string
	now                    time.Time
	rows                   []goldenRow
}

type goldenRow struct {
	conversation string
	plain, gen   rendering
}

func templateGoldens(t testing.TB, dir string) []goldenTemplate {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	var all []goldenTemplate
	for _, file := range files {
		if filepath.Base(file) == "conversations.json" {
			continue
		}
		var g struct {
			Source  string                          `json:"source"`
			Renders map[string]map[string]rendering `json:"renders"`
		}
		golden.JSON(t, file, &g)
		one := goldenTemplate{name: filepath.Base(file), source: g.Source, bos: "<s>", eos: "</s>",
			now: time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)}
		for name, r := range g.Renders {
			one.rows = append(one.rows, goldenRow{name, r["plain"], r["generation_prompt"]})
		}
		all = append(all, one)
	}
	return all
}

// chatGoldens reads renderings from one folder and their templates from another.
func chatGoldens(t testing.TB, dir, templates string) []goldenTemplate {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no chat goldens: %v", err)
	}
	var all []goldenTemplate
	for _, file := range files {
		if filepath.Base(file) == "conversations.json" {
			continue
		}
		var g struct {
			Template, Date string
			BOS            string `json:"bos_token"`
			EOS            string `json:"eos_token"`
			Rows           []struct {
				Conversation string
				Plain        rendering
				Gen          rendering `json:"generation_prompt"`
			}
		}
		golden.JSON(t, file, &g)
		source, err := os.ReadFile(filepath.Join(templates, filepath.Base(g.Template)))
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.DateOnly, g.Date)
		if err != nil {
			t.Fatal(err)
		}
		one := goldenTemplate{name: filepath.Base(file), source: string(source), bos: g.BOS, eos: g.EOS, now: now}
		for _, r := range g.Rows {
			one.rows = append(one.rows, goldenRow{r.Conversation, r.Plain, r.Gen})
		}
		all = append(all, one)
	}
	return all
}

// conversationVars are the variables that transformers passes for each conversation of a file, by name.
func conversationVars(t testing.TB, path string) map[string]*Dict {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Dict{}
	for _, c := range v.(*List).Items {
		d := c.(*Dict)
		name, _ := d.Get("name")
		vars := NewDict()
		messages, _ := d.Get("messages")
		vars.Set("messages", messages)
		vars.Set("tools", None{})
		if tools, ok := d.Get("tools"); ok {
			vars.Set("tools", tools)
		}
		vars.Set("documents", None{})
		all[string(name.(Str))] = vars
	}
	return all
}

type score struct{ texts, refusals, spans int }

func checkGolden(t *testing.T, g goldenTemplate, vars map[string]*Dict, s *score) {
	tmpl, err := Compile(g.source)
	if err != nil {
		t.Errorf("%s: %v", g.name, err)
		return
	}
	for _, row := range g.rows {
		for prompt, want := range map[bool]rendering{false: row.plain, true: row.gen} {
			v := vars[row.conversation].Copy()
			v.Set("add_generation_prompt", Bool(prompt))
			v.Set("bos_token", Str(g.bos))
			v.Set("eos_token", Str(g.eos))
			got, err := tmpl.Render(v, Options{Now: g.now})
			where := g.name + " " + row.conversation
			switch {
			case want.Text == nil && err == nil:
				t.Errorf("%s: rendered, Jinja2 says %s", where, want.Error)
			case want.Text == nil:
				if e := err.(*Error); string(want.Error) != e.Kind {
					t.Errorf("%s: refused with %v, Jinja2 says %s", where, e, want.Error)
				}
				s.refusals++
			case err != nil:
				t.Errorf("%s: %v", where, err)
			case got.Text != *want.Text:
				t.Errorf("%s: got\n%q\nwant\n%q", where, got.Text, *want.Text)
			default:
				s.texts++
				spans, _ := json.Marshal(got.CodePoints)
				wanted, _ := json.Marshal(want.Generation)
				if string(spans) != string(wanted) {
					t.Errorf("%s: spans %s, want %s", where, spans, wanted)
				}
				s.spans += len(want.Generation)
			}
		}
	}
}

// Templates of 2025's and 2026's models: texts, spans and refusals are what Jinja2 gives.
func TestGoldenTemplates(t *testing.T) {
	dir := golden.Outside(t, "goldens/templates")
	vars := conversationVars(t, filepath.Join(dir, "conversations.json"))
	var s score
	for _, g := range templateGoldens(t, dir) {
		checkGolden(t, g, vars, &s)
	}
	t.Logf("%d texts, %d refusals, %d generation spans", s.texts, s.refusals, s.spans)
	if s.texts != 1265 || s.refusals != 265 {
		t.Errorf("%d texts and %d refusals, want 1265 and 265", s.texts, s.refusals)
	}
}

func TestGoldenChat(t *testing.T) {
	vars := conversationVars(t, golden.Outside(t, "goldens/chat/conversations.json"))
	var s score
	for _, g := range chatGoldens(t, golden.Outside(t, "goldens/chat"), golden.Outside(t, "data/chat_templates")) {
		checkGolden(t, g, vars, &s)
	}
	t.Logf("%d texts, %d refusals", s.texts, s.refusals)
	if s.texts+s.refusals != 390 {
		t.Errorf("%d texts and refusals, want 390", s.texts+s.refusals)
	}
}

// The templates of axolotl, which the repository holds with what Jinja2 makes of them.
func TestTemplates(t *testing.T) {
	dir := golden.Path(t, "../../../text/jinja/testdata/templates")
	vars := conversationVars(t, filepath.Join(dir, "conversations.json"))
	var s score
	for _, g := range chatGoldens(t, dir, dir) {
		checkGolden(t, g, vars, &s)
	}
	if t.Logf("%d texts, %d refusals", s.texts, s.refusals); s.texts+s.refusals != 210 {
		t.Errorf("%d texts and refusals, want 210", s.texts+s.refusals)
	}
}
