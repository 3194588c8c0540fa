package hub

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var pushed = map[string][]byte{
	"adapter_config.json": []byte(`{"r": 8}`), "README.md": []byte("---\ntags: [a]\n---\ncard\n"), "empty.txt": {},
	"adapter_model.safetensors": bytes.Repeat([]byte("0123456789abcdef"), 5000),
}

// pushFiles are files from memory, and a large one from the disk.
func pushFiles(t *testing.T) (files []File) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(pushed)) {
		f := File{Name: name, Data: pushed[name]}
		if strings.HasSuffix(name, ".safetensors") {
			f.Path, f.Data = filepath.Join(t.TempDir(), "file"), nil
			if err := os.WriteFile(f.Path, pushed[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		files = append(files, f)
	}
	return files
}

func (h *pushHub) push(t *testing.T, o PushOptions) (Pushed, error) {
	t.Helper()
	o.Endpoint, o.pause, o.CacheDir = h.hub.URL, time.Millisecond, t.TempDir()
	if o.Token == "" {
		o.Token = h.token
	}
	if o.Files == nil {
		o.Files = pushFiles(t)
	}
	if o.Message == "" {
		o.Message = "upload"
	}
	return Push(context.Background(), "org/name", o)
}

// TestPush: files arrive whole, in one piece and in parts; the same again sends nothing.
func TestPush(t *testing.T) {
	for _, part := range []int64{0, 30_000, 80_000} {
		h := (&pushHub{part: part}).start(t)
		p, err := h.push(t, PushOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !p.Created || !p.Private || h.private != true || p.Commit != commit || len(p.Files) != len(pushed) ||
			!strings.HasSuffix(p.URL, "/commit/"+commit) {
			t.Errorf("%+v, private %v", p, h.private)
		}
		if !maps.EqualFunc(h.files, pushed, bytes.Equal) {
			t.Errorf("parts of %d: the repository has other files", part)
		}
		if p, err = h.push(t, PushOptions{}); err != nil || p.Created || len(p.Files) != 0 ||
			len(p.Same) != len(pushed) || h.commits != 1 {
			t.Errorf("again: %+v, %v, %d commits", p, err, h.commits)
		}
	}
	h := (&pushHub{}).start(t)
	if p, err := h.push(t, PushOptions{Public: true}); err != nil || p.Private || h.private != false {
		t.Errorf("public: %+v, %v", p, err)
	}
}

// TestPushKeepsACard: a card that somebody wrote by hand stays.
func TestPushKeepsACard(t *testing.T) {
	for theirs, kept := range map[string]bool{"by hand": true, "by us": false} {
		h := (&pushHub{exists: true}).start(t)
		h.files["README.md"] = []byte(theirs)
		p, err := h.push(t, PushOptions{Card: func(old []byte) bool { return string(old) == "by us" }})
		if err != nil || slices.Contains(p.Kept, "README.md") != kept ||
			(string(h.files["README.md"]) == theirs) != kept {
			t.Errorf("%s: %+v, %v", theirs, p, err)
		}
	}
}

// TestPushFails: whatever the hub does, the error says it, the token is nowhere in it, and nothing is committed by
// halves.
func TestPushFails(t *testing.T) {
	status := func(code int, header ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	body := func(kind, text string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", kind)
			w.Write([]byte(text)) //nolint:errcheck // of a test
		}
	}
	for _, c := range []struct {
		at    string // part of a path
		times int
		do    func(w http.ResponseWriter)
		want  string // "" = the push gets there
	}{
		{"/api/repos/create", 3, status(503), ""},
		{"/api/repos/create", 9, status(503), "/api/repos/create answers 503 Service Unavailable"},
		{"/api/repos/create", 1, status(429, "Retry-After", "1"), ""},
		{"/api/repos/create", 1, status(429, "Retry-After", "86400"),
			"answers 429 Too Many Requests: the server asks to wait 24h0m0s; try again then"},
		{"/api/repos/create", 1, status(401), "answers 401 Unauthorized: the token was refused; it needs the right " +
			"to write (HF_TOKEN, or `hf auth login`)"},
		{"/api/repos/create", 1, status(403), "answers 403 Forbidden: the token may not write to org/name; use one " +
			"with that right, or your own name as OWNER"},
		{"/api/repos/create", 1, status(302, "Location", "/elsewhere"),
			"a redirect that a request with a body does not follow; is HF_ENDPOINT right?"},
		{"/api/repos/create", 1, body("text/html; charset=utf-8", "<html>Log in</html>"),
			"answers with a web page: is HF_ENDPOINT right, or does a proxy or a login page answer instead of the hub?"},
		{"/validate-yaml", 1, func(w http.ResponseWriter) {
			w.WriteHeader(400)
			w.Write(
				[]byte(`{"errors":[{"message":"\"license\" must be a string\u001b[31m"}]}`)) //nolint:errcheck // of a test
		}, `the hub refuses the front matter of README.md: `},
		{"/preupload/", 1, body("application/json", `{"files":[]}`), "the answer says nothing of README.md"},
		{"/preupload/", 1, body("application/json", `{"files": "many"`), "the answer is not the hub's: "},
		{"/preupload/", 1, body("application/json", `{"files":[{"path":"README.md","uploadMode":"xet"}]}`),
			`is to be uploaded as "xet", which is neither regular nor lfs`},
		{"/objects/batch", 1, body("application/json", `{"objects":[]}`),
			"the large file storage says nothing of adapter_model.safetensors"},
		{"/objects/batch", 1, body("application/json", `{"objects":[{"oid":"`+
			sum256(pushed["adapter_model.safetensors"])+`","size":80000,"error":{"code":422,"message":"too large"}}]}`),
			"adapter_model.safetensors: the large file storage refuses it: 422 too large"},
		{"/objects/batch", 1, body("application/json", `{"objects":[{"oid":"`+
			sum256(pushed["adapter_model.safetensors"])+`","size":1}]}`),
			"the large file storage says that it has 1 bytes; it has 80000"},
		{"/objects/batch", 1, body("application/json", `{"objects":[{"oid":"`+
			sum256(pushed["adapter_model.safetensors"])+
			`","size":80000,"actions":{"upload":{"href":"file:///etc/passwd"}}}]}`),
			"the hub gives an address that is none for an upload"},
		{"/objects/batch", 1, body("application/json", `{"objects":[{"oid":"`+
			sum256(pushed["adapter_model.safetensors"])+
			`","size":80000,"actions":{"upload":{"href":"http://127.0.0.1:1/x","header":{"chunk_size":"40000","00001":"http://127.0.0.1:1/y"}}}}]}`), "gives addresses of 1 parts; the file has 2"},
		{"/put/", 2, status(500), ""},
		{"/put/", 9, status(500), "adapter_model.safetensors: "},
		{"/lfs/verify/", 9, status(404), "the upload does not verify: "},
		{"/commit/main", 1, status(429), ""},
		// it may have been done: not sent twice
		{"/commit/main", 1, status(500), "/commit/main answers 500 Internal Server Error"},
		{"/commit/main", 1, status(412, "X-Error-Message", "A commit has happened since"),
			"/commit/main answers 412 Precondition Failed (A commit has happened since)"},
		{"/commit/main", 1, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "/commit/main: EOF"},
	} {
		h := (&pushHub{}).start(t)
		left := c.times
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, c.at) || left == 0 {
				return false
			}
			left--
			c.do(w)
			return true
		}
		p, err := h.push(t, PushOptions{})
		switch {
		case c.want == "" && (err != nil || len(p.Files) != len(pushed) || h.commits != 1):
			t.Errorf("%s: %+v, %v", c.at, p, err)
		case c.want == "":
		case err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(),
			"push to org/name: "):
			t.Errorf("%s: %v\nwant %s", c.at, err, c.want)
		case h.commits != 0 || len(h.files) != 0:
			t.Errorf("%s: %d commits after %v", c.at, h.commits, err)
		case strings.Contains(err.Error(), h.token) || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), "\x1b"):
			t.Errorf("%s: the error tells too much: %q", c.at, err)
		}
	}
}

