package live

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpload: a file arrives whole in the folder that was given; names that lead elsewhere, files that are there, too
// large or cut off leave nothing behind.
func TestUpload(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	outside := t.TempDir()
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	s, _ := fixture(t, func(o *Options) { o.Data, o.MostData = data, 100 })
	send := func(name, body string, length int64) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/api/upload?name="+url.QueryEscape(name), strings.NewReader(body))
		r.Header.Set("X-Trainer-Token", token)
		r.ContentLength = length
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, text := send("rows.jsonl", `{"a":1}`, 7); code != 200 || !strings.Contains(text, `"bytes":7`) {
		t.Fatalf("%d %s", code, text)
	}
	if got, _ := os.ReadFile(filepath.Join(data, "rows.jsonl")); string(got) != `{"a":1}` {
		t.Errorf("the file is %q", got)
	}
	if err := os.Symlink(filepath.Join(outside, "taken.jsonl"), filepath.Join(data, "link.jsonl")); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		name, body string
		length     int64
		code       int
		want       string
	}{
		{"rows.jsonl", "other", 5, 409, "is there already"},
		{"link.jsonl", "other", 5, 409, "is there already"},
		{"../rows.jsonl", "x", 1, 400, "is no name of a data file"},
		{"a/b.jsonl", "x", 1, 400, "is no name of a data file"},
		{"/etc/x.jsonl", "x", 1, 400, "is no name of a data file"},
		{".hidden.jsonl", "x", 1, 400, "is no name of a data file"},
		{"a\\b.jsonl", "x", 1, 400, "is no name of a data file"},
		{"run.sh", "x", 1, 400, "is no name of a data file"},
		{"a.jsonl\x00", "x", 1, 400, "is no name of a data file"},
		{"", "x", 1, 400, "is no name of a data file"},
		{"large.jsonl", strings.Repeat("x", 101), 101, 413, "at most 100 B are taken"},
		{"unsaid.jsonl", strings.Repeat("x", 101), -1, 413, "more than the 100 B"},
	} {
		code, text := send(c.name, c.body, c.length)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: %d %s, want %d %q", c.name, code, text, c.code, c.want)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(data, "rows.jsonl")); string(got) != `{"a":1}` {
		t.Errorf("the file was replaced by %q", got)
	}
	if left, _ := os.ReadDir(data); len(left) != 2 {
		t.Errorf("%v is in the folder", left)
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("%v was written through a link", left)
	}
}
