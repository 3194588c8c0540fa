package hub

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's blob ids are SHA-1
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// fakeHub answers as huggingface.co does: small files itself, .safetensors and
// .parquet by a redirect to a second host, the CDN.
type fakeHub struct {
	dataset  bool // instead of a model
	files    map[string][]byte
	names    []string          // of the file list; nil = the names of files
	revision string            // "" = main
	token    string            // demanded when not ""
	etags    map[string]string // instead of the true ones
	cut      map[string]int    // bytes after which the CDN drops the first connection
	cdnFunc  http.HandlerFunc  // instead of the CDN's own answer

	mu  sync.Mutex
	log []string // "METHOD path", "CDN METHOD path range"

	hub, cdn *httptest.Server
	t        *testing.T
}

func (h *fakeHub) start(t *testing.T) *fakeHub {
	t.Helper()
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",
		"HF_ENDPOINT", "HF_TOKEN",
		"HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("HF_HOME", t.TempDir())
	h.t = t
	// Both are known before either serves: a client that is another process orders nothing for the race detector.
	h.hub, h.cdn = httptest.NewUnstartedServer(http.HandlerFunc(h.serveHub)), httptest.NewUnstartedServer(
		http.HandlerFunc(h.serveCDN))
	h.cdn.Start()
	h.hub.Start()
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	t.Setenv("HF_ENDPOINT", h.hub.URL)
	return h
}

func (h *fakeHub) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *fakeHub) noted(prefix string) (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.log {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.note("%s %s", r.Method, r.URL.Path)
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	revision := h.revision
	if revision == "" {
		revision = "main"
	}
	api, place := "/api/models/org/name", "/org/name"
	if h.dataset {
		api, place = "/api/datasets/org/name", "/datasets/org/name"
	}
	if r.URL.Path == api+"/revision/"+revision {
		h.list(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, place+"/resolve/"+commit+"/")
	data, have := h.files[name]
	if !ok || !have {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".parquet") {
		w.Header().Set("X-Linked-Etag", `"`+h.etag(name)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		w.Header().Set("Location", h.cdn.URL+"/blob/"+name+"?signature=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `W/"`+h.etag(name)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (h *fakeHub) list(w http.ResponseWriter) {
	type file struct {
		Name string `json:"rfilename"`
	}
	list := struct {
		ID     string `json:"id"`
		Commit string `json:"sha"`
		Files  []file `json:"siblings"`
	}{ID: "org/name", Commit: commit}
	names := h.names
	if names == nil {
		for name := range h.files {
			names = append(names, name)
		}
	}
	for _, name := range names {
		list.Files = append(list.Files, file{name})
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		h.t.Error(err)
	}
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	h.note("CDN %s %s %s", r.Method, r.URL.Path, r.Header.Get("Range"))
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token reached another host")
	}
	if h.cdnFunc != nil {
		h.cdnFunc(w, r)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/blob/")
	data := h.files[name]
	h.mu.Lock()
	cut := h.cut[name]
	delete(h.cut, name)
	h.mu.Unlock()
	if cut > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data[:cut]) //nolint:errcheck // the connection is dropped next
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (h *fakeHub) etag(name string) string {
	if e, ok := h.etags[name]; ok {
		return e
	}
	if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".parquet") {
		sum := sha256.Sum256(h.files[name])
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(h.files[name]), h.files[name])) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// resolve is Resolve with retries that do not wait.
func (h *fakeHub) resolve(opts Options) (string, error) {
	return h.resolveContext(context.Background(), opts)
}

func (h *fakeHub) resolveContext(ctx context.Context, opts Options) (string, error) {
	opts.Download, opts.pause = true, time.Millisecond
	return Resolve(ctx, "org/name", opts)
}

func smallModel() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{}`), "tokenizer.json": []byte(`{"a":1}`), "README.md": []byte("x"),
		"pytorch_model.bin":      []byte("no"),
		"onnx/model.safetensors": []byte("no"), "model.safetensors": bytes.Repeat([]byte("0123456789abcdef"), 10000),
	}
}
