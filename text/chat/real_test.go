package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// smolLM loads the tokenizer of the reference data in the repository, with which SmolLM2's ids are the same.
func smolLM(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(golden.Path(t, "tokenizers/smollm"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type smolReference struct {
	Template   string                       `json:"template"`
	Generation string                       `json:"generation"`
	Files      map[string][]json.RawMessage `json:"files"`
}

// open makes a Chat of a template's text.
func open(t testing.TB, source string, tok Tokenizer, change func(*Options)) *Chat {
	t.Helper()
	tokens := jinja.NewDict()
	tokens.Set("bos_token", jinja.Str("<|im_start|>"))
	tokens.Set("eos_token", jinja.Str("<|im_end|>"))
	o := DefaultOptions()
	o.Allow = []string{"all"} // the reference takes special tokens wherever they stand
	if change != nil {
		change(&o)
	}
	c, err := New(&Sources{Templates: map[string]string{"default": source}, Tokens: tokens}, "", tok, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mask(r Row) []int32 {
	m := make([]int32, len(r.Labels))
	for i, l := range r.Labels {
		if l != Ignore {
			m[i] = 1
		}
	}
	return m
}

func digest(numbers []int32) string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, numbers)
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// TestTalks: ids equal apply_chat_template's and masks return_assistant_tokens_mask's, token by token: with the template
// that has {% generation %} blocks, and with SmolLM2's own, whose turns are proved by prefixes.
func TestTalks(t *testing.T) {
	var ref smolReference
	golden.JSON(t, golden.Path(t, "chat/smollm2.json"), &ref)
	var rows []struct {
		Messages json.RawMessage `json:"messages"`
		IDs      []int32         `json:"ids"`
		Mask     []int32         `json:"mask"`
	}
	golden.JSON(t, golden.Path(t, "chat/talks.json"), &rows)
	tok := smolLM(t)
	for name, source := range map[string]string{"own": ref.Template, "generation": ref.Generation} {
		c := open(t, source, tok, nil)
		for i, row := range rows {
			conv, err := Read(Raw{Key: "messages", Messages: row.Messages})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Rows(conv)
			if err != nil || len(got) != 1 {
				t.Fatalf("%s, row %d: %d rows, %v", name, i, len(got), err)
			}
			if !slices.Equal(got[0].IDs, row.IDs) {
				t.Errorf("%s, row %d: ids\n got %v\nwant %v", name, i, got[0].IDs, row.IDs)
			}
			if !slices.Equal(mask(got[0]), row.Mask) {
				t.Errorf("%s, row %d: mask\n got %v\nwant %v", name, i, mask(got[0]), row.Mask)
			}
		}
		if n := len(c.shapes); n > 20 {
			t.Errorf("%s: %d shapes for %d conversations", name, n, len(rows))
		}
	}
}

// TestSharedTalks is TestTalks with SmolLM2's tokenizer on all conversations of the shared data.
func TestSharedTalks(t *testing.T) {
	dir := golden.SmolLM2(t)
	var ref smolReference
	golden.JSON(t, golden.Path(t, "chat/smollm2.json"), &ref)
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := Find(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	own, err := New(sources, "", tok, Options{TrainOn: TrainAssistant, Roles: []string{"assistant"}, Reasoning: true, ToolCalls: true, Turns: SplitAuto, Allow: []string{"all"}})
	if err != nil {
		t.Fatal(err)
	}
	blocks := open(t, ref.Generation, tok, nil)
	compared, trained := 0, 0
	for file, want := range ref.Files {
		convs := readTalks(t, golden.Outside(t, "data/datasets/"+file))
		if len(convs) != len(want) {
			t.Fatalf("%s: %d conversations, the reference has %d", file, len(convs), len(want))
		}
		for i, conv := range convs {
			for name, c := range map[string]*Chat{"own": own, "generation": blocks} {
				rows, err := c.Rows(conv)
				if err != nil || len(rows) != 1 {
					t.Errorf("%s, row %d, %s: %d rows, %v", file, i, name, len(rows), err)
					continue
				}
				m, n := mask(rows[0]), 0
				for _, on := range m {
					n += int(on)
				}
				got, _ := json.Marshal([]any{len(rows[0].IDs), n, digest(rows[0].IDs), digest(m)})
				if string(got) != strings.ReplaceAll(string(want[i]), "\n", "") {
					t.Errorf("%s, row %d, %s: %s, want %s", file, i, name, got, want[i])
				}
				compared, trained = compared+1, trained+n
			}
		}
	}
	t.Logf("%d rows, %d trained tokens, shapes: %d and %d", compared, trained, len(own.shapes), len(blocks.shapes))
}

// readTalks reads a data set of the shared data.
func readTalks(t *testing.T, path string) []*Conversation {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]json.RawMessage
	switch trimmed := strings.TrimSpace(string(b)); {
	case strings.HasPrefix(trimmed, "["):
		if err := json.Unmarshal(b, &rows); err != nil {
			t.Fatal(err)
		}
	default:
		for d := json.NewDecoder(strings.NewReader(trimmed)); d.More(); {
			var row map[string]json.RawMessage
			if err := d.Decode(&row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
	}
	var convs []*Conversation
	for i, row := range rows {
		raw := Raw{Key: "messages", Messages: row["messages"]}
		if raw.Messages == nil {
			raw.Key, raw.Messages = "conversations", row["conversations"]
		}
		conv, err := Read(raw)
		if err != nil {
			t.Fatalf("%s, row %d: %v", path, i, err)
		}
		convs = append(convs, conv)
	}
	return convs
}

// TestGenerationMasks: ids and masks of every template with {% generation %} blocks, with tokenizers that know its marks
// and such that do not.
func TestGenerationMasks(t *testing.T) {
	smol, err := tokenizer.Load(golden.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	tokenizers := map[string]*tokenizer.Tokenizer{"smollm2": smol}
	folders := map[string]string{"smollm2": golden.SmolLM2(t)}
	for name, folder := range map[string]string{"qwen2.5": "qwen2.5", "tinyllama": "tinyllama-1.1b-chat"} {
		folders[name] = golden.Outside(t, "data/tokenizers/"+folder)
		if tokenizers[name], err = tokenizer.Load(folders[name]); err != nil {
			t.Fatal(err)
		}
	}
	all := talks(t, "templates")
	var ref map[string]map[string]struct {
		Tokens, Trained int
		IDs, Mask       string
		Error           string
	}
	golden.JSON(t, golden.Path(t, "chat/generation.json"), &ref)
	compared := 0
	for both, rows := range ref {
		template, name, _ := strings.Cut(both, " ")
		var g struct {
			Source string `json:"source"`
		}
		golden.JSON(t, golden.Outside(t, "goldens/templates/"+template+".json"), &g)
		sources, err := Find(os.DirFS(folders[name]))
		if err != nil {
			t.Fatal(err)
		}
		sources.Templates = map[string]string{"default": g.Source}
		o := DefaultOptions()
		o.Allow = []string{"all"}
		c, err := New(sources, "", tokenizers[name], o)
		if err != nil {
			t.Fatal(err)
		}
		for talk, want := range rows {
			if want.Error != "" || talk == "parts" && c.known[c.plain].textOnly || talk != "parts" && c.known[c.plain].partsOnly {
				continue
			}
			got, err := c.Rows(all[talk])
			if err != nil {
				t.Logf("%s: %s: refused: %v", both, talk, err)
				continue
			}
			m, n := mask(got[0]), 0
			for _, on := range m {
				n += int(on)
			}
			if len(got) != 1 || len(m) != want.Tokens || digest(got[0].IDs) != want.IDs {
				t.Errorf("%s: %s: %d rows, %d ids, want one of %d, digest %s, want %s", both, talk, len(got), len(m), want.Tokens, digest(got[0].IDs), want.IDs)
				continue
			}
			if n != want.Trained || digest(m) != want.Mask {
				t.Errorf("%s: %s: %d trained, want %d: %v", both, talk, n, want.Trained, m)
			}
			compared++
		}
	}
	t.Logf("%d masks equal", compared)
}

// BenchmarkRows is the rate of text through template, proof and tokenizer.
func BenchmarkRows(b *testing.B) {
	var ref smolReference
	golden.JSON(b, golden.Path(b, "chat/smollm2.json"), &ref)
	var rows []struct {
		Messages json.RawMessage `json:"messages"`
	}
	golden.JSON(b, golden.Path(b, "chat/talks.json"), &rows)
	tok := smolLM(b)
	for name, source := range map[string]string{"own": ref.Template, "generation": ref.Generation} {
		b.Run(name, func(b *testing.B) {
			c := open(b, source, tok, nil)
			for b.Loop() {
				size := 0
				for _, row := range rows {
					conv, err := Read(Raw{Key: "messages", Messages: row.Messages})
					if err != nil {
						b.Fatal(err)
					}
					got, err := c.Rows(conv)
					if err != nil {
						b.Fatal(err)
					}
					size += len(got[0].Text)
				}
				b.SetBytes(int64(size))
			}
		})
	}
}
