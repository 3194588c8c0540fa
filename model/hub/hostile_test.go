package hub

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func manyShards(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("model-%d.safetensors", i))
	}
	return names
}

// TestRefusedRedirectsAreFinal: a redirect that is refused is asked for once; another try would get the same one.
func TestRefusedRedirectsAreFinal(t *testing.T) {
	for name, to := range map[string]string{
		"a file": "file:///etc/passwd", "another scheme": "ftp://127.0.0.1/x", "data": "data:text/plain,x",
		"no address": "http://[::1", "nowhere": "",
	} {
		t.Run(name, func(t *testing.T) {
			h := (&fakeHub{files: smallModel(), cdnFunc: func(w http.ResponseWriter, _ *http.Request) {
				if to != "" {
					w.Header().Set("Location", to)
				}
				w.WriteHeader(http.StatusFound)
			}}).start(t)
			if _, err := h.resolve(Options{}); err == nil || !strings.Contains(err.Error(), "redirect") {
				t.Errorf("error %v", err)
			}
			if n := len(h.noted("CDN GET")); n != 1 {
				t.Errorf("the CDN was asked %d times", n)
			}
		})
	}
}

// answers is a hub whose answers a fuzzer writes.
type answers struct {
	list, file, etag, location, size string
	status                           int
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, ProtoMajor: 1, ProtoMinor: 1}
	body := a.file
	switch {
	case strings.Contains(r.URL.Path, "/api/"):
		body = a.list
	case a.status != 0 && a.location != "":
		resp.StatusCode = a.status
		resp.Header.Set("Location", a.location)
	}
	resp.Header.Set("ETag", a.etag)
	resp.Header.Set("Content-Length", a.size)
	if r.Method == http.MethodHead {
		body = ""
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp, nil
}

// FuzzAnswers: whatever a hub answers, nothing panics, nothing is written outside the cache, and a download that
// succeeds has the files that it says.
func FuzzAnswers(f *testing.F) {
	const sha = `{"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"config.json"},{"rfilename":"model.safetensors"},{"rfilename":"tokenizer.json"}%s]}`
	list := fmt.Sprintf(sha, "")
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	f.Add(list, "", empty, "", "0", 0)
	f.Add(list, "x", "same", "", "1", 0)
	f.Add(list, "x", `W/"`+strings.Repeat("a", 40)+`"`, "file:///etc/passwd", "1", 302)
	f.Add(list, "x", strings.Repeat("0", 64), "//other/%2e%2e", "-1", 307)
	for _, name := range []string{"../evil", "/abs", "a\\u0000b", ".", "", "./x", "a//b", "a/", "con", ".git/hooks/x",
		"refs/main", "config.json/x", "x.incomplete"} {
		f.Add(fmt.Sprintf(sha, `,{"rfilename":"`+name+`"}`), "", empty, "", "0", 0)
	}
	f.Add(strings.Replace(list, "model.safetensors", "model.safetensors.index.json", 1),
		`{"weight_map":{"a":"../evil.safetensors"}}`, empty, "", "44", 0)
	f.Add(`{"sha":"../../x","siblings":[]}`, "", "", "", "", 0)
	f.Add(`[[[[`, "", "", "", "9223372036854775808", 0)
	f.Fuzz(func(t *testing.T, list, file, etag, location, size string, status int) {
		above := t.TempDir()
		cache := filepath.Join(above, "cache")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		o := Options{Download: true, CacheDir: cache, Endpoint: "http://hub.invalid", Token: "hf_secret",
			pause:     time.Microsecond,
			Transport: answers{list, file, etag, location, size, status%100 + 300}}
		s, err := Fetch(ctx, "org/name", o, []string{"*"})
		if err != nil && strings.Contains(err.Error(), "hf_secret") && !strings.Contains(list+file+etag+location+
			size, "hf_secret") {
			t.Errorf("the error holds the token: %v", err)
		}
		if err == nil {
			for _, name := range s.Files {
				if info, err := os.Stat(filepath.Join(s.Dir, filepath.FromSlash(name))); err != nil ||
					strconv.FormatInt(info.Size(), 10) != strings.TrimSpace(size) {
					t.Errorf("%q: %v", name, err)
				}
			}
		}
		err = filepath.WalkDir(above, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if in, err := filepath.Rel(cache, path); path != above && (err != nil || !filepath.IsLocal(in)) {
				t.Errorf("%s lies outside of the cache", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
