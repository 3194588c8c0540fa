package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// pictureToken is the token @.
const pictureToken = fakeFirst + '@'

// drawnImage is an image of as many tokens as its file has bytes.
type drawnImage string

func (m drawnImage) IDs() []int32                   { return slices.Repeat([]int32{pictureToken}, len(m)) }
func (m drawnImage) Embeddings() ([]float32, error) { return make([]float32, len(m)), nil }
func (m drawnImage) Key() [sha256.Size]byte         { return sha256.Sum256([]byte(m)) }

// drawnImages reads files as drawnImage.
type drawnImages struct{}

func (drawnImages) Read(file []byte) (Image, error) { return drawnImage(file), nil }
func (drawnImages) Token() int32                    { return pictureToken }

// pictured is a template with parts: an image is one @.
const pictured = `{% for m in messages %}{{ m.role }}:{% for p in m.content %}{% if p.type == 'image' %}@{% else %}` +
	`{{ p.text }}{% endif %}{% endfor %}{{ '</s>\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`

func TestRowsWithImages(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.png": "four", "sub.png": "six666"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uri := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("ab"))
	load := func(row string, change func(*Config)) (*Set, *Report, error) {
		cfg := Default()
		cfg.Path, cfg.MaxLength = filepath.Join(dir, "rows.jsonl"), 100
		cfg.Images = drawnImages{}
		tokens := jinja.NewDict()
		tokens.Set("eos_token", jinja.Str("</s>"))
		cfg.Chat = func() (*chat.Sources, error) {
			return &chat.Sources{Templates: map[string]string{"default": pictured}, Tokens: tokens}, nil
		}
		if change != nil {
			change(&cfg)
		}
		if err := os.WriteFile(cfg.Path, []byte(row+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(context.Background(), cfg, bytesTokenizer{})
	}
	const answer = `{"role":"assistant","content":"yes"}`
	for _, c := range []struct{ row, want string }{
		{`{"messages":[{"role":"user","content":[{"type":"image","image":"a.png"},{"type":"text","text":"?"}]},` +
			answer + `]}`,
			"user:@@@@?</s>\nassistant:yes"},
		{`{"messages":[{"role":"user","content":"<image>x<image>"},` + answer + `],"images":["a.png","sub.png"]}`,
			"user:@@@@x@@@@@@</s>\nassistant:yes"},
		{`{"messages":[{"role":"user","content":"x<image>"},` + answer + `],"images":{"path":"a.png"}}`,
			"user:x@@@@</s>\nassistant:yes"},
		{`{"conversations":[{"from":"human","value":"<image>\nx"},{"from":"gpt","value":"yes"}],"image":"a.png"}`,
			"user:@@@@\nx</s>\nassistant:yes"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + uri + `"}}]},` +
			answer + `]}`,
			"user:@@</s>\nassistant:yes"},
		{`{"messages":[{"role":"user","content":"<image> is a text"},` + answer + `]}`,
			"user:<image> is a text</s>\nassistant:yes"},
	} {
		set, _, err := load(c.row, nil)
		if err != nil {
			t.Errorf("%s: %v", c.row, err)
			continue
		}
		row := set.Train.Row(0)
		if got := (bytesTokenizer{}).Decode(row.IDs, false); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.row, got, c.want)
		}
		for i, l := range row.Labels {
			if l != Ignore && row.IDs[i] == pictureToken {
				t.Errorf("%s: a token of an image is trained", c.row)
			}
		}
		if n := strings.Count(c.want, "@"); n > 0 && row.Images == nil {
			t.Errorf("%s: no images", c.row)
		}
	}
	wrong := func(content, more string) string {
		return `{"messages":[{"role":"user","content":` + content + `},` + answer + `]` + more + `}`
	}
	part := func(ref string) string { return wrong(`[{"type":"image","image":"`+ref+`"}]`, "") }
	for _, c := range []struct {
		row, want string
		change    func(*Config)
	}{
		{wrong(`"<image>"`, `,"images":[]`), "the row has 0 images in its column and 1 mark without", nil},
		{wrong(`"none"`, `,"images":["a.png"]`), "the row has 1 image in its column and 0 marks without", nil},
		{wrong(`[{"type":"image"}]`, ""), "the row has 0 images in its column and 1 mark without", nil},
		{wrong(`[{"type":"image","image":3}]`, ""),
			"messages[0].content[0].image is a number, want a path or a data: URI", nil},
		{part("none.png"), "image 1 (none.png): the folder of the data file, " + dir + ", has no such file", nil},
		{part("../a.png"), "the path leaves the folder of the data file", nil},
		{part("/etc/passwd"), "the path leaves the folder of the data file", nil},
		{part("http://x/a.png"),
			"URLs are not fetched: download the image beside the data file and write its path", nil},
		{part("data:image/png,x"), "a data: URI must be data:image/png;base64,…", nil},
		{part("data:image/png;base64,!"), "the data: URI: illegal base64 data", nil},
		{part("a.png"),
			`messages[0].content[0] is of type "image": only text is trained on`, func(c *Config) { c.Images = nil }},
		{wrong(`"<image>"`, `,"images":["a.png"]`), "messages[0] has the mark <image> of an image: only text is " +
			"trained on (docs/IMAGES.md lists", func(c *Config) { c.Images = nil }},
		{part("a.png"), "rows with images need dataset.streaming: false", func(c *Config) { c.Streaming = true }},
		{part("a.png"),
			"longer than max_length, and it has images, which are not cut", func(c *Config) { c.MaxLength = 24 }},
	} {
		if _, _, err := load(c.row, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.row, err, c.want)
		}
	}
}
