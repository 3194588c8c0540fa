//go:build unix

package serve

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/browsertest"
)

// TestBrowserChat: the page at / talks with a model by keyboard, shows markup of an answer as text, keeps the
// conversation, asks for the API key where there is one, fits a phone, and loads nothing from elsewhere.
func TestBrowserChat(t *testing.T) {
	b := browsertest.Start(t)
	for i, width := range []int{1280, 390} {
		f := newFake(t, 2)
		words := []string{"<img src=x onerror=\"document.title='run'\">", " and", " more"}
		f.words = func(_ infer.Prompt, _ string, _ Sampling, n int) string {
			if n >= len(words) {
				return ""
			}
			return words[n]
		}
		key := []string{"", "secret"}[i]
		s := open(t, library(t, talkTemplate), f, Options{APIKey: key})
		b.Open(s.url+"/", width, 844, i == 1, true)
		if key != "" {
			b.Wait(`!document.getElementById("key-form").hidden && document.activeElement.id === "key"`)
			b.Eval(`((e) => { e.value = "wrong"; return 0; })(document.getElementById("key"))`, new(any))
			b.Eval(`document.querySelector("#key-form button").click() || 0`, new(any))
			b.Wait(`document.getElementById("key-said").textContent === "The server does not know this key."`)
			b.Eval(`((e) => { e.value = "secret"; return 0; })(document.getElementById("key"))`, new(any))
			b.Eval(`document.querySelector("#key-form button").click() || 0`, new(any))
			b.Wait(`document.getElementById("key-form").hidden`)
			b.Console = nil // the refusals are reported
		}
		b.Wait(`document.activeElement.getAttribute("aria-label") === "message"`)
		// the last has no template
		b.Eval(`((e) => { e.value = "one"; return 0; })(document.querySelector(".chat select"))`, new(any))
		for n := range 2 {
			for _, c := range "hello" {
				b.Key(string(c))
			}
			b.Key("Enter")
			b.Wait(fmt.Sprintf(`document.querySelectorAll(".messages li").length === %d && / `+
				`s$/.test(document.querySelector(".said").textContent)`, 2*n+2))
		}
		var got []string
		b.Eval(`[...document.querySelectorAll(".messages li span")].map((e) => e.textContent)`, &got)
		if want := strings.Join(words, ""); len(got) != 4 || got[0] != "hello" ||
			strings.TrimSpace(got[1]) != strings.TrimSpace(want) ||
			strings.TrimSpace(got[3]) != strings.TrimSpace(want) {
			t.Errorf("%d wide: the conversation is %q", width, got)
		}
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d wide, not %d", wide, width)
		}
		var images int
		if b.Eval(`document.images.length`, &images); images != 0 {
			t.Errorf("%d images: an answer became markup", images)
		}
		if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
			b.Shoot(filepath.Join(dir, fmt.Sprintf("chat-%d.png", width)))
		}
		b.Eval(`[...document.querySelectorAll("button")].find((e) => e.textContent === "New conversation").click() || 0`, new(any))
		b.Wait(`document.querySelectorAll(".messages li").length === 0`)
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}

// TestPage: the files of the page have a policy, need no key, take GET alone, and are refused to other sites' names.
func TestPage(t *testing.T) {
	s := open(t, library(t, talkTemplate), newFake(t, 1), Options{APIKey: "secret"})
	for path := range pages {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 200 || r.Header.Get("Content-Security-Policy") != pagePolicy ||
			r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
		if code, text := s.post(t, path, "{}"); code != 405 {
			t.Errorf("POST %s: %d %s", path, code, text)
		}
	}
	if strings.Contains(pagePolicy, "unsafe") || !strings.HasPrefix(pagePolicy, "default-src 'none'") {
		t.Error(pagePolicy)
	}
	plain := open(t, library(t, talkTemplate), newFake(t, 1), Options{})
	r, err := http.NewRequest(http.MethodGet, plain.url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	if code, text := do(t, r); code != 403 {
		t.Errorf("another name: %d %s", code, text)
	}
}
