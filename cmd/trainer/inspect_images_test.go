package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestInspectRowsWithImages: a row with images has its messages, and the page shows each image with its grid and the
// tokens of each cell.
func TestInspectRowsWithImages(t *testing.T) {
	dir := t.TempDir()
	picture := golden.ReadFile(t, golden.Path(t, "images/rgb.png"))
	put(t, dir, map[string]string{"a<b>.png": string(picture), "rows.jsonl": `{"messages":[` +
		`{"role":"user","content":"See <image> and <image>"},{"role":"assistant","content":"Yes."}],` +
		`"images":["a<b>.png","data:image/png;base64,` + base64.StdEncoding.EncodeToString(picture) + `"]}` + "\n"})
	for name, c := range map[string]struct{ model, caption, cell, run string }{
		"idefics3": {golden.Idefics3(t), "PNG, 38 x 26 pixels; tiles: 2 rows x 3 columns, and the whole image: " +
			"7 tiles of 16 x 16 pixels; tokens 11 to 55, 28 of them <image>",
			"<title>row 2, column 3: tokens 44 to 47</title>", "&lt;image&gt;×4</i>"},
		"qwen3_vl": {golden.Qwen3VL(t), "PNG, 38 x 26 pixels; resized: 40 x 24 pixels: 3 rows x 5 columns of tokens; " +
			"tokens 11 to 25, 15 of them <|image_pad|>",
			"<title>row 3, column 5: token 25</title>", "&lt;|image_pad|&gt;×15</i>"},
	} {
		put(t, dir, map[string]string{"run.yaml": "base_model: " + c.model + "\nadapter: lora\n" +
			"lora: {target_modules: all-linear}\ndataset: {path: rows.jsonl, max_length: 256}\noutput_dir: out\n"})
		inspect := func(more ...string) string {
			code, out, errOut := trainer(t, dir, nil, "", append([]string{"inspect", "data", "run.yaml"}, more...)...)
			if code != 0 {
				t.Fatal(name, errOut)
			}
			return out
		}
		out := inspect()
		for _, want := range []string{"\n  images: 2 in 1 rows; their embeddings stand in the places of ",
			"\n-- image 1, a<b>.png: " + c.caption + "\n", "-- image 2, data:image/png;base64,",
			"-- user, message 0: ", "-- assistant, message 1: "} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, out)
			}
		}
		var rows []dataset.Inspected
		if err := json.Unmarshal([]byte(inspect("--json")), &rows); err != nil || len(rows[0].Images) != 2 ||
			rows[0].Images[0].From != 11 ||
			rows[0].Tokens[rows[0].Images[0].To-1].Image == 2 {
			t.Errorf("%s: %v, %+v", name, err, rows[0].Images)
		}
		inspect("--html", "rows.html")
		page, err := os.ReadFile(filepath.Join(dir, "rows.html"))
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile(`href="data:image/png;base64,([^"]*)"`).FindAllSubmatch(page, -1)
		for _, want := range []string{c.cell, c.run, "image 1, a&lt;b&gt;.png: "} {
			if !bytes.Contains(page, []byte(want)) || len(shown) != 2 {
				t.Errorf("%s: %d pictures, no %q on the page", name, len(shown), want)
			}
		}
		raw, err := base64.StdEncoding.DecodeString(string(shown[0][1]))
		if m, err2 := png.Decode(bytes.NewReader(raw)); err != nil || err2 != nil || m.Bounds().Dx() != 38 {
			t.Errorf("%s: the page's picture: %v, %v", name, err, err2)
		}
	}
}
