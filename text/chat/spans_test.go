package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/jinja"
)

// goldenDate is what strftime_now told the templates of the reference.
var goldenDate = time.Date(2025, 3, 14, 15, 9, 26, 0, time.UTC)

type goldenTalk struct {
	Name     string            `json:"name"`
	Messages json.RawMessage   `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Vars     map[string]string `json:"-"`
}

type goldenRender struct {
	Text       *string         `json:"text"`
	Error      json.RawMessage `json:"error"`
	Generation [][2]int        `json:"generation"`
}

type goldenChat struct {
	Template string `json:"template"`
	BOS      string `json:"bos_token"`
	EOS      string `json:"eos_token"`
	Rows     []struct {
		Conversation string       `json:"conversation"`
		Plain        goldenRender `json:"plain"`
		Assistant    []struct {
			Message  int    `json:"message"`
			Start    int    `json:"start"`
			End      int    `json:"end_without_newline"`
			Unusable string `json:"unusable"`
		} `json:"assistant"`
	} `json:"rows"`
}

// loose reads a conversation without the checks of a data set's rows.
func loose(t testing.TB, talk goldenTalk) *Conversation {
	t.Helper()
	v, err := jinja.FromJSON(talk.Messages)
	if err != nil {
		t.Fatal(err)
	}
	c := &Conversation{}
	for _, item := range v.(*jinja.List).Items {
		d := item.(*jinja.Dict)
		role, _ := d.Get("role")
		c.Messages = append(c.Messages, Message{Role: string(role.(jinja.Str)), Fields: d})
	}
	if len(talk.Tools) > 0 {
		if c.Tools, err = jinja.FromJSON(talk.Tools); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func talks(t testing.TB, folder string) map[string]*Conversation {
	t.Helper()
	var list []goldenTalk
	golden.JSON(t, golden.Outside(t, "goldens/"+folder+"/conversations.json"), &list)
	all := map[string]*Conversation{}
	for _, talk := range list {
		all[talk.Name] = loose(t, talk)
	}
	return all
}

func newChat(t testing.TB, source, bos, eos string, change func(*Options)) *Chat {
	t.Helper()
	tokens := jinja.NewDict()
	tokens.Set("bos_token", jinja.Str(bos))
	tokens.Set("eos_token", jinja.Str(eos))
	o := DefaultOptions()
	o.Date = goldenDate
	if change != nil {
		change(&o)
	}
	c, err := New(&Sources{Templates: map[string]string{"default": source}, Tokens: tokens}, "", markTokenizer{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// points is bytes of a text as code points.
func points(text string, at int) int { return utf8.RuneCountInString(text[:at]) }

// TestSpansChat compares with the spans that prefixes of the reference's renderings give.
func TestSpansChat(t *testing.T) {
	all := talks(t, "chat")
	files, _ := filepath.Glob(golden.Outside(t, "goldens/chat/*.json"))
	for _, file := range files {
		if filepath.Base(file) == "conversations.json" {
			continue
		}
		var g goldenChat
		golden.JSON(t, file, &g)
		source, err := os.ReadFile(golden.Outside(t, g.Template))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			c := newChat(t, string(source), g.BOS, g.EOS, nil)
			t.Logf("%+v", *c.known[c.plain])
			for _, row := range g.Rows {
				conv := all[row.Conversation]
				rows, err := c.Rows(conv)
				if row.Plain.Text == nil {
					if err == nil {
						t.Errorf("%s: no error, want %s", row.Conversation, row.Plain.Error)
					}
					continue
				}
				if err != nil {
					unusable := false
					for _, a := range row.Assistant {
						unusable = unusable || a.Unusable != "" || strings.Contains(err.Error(), "does not write the call")
					}
					if !unusable {
						t.Errorf("%s: %v", row.Conversation, err)
					}
					t.Logf("%s: refused: %v", row.Conversation, err)
					continue
				}
				for _, r := range rows {
					for _, s := range r.Spans {
						i := slices.IndexFunc(row.Assistant, func(a struct {
							Message  int    `json:"message"`
							Start    int    `json:"start"`
							End      int    `json:"end_without_newline"`
							Unusable string `json:"unusable"`
						}) bool {
							return a.Message == s.Message
						})
						want := row.Assistant[i]
						got := [2]int{points(r.Text, s.Start), points(r.Text, s.End)}
						if want.Unusable != "" {
							t.Logf("%s: message %d: %q (%s), rows %d", row.Conversation, s.Message, r.Text[s.Start:s.End], want.Unusable, len(rows))
							continue
						}
						if got != [2]int{want.Start, want.End} {
							t.Errorf("%s: message %d: %v %q, want %v", row.Conversation, s.Message, got, r.Text[s.Start:s.End], want)
						}
					}
				}
				for _, a := range row.Assistant {
					if a.Unusable == "" && !slices.ContainsFunc(rows, func(r Row) bool {
						return slices.ContainsFunc(r.Spans, func(s Span) bool { return s.Message == a.Message })
					}) {
						t.Errorf("%s: message %d has no span", row.Conversation, a.Message)
					}
				}
			}
		})
	}
}

// TestSpansTemplates checks every span on the reference's templates: where the template has {% generation %} blocks the
// spans are these; else the text before a span is the template's prompt for the turn, and the text up to its end begins
// the row; and each ends with a token that ends turns.
func TestSpansTemplates(t *testing.T) {
	all := talks(t, "templates")
	trained, refused := 0, 0
	eachTemplate(t, func(name string, g goldenTemplate) {
		t.Run(name, func(t *testing.T) {
			c := newChat(t, g.Source, "<s>", "</s>", nil)
			t.Logf("%+v", *c.known[c.plain])
			for name, renders := range g.Renders {
				conv := all[name]
				rows, err := c.Rows(conv)
				plain := renders["plain"]
				if plain.Text == nil {
					if err == nil && !c.known[c.plain].partsOnly && !c.known[c.plain].textOnly && !c.known[c.plain].callText {
						t.Errorf("%s: no error, want %s", name, plain.Error)
					}
					continue
				}
				if err != nil {
					refused++
					t.Logf("%s: refused: %v", name, err)
					continue
				}
				for _, r := range rows {
					trained += len(r.Spans)
					checkRow(t, c, name, conv, r, plain)
				}
			}
		})
	})
	if t.Logf("%d spans, %d conversations refused", trained, refused); trained < 733 || refused > 28 {
		t.Error("fewer spans are proved, or more conversations refused, than were")
	}
}

func checkRow(t *testing.T, c *Chat, name string, conv *Conversation, r Row, plain goldenRender) {
	t.Helper()
	if !c.known[c.plain].partsOnly && !c.known[c.plain].textOnly && !r.Split && !strings.HasPrefix(r.Text, *plain.Text) {
		t.Errorf("%s: text %q, want %q", name, r.Text, *plain.Text)
	}
	if name == "parts" && c.known[c.plain].textOnly {
		return // the reference shows how the template writes a list as Python would
	}
	if plain.Generation != nil {
		var got [][2]int
		for _, s := range r.Spans {
			got = append(got, [2]int{points(r.Text, s.Start), points(r.Text, s.End)})
		}
		if !slices.Equal(got, plain.Generation) {
			t.Errorf("%s: spans %v, generation blocks %v", name, got, plain.Generation)
		}
		return
	}
	for _, s := range r.Spans {
		t.Logf("%s: message %d: %q", name, s.Message, r.Text[s.Start:s.End])
		if s.Start == s.End || s.Message == 0 || s.Start == len(strings.TrimSuffix(r.Text, "<|user|>")) || s.Start == len(strings.TrimSuffix(r.Text, "<|observation|>")) {
			continue
		}
		adapted := c.adapt(c.plain, conv)
		before := &Conversation{Messages: adapted.Messages[:s.Message], Tools: conv.Tools}
		prompt, err := c.plain.Text(before, true)
		if err != nil || r.Text[:s.Start] != prompt && !(r.Other > 0 && strings.HasPrefix(prompt, r.Text[:s.Start])) {
			t.Errorf("%s: message %d: the text before its span %q is not the prompt %q", name, s.Message, r.Text[:s.Start], prompt)
		}
	}
}

// TestShapesEqualProofs: what a shape says of a conversation is what proving the conversation itself says.
func TestShapesEqualProofs(t *testing.T) {
	all := talks(t, "templates")
	compared, alone := 0, 0
	eachTemplate(t, func(template string, g goldenTemplate) {
		c := newChat(t, g.Source, "<s>", "</s>", nil)
		for name, conv := range all {
			conv = c.adapt(c.plain, conv)
			chosen := c.chosen(conv)
			texts, key := c.key(c.plain, conv, chosen)
			byShape, err := c.byShape(c.plain, conv, chosen, texts, key)
			byProof, err2 := c.byProof(c.plain, conv, chosen, texts, marked)
			if err != nil {
				if err2 == nil {
					alone++
				}
				continue
			}
			if err2 != nil || len(byShape) != len(byProof) {
				t.Errorf("%s, %s: %d rows by shape, %d by proof (%v)", template, name, len(byShape), len(byProof), err2)
				continue
			}
			for i := range byShape {
				if byShape[i].Text != byProof[i].Text || !slices.Equal(byShape[i].Spans, byProof[i].Spans) || !slices.Equal(byShape[i].Labels, byProof[i].Labels) {
					t.Errorf("%s, %s: by shape %v, by proof %v", template, name, byShape[i].Spans, byProof[i].Spans)
				}
			}
			compared++
		}
	})
	if t.Logf("%d conversations equal, %d by proof alone", compared, alone); compared < 606 {
		t.Error("fewer conversations are compared than were")
	}
}