// TestPushRefuses: what can't be pushed is refused before the network is asked.
func TestPushRefuses(t *testing.T) {
	h := (&pushHub{}).start(t)
	for _, c := range []struct {
		name  string
		token string
		files []File
		want  string
	}{
		{"name", "x", nil, `push: "name" is no repository's name: the form is OWNER/NAME`},
		{"../etc/passwd", "x", nil, "is no repository's name"},
		{"org/name", "", nil, "there is no token: set HF_TOKEN, or log in with `hf auth login`"},
		{"org/name", "x", []File{{Name: "../../x"}}, `the file name "../../x" can't be one of a repository`},
		{"org/name", "x", []File{{Name: "a", Path: filepath.Join(t.TempDir(), "none")}}, "no such file"},
	} {
		t.Setenv("HF_TOKEN", "")
		t.Setenv("HF_HOME", t.TempDir())
		_, err := Push(context.Background(), c.name, PushOptions{Options: Options{Endpoint: h.hub.URL, Token: c.token},
			Files: c.files})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if len(h.log) != 0 {
		t.Errorf("the hub was asked %q", h.log)
	}
}

// TestPushAsPython: huggingface_hub's own client is taken by the same server, and asks the same of it.
func TestPushAsPython(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import huggingface_hub").Run() != nil {
		t.Skipf("%s has no huggingface_hub; TRAINER_PYTHON names one that has", python)
	}
	const program = `
import os, sys
from huggingface_hub import CommitOperationAdd, HfApi
api = HfApi()
api.create_repo("org/name", private=True, exist_ok=True)
ops = [CommitOperationAdd(n, os.path.join(sys.argv[1], n)) for n in sorted(os.listdir(sys.argv[1]))]
api.create_commit("org/name", ops, commit_message="upload")
`
	for _, part := range []int64{0, 30_000} {
		dir := t.TempDir()
		for name, data := range pushed {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		theirs, ours := (&pushHub{part: part}).start(t), (&pushHub{part: part}).start(t)
		cmd := exec.Command(python, "-c", program, dir)
		cmd.Env = append(os.Environ(), "HF_ENDPOINT="+theirs.hub.URL, "HF_TOKEN="+theirs.token, "HF_HOME="+t.TempDir(),
			"HF_HUB_OFFLINE=0", "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := ours.push(t, PushOptions{}); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(ours.files, theirs.files, bytes.Equal) || len(theirs.files) != len(pushed) {
			t.Errorf("parts of %d: the repositories differ", part)
		}
		if !slices.Equal(ours.log, theirs.log) {
			t.Errorf("parts of %d: asked\n%s\nPython asks\n%s", part, strings.Join(ours.log, "\n"),
				strings.Join(theirs.log, "\n"))
		}
	}
}
