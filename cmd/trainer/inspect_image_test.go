package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

func TestInspectImage(t *testing.T) {
	model, dir := golden.Idefics3(t), t.TempDir()
	photo := golden.Path(t, "images/progressive.jpg")
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "image", photo, "--model", model)
	want := "image       " + photo + ": JPEG, 16 x 22 pixels, EXIF orientation 6\n" +
		"tiles       3 rows x 3 columns, and the whole image: 10 tiles of 16 x 16 pixels\n" +
		"tokens      64, of which 40 are <image>\n"
	if code != 0 || out != want {
		t.Fatal(code, out, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "image", photo, "--model", model, "--json")
	var answer imageJSON
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 {
		t.Fatal(code, err, errOut)
	}
	// the ids of rows, which transformers made, hold an image's
	var reference struct {
		Rows []struct {
			IDs []int32 `json:"ids"`
		} `json:"rows"`
	}
	golden.JSON(t, golden.Path(t, "idefics3/rows.json"), &reference)
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "image", golden.Path(t, "images/rgb.png"), "--model", model,
		"--json")
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 {
		t.Fatal(code, err, errOut)
	}
	ids := reference.Rows[0].IDs
	at := 0
	for ids[at] != answer.IDs[0] {
		at++
	}
	for i, id := range answer.IDs {
		if ids[at+i] != id {
			t.Fatalf("id %d is %d, transformers has %d", i, id, ids[at+i])
		}
	}
	if ids[at+len(answer.IDs)] == answer.IDs[0] {
		t.Error("transformers has more ids of the image")
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "image", photo, "--model", golden.Qwen3VL(t))
	want = "image       " + photo + ": JPEG, 16 x 22 pixels, EXIF orientation 6\n" +
		"resized     16 x 24 pixels: 3 rows x 2 columns of tokens\ntokens      6, of which 6 are <|image_pad|>\n"
	if code != 0 || out != want {
		t.Error(code, out, errOut)
	}
	broken := filepath.Join(dir, "broken.png")
	if err := os.WriteFile(broken, golden.ReadFile(t, golden.Path(t, "images/rgb.png"))[:200], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, model, want string }{
		{broken, model, "broken.png: PNG: the file ends before the image does"},
		{photo, golden.StoriesDir(t), "the model's folder has no preprocessor_config.json: it describes no images"},
	} {
		code, _, errOut := trainer(t, dir, nil, "", "inspect", "image", c.file, "--model", c.model)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Error(code, errOut)
		}
	}
}

// TestGenerateWithImageOfQwen: other images have other answers, and the same image the same.
func TestGenerateWithImageOfQwen(t *testing.T) {
	model, dir := golden.Qwen3VL(t), t.TempDir()
	answers := map[string]bool{}
	for _, name := range []string{"rgb.png", "grey16.png", "rgb.png"} {
		code, out, errOut := trainer(t, dir, nil, "", "generate", "--device", "cpu", "--max-tokens", "6", "--model",
			model, "--image", golden.Path(t, "images/"+name), "--prompt", "Which shape is red?")
		if code != 0 {
			t.Fatal(code, errOut)
		}
		answers[out] = true
	}
	if len(answers) != 2 {
		t.Errorf("two images have the answers %v", answers)
	}
}

// TestGenerateWithImage answers a question about an image, and refuses what cannot be answered.
func TestGenerateWithImage(t *testing.T) {
	model, dir := golden.Idefics3(t), t.TempDir()
	photo, other := golden.Path(t, "images/rgb.png"), golden.Path(t, "images/grey16.png")
	ask := func(more ...string) (int, string, string) {
		return trainer(t, dir, nil, "", append([]string{"generate", "--device", "cpu", "--max-tokens", "6", "--model"},
			more...)...)
	}
	code, first, errOut := ask(model, "--image", photo, "--prompt", "Which shape is red?")
	if code != 0 || first == "" {
		t.Fatal(code, first, errOut)
	}
	code, second, errOut := ask(model, "--image", other, "--prompt", "Which shape is red?")
	if code != 0 || second == first {
		t.Errorf("another image has the same answer %q: %d, %s", second, code, errOut)
	}
	talk := filepath.Join(dir, "talk.json")
	if err := os.WriteFile(talk, []byte(`[{"role":"user","content":[{"type":"image","image":"`+photo+
		`"},{"type":"text","text":"Which shape is red?"}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, same, errOut := ask(model, "--messages", talk); code != 0 || same != first {
		t.Errorf("as messages: %d, %q, want %q: %s", code, same, first, errOut)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{model, "--image", "none.png", "--prompt", "x"}, "image none.png: "},
		{[]string{model, "--image", talk, "--prompt", "x"}, "which is no PNG, JPEG, WebP or GIF"},
		{[]string{model, "--image", photo, "--messages", talk}, "--image goes with --prompt"},
		{[]string{golden.StoriesDir(t), "--image", photo, "--prompt", "x", "--chat-template", "chatml"},
			"reads no images"},
	} {
		if code, _, errOut := ask(c.args...); code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: %d, %s", c.args, code, errOut)
		}
	}
}
