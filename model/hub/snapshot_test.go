package hub

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func (h *fakeHub) fetch(o Options, include ...string) (Snapshot, error) {
	o.pause = time.Millisecond
	return Fetch(context.Background(), "org/name", o, include)
}

// TestFetch: a model, an adapter, or what patterns name; the cache is huggingface_hub's.
func TestFetch(t *testing.T) {
	h := (&fakeHub{files: smallModel()}).start(t)
	s, err := h.fetch(Options{})
	if err != nil || !slices.Equal(s.Files, []string{"config.json", "model.safetensors", "tokenizer.json"}) ||
		s.Bytes != 160009 {
		t.Fatalf("%+v, %v", s, err)
	}
	compare(t, s.Dir, h.files, s.Files...)
	if s, err = h.fetch(Options{}, "*.bin", "onnx/*"); err != nil ||
		!slices.Equal(s.Files, []string{"onnx/model.safetensors", "pytorch_model.bin"}) {
		t.Errorf("%+v, %v", s, err)
	}
	out := filepath.Join(t.TempDir(), "here")
	copied, err := s.CopyTo(context.Background(), out)
	if err != nil || copied.Dir != out {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(out, "onnx", "model.safetensors")); err != nil || string(got) != "no" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.CopyTo(context.Background(), out); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := os.WriteFile(filepath.Join(out, "pytorch_model.bin"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CopyTo(context.Background(), out); err == nil || !strings.Contains(err.Error(),
		"it has another pytorch_model.bin already; name another folder") {
		t.Errorf("over another file: %v", err)
	}

	a := (&fakeHub{files: map[string][]byte{"adapter_config.json": []byte("{}"),
		"adapter_model.safetensors": []byte("x"), "README.md": []byte("card"),
		"tokenizer.json": []byte("{}"), "optimizer.pt": []byte("no"), "config.json": []byte("{}")}}).start(t)
	if s, err = a.fetch(Options{}); err != nil || !slices.Equal(s.Files, []string{"README.md", "adapter_config.json",
		"adapter_model.safetensors", "tokenizer.json"}) {
		t.Errorf("an adapter: %+v, %v", s, err)
	}
}

// TestFetchFails: what a server does wrong is said, and nothing of it is left as if it were whole.
func TestFetchFails(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte("<!doctype html><title>Log in</title>")) //nolint:errcheck // of a test
	}
	for _, c := range []struct {
		what    string
		hub     *fakeHub
		include []string
		want    string
	}{
		{"a name that leads out", &fakeHub{files: smallModel(), names: []string{"config.json", "../../.bashrc"}},
			[]string{"*"}, `the name "../../.bashrc", which leads out of its folder`},
		{"an absolute name", &fakeHub{files: smallModel(), names: []string{"/etc/passwd"}}, []string{"*"},
			`the name "/etc/passwd", which leads out of its folder`},
		{"a wrong hash", &fakeHub{files: smallModel(), etags: map[string]string{"model.safetensors": strings.Repeat("0",
			64)}}, nil, "the hub says " + strings.Repeat("0", 64) +
			": it was damaged on the way or the server is wrong"},
		{"a web page as file", &fakeHub{files: smallModel(), cdnFunc: page}, nil, "model.safetensors: "},
		{"no match", &fakeHub{files: smallModel()}, []string{"*.gguf"}, "no file matches *.gguf; it has "},
		{"a bad pattern", &fakeHub{files: smallModel()}, []string{"["}, `--include "[" is no pattern`},
		{"no model", &fakeHub{files: map[string][]byte{"data.bin": nil}}, nil, "--include '*' takes all of its files"},
		{"another revision", &fakeHub{files: smallModel(), revision: "v1"}, nil,
			"/api/models/org/name/revision/main answers 404 Not Found: no such model, revision or file"},
	} {
		h := c.hub.start(t)
		_, err := h.fetch(Options{}, c.include...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.what, err, c.want)
		}
		if _, err := os.Lstat(filepath.Join(cacheDir(), "snapshots", commit, "model.safetensors")); err == nil {
			t.Errorf("%s: the weights are in the snapshot", c.what)
		}
		if _, err := os.Lstat(filepath.Join(cacheDir(), "refs", "main")); err == nil {
			t.Errorf("%s: a ref names it", c.what)
		}
	}
	all := http.HandlerFunc(page)
	h := (&fakeHub{}).start(t)
	h.hub.Config.Handler = all
	if _, err := h.fetch(Options{}); err == nil || !strings.Contains(err.Error(),
		"answers with a web page: is HF_ENDPOINT right") {
		t.Errorf("a web page instead of the list: %v", err)
	}
}

// TestRetryAfter: both forms of the header, and what is none.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{"7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0,
		"": 0, "soon": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestCacheAsPython: what was fetched is there for huggingface_hub without a network, and the other way round.
func TestCacheAsPython(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import huggingface_hub").Run() != nil {
		t.Skipf("%s has no huggingface_hub; TRAINER_PYTHON names one that has", python)
	}
	h := (&fakeHub{files: smallModel()}).start(t)
	s, err := h.fetch(Options{}, "*.json", "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func(offline string, arguments string) string {
		cmd := exec.Command(python, "-c", "import huggingface_hub as h; print(h.snapshot_download('org/name'"+arguments+
			"))")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasSuffix(v, "=")
		}), "HF_HUB_OFFLINE="+offline, "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
		}
		return strings.TrimSpace(string(out))
	}
	if got := snapshot("1", ""); got != s.Dir {
		t.Errorf("Python finds %s, we %s", got, s.Dir)
	}
	asked := len(h.noted("CDN GET"))
	h2 := (&fakeHub{files: smallModel()}).start(t)
	dir := snapshot("0", ", allow_patterns=['*.json', 'model.safetensors']")
	if again, err := h2.fetch(Options{}); err != nil || again.Dir != dir || len(h2.noted("CDN GET")) != 1 {
		t.Errorf("after Python: %+v, %v, %d transfers, before %d", again, err, len(h2.noted("CDN GET")), asked)
	}
}
