package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestChatAndServeWithImages: both answer about images as generate does, several requests at a time, and refuse what
// they do not read.
func TestChatAndServeWithImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, model := range map[string]string{"idefics3": golden.Idefics3(t), "qwen3_vl": golden.Qwen3VL(t)} {
		t.Run(name, func(t *testing.T) { answersAboutImages(t, dir, model) })
	}
	code, _, errOut := trainer(t, dir, nil, "/image x.png\n/exit\n", "chat", "--device", "cpu", "--model",
		golden.Idefics3(t))
	if !strings.Contains(errOut, "/image needs a chat with --images") {
		t.Error(code, errOut)
	}
	code, _, errOut = trainer(t, dir, nil, "", "chat", "--device", "cpu", "--images", "--chat-template", "chatml",
		"--model", golden.StoriesDir(t))
	if code == 0 || !strings.Contains(errOut, "reads no images (docs/IMAGES.md lists those that do)") {
		t.Error(code, errOut)
	}
}

func answersAboutImages(t *testing.T, dir, model string) {
	const question = "Which shape is red?"
	files := []string{golden.Path(t, "images/rgb.png"), golden.Path(t, "images/grey16.png")}
	answers := make([]string, len(files))
	for i, file := range files {
		code, out, errOut := trainer(t, dir, nil, "", "generate", "--device", "cpu", "--max-tokens", "6", "--model",
			model, "--image", file, "--prompt", question)
		if code != 0 {
			t.Fatal(code, errOut)
		}
		answers[i] = strings.TrimSuffix(out, "\n")
	}
	lines := []string{"/image " + files[0], question, "/reset", "/image " + files[1], question, "/image none.png", ""}
	code, out, errOut := trainer(t, dir, nil, strings.Join(lines, "\n"), "chat", "--device", "cpu", "--max-tokens", "6", "--max-length", "256", "--images",
		"--model", model)
	oneLine := strings.NewReplacer("\n", `\n`)
	want := oneLine.Replace(answers[0]) + "\n" + oneLine.Replace(answers[1]) + "\n"
	if out != want || !strings.Contains(errOut, "image none.png: ") {
		t.Errorf("chat: %d, %q, want %q\n%s", code, out, want, errOut)
	}
	s := startServer(t, dir, nil, "--model", model, "--images", "--max-length", "256", "--slots", "2",
		"--served-model-name", "m")
	ask := func(url string) (int, string) {
		body := fmt.Sprintf(`{"model":"m","max_tokens":6,"temperature":0,"messages":[{"role":"user","content":[
			{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":%q}]}]}`, url, question)
		r, err := http.Post(s.url+"/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer r.Body.Close()
		all, _ := io.ReadAll(r.Body)
		var got struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if json.Unmarshal(all, &got) == nil && len(got.Choices) == 1 {
			return r.StatusCode, got.Choices[0].Message.Content
		}
		return r.StatusCode, string(all)
	}
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			uri := "data:image/png;base64," + base64.StdEncoding.EncodeToString(golden.ReadFile(t, files[i%2]))
			if status, answer := ask(uri); status != 200 || answer != answers[i%2] {
				t.Errorf("serve, image %d: %d, %q, want %q", i%2, status, answer, answers[i%2])
			}
		}()
	}
	wait.Wait()
	for url, want := range map[string]string{
		"https://example.org/cat.png":    "image 1 is no data: URI, and this server fetches nothing",
		files[0]:                         "image 1 is no data: URI, and this server fetches nothing",
		"data:image/png;base64,aGVsbG8":  "image 1: ",
		"data:image/png;base64,aGVsbG8=": "which is no PNG, JPEG, WebP or GIF",
	} {
		if status, answer := ask(url); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d, %s, want %s", url, status, answer, want)
		}
	}
}
