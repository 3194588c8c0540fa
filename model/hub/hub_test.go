package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func cacheDir() string { return filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--name") }

// compare checks a snapshot's files, and that each is a link into blobs.
func compare(t *testing.T, dir string, files map[string][]byte, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || !bytes.Equal(data, files[e.Name()]) {
			t.Errorf("%s differs (%v)", e.Name(), err)
		}
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(target, filepath.Join("..", "..", "blobs")+"/") {
			t.Errorf("%s links to %q (%v)", e.Name(), target, err)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("files %q, expected %q", got, want)
	}
	blobs, err := os.ReadDir(filepath.Join(dir, "..", "..", "blobs"))
	if err != nil || len(blobs) != len(want) {
		t.Errorf("%d blobs for %d files (%v)", len(blobs), len(want), err)
	}
}

func TestDownload(t *testing.T) {
	h := (&fakeHub{files: smallModel(), token: "hf_secret"}).start(t)
	t.Setenv("HF_TOKEN", "hf_secret")
	var last int64
	dir, err := h.resolve(Options{Progress: func(file string, done, total int64) {
		if file == "model.safetensors" {
			if done < last || total != 160000 {
				t.Errorf("progress goes from %d to %d of %d", last, done, total)
			}
			last = done
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(cacheDir(), "snapshots", commit); dir != want {
		t.Errorf("folder %s, expected %s", dir, want)
	}
	compare(t, dir, h.files, "config.json", "tokenizer.json", "model.safetensors")
	if last != 160000 {
		t.Errorf("progress ends at %d", last)
	}
	if ref, err := os.ReadFile(filepath.Join(cacheDir(), "refs", "main")); err != nil || string(ref) != commit {
		t.Errorf("refs/main = %q (%v)", ref, err)
	}
	asked := len(h.noted(""))
	for _, opts := range []Options{{Download: true}, {}, {Revision: commit}} {
		if again, err := Resolve(context.Background(), "org/name", opts); err != nil || again != dir {
			t.Errorf("%+v: %s, %v", opts, again, err)
		}
	}
	if len(h.noted("")) != asked {
		t.Error("a complete snapshot asked the network")
	}
}

func TestDownloadShards(t *testing.T) {
	files := smallModel()
	delete(files, "model.safetensors")
	files["model-00001-of-00002.safetensors"] = []byte("first")
	files["model-00002-of-00002.safetensors"] = []byte("second")
	files["consolidated.safetensors"] = []byte("no")
	files["model.safetensors.index.json"] =
		[]byte(`{"weight_map":{"a":"model-00002-of-00002.safetensors","b":"model-00001-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}}`)
	h := (&fakeHub{files: files, revision: "refs/pr/1"}).start(t)
	dir, err := h.resolve(Options{Revision: "refs/pr/1"})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, dir, files, "config.json", "tokenizer.json", "model.safetensors.index.json",
		"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
	if again, err := Resolve(context.Background(), "org/name", Options{Revision: "refs/pr/1"}); err != nil ||
		again != dir {
		t.Errorf("from the cache: %s, %v", again, err)
	}
	if err := os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(context.Background(), "org/name", Options{Revision: "refs/pr/1"}); err == nil ||
		!strings.Contains(err.Error(), "lacks model-00002-of-00002.safetensors") {
		t.Errorf("a missing shard: %v", err)
	}
	if _, err := h.resolve(Options{Revision: "refs/pr/1"}); err != nil {
		t.Errorf("mending: %v", err)
	}
	if n := len(h.noted("CDN GET")); n != 2 {
		t.Errorf("%d transfers, expected 2: a present blob is linked again", n)
	}
}

func TestInterruptedTransfer(t *testing.T) {
	h := (&fakeHub{files: smallModel(), cut: map[string]int{"model.safetensors": 50000}}).start(t)
	dir, err := h.resolve(Options{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, dir, h.files, "config.json", "tokenizer.json", "model.safetensors")
	gets := h.noted("CDN GET")
	if len(gets) != 2 || gets[1] != "CDN GET /blob/model.safetensors bytes=50000-" {
		t.Errorf("requests %q, expected a second one from byte 50000", gets)
	}
}

// TestStoppedTransfer: what a cancelled call leaves is where the next one resumes,
// also when the server does not know ranges.
func TestStoppedTransfer(t *testing.T) {
	for _, ranges := range []string{"known", "ignored", "wrong"} {
		t.Run("ranges "+ranges, func(t *testing.T) {
			h := (&fakeHub{files: smallModel()}).start(t)
			data := h.files["model.safetensors"]
			ctx, cancel := context.WithCancel(context.Background())
			h.cdnFunc = func(w http.ResponseWriter, r *http.Request) {
				w.Write(data[:70000]) //nolint:errcheck // the client goes away
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
			_, err := h.resolveContext(ctx, Options{Progress: func(file string, done, _ int64) {
				if done == 70000 {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("a cancelled call: %v", err)
			}
			if _, err := os.Stat(filepath.Join(cacheDir(), "refs", "main")); err == nil {
				t.Error("refs/main names half a model")
			}
			if _, err := Resolve(context.Background(), "org/name", Options{}); err == nil {
				t.Error("half a model was found in the cache")
			}
			h.cdnFunc = nil
			if ranges != "known" {
				h.cdnFunc = func(w http.ResponseWriter, r *http.Request) {
					if ranges == "wrong" && r.Header.Get("Range") != "" {
						w.Header().Set("Content-Range", "bytes 69999-159999/160000")
						w.WriteHeader(http.StatusPartialContent)
					}
					w.Write(data) //nolint:errcheck // a test
				}
			}
			dir, err := h.resolve(Options{})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, dir, h.files, "config.json", "tokenizer.json", "model.safetensors")
			if gets := h.noted("CDN GET"); gets[1] != "CDN GET /blob/model.safetensors bytes=70000-" {
				t.Errorf("requests %q", gets)
			}
		})
	}
}

func TestWrongHash(t *testing.T) {
	for name, etag := range map[string]string{"model.safetensors": strings.Repeat("ab", 32),
		"config.json": strings.Repeat("cd", 20)} {
		h := (&fakeHub{files: smallModel(), etags: map[string]string{name: etag}}).start(t)
		_, err := h.resolve(Options{})
		if err == nil || !strings.Contains(err.Error(), name+": the received file has the hash ") ||
			!strings.Contains(err.Error(), "the hub says "+etag) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(cacheDir(), "blobs", etag)); err == nil {
			t.Errorf("%s: the damaged file became a blob", name)
		}
		if info, err := os.Stat(filepath.Join(cacheDir(), "blobs", etag+".incomplete")); err != nil ||
			info.Size() != 0 {
			t.Errorf("%s: damaged bytes stay for the next try: %v, %v", name, info, err)
		}
		h.etags = nil
		if _, err := h.resolve(Options{}); err != nil {
			t.Errorf("%s: the next try: %v", name, err)
		}
	}
}

func TestDamagedRemainder(t *testing.T) {
	h := (&fakeHub{files: smallModel()}).start(t)
	blobs := filepath.Join(cacheDir(), "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(blobs, h.etag("model.safetensors")+".incomplete")
	if err := os.WriteFile(left, bytes.Repeat([]byte("x"), 200000), 0o644); err != nil { // longer than the file
		t.Fatal(err)
	}
	dir, err := h.resolve(Options{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, dir, h.files, "config.json", "tokenizer.json", "model.safetensors")
}

func TestServerRefusals(t *testing.T) {
	index := func(shards ...string) map[string][]byte {
		files := smallModel()
		delete(files, "model.safetensors")
		names := map[string]string{}
		for i, shard := range shards {
			names[strconv.Itoa(i)] = shard
		}
		raw, err := json.Marshal(map[string]any{"weight_map": names})
		if err != nil {
			t.Fatal(err)
		}
		files["model.safetensors.index.json"] = raw
		return files
	}
	bare := smallModel()
	delete(bare, "model.safetensors")
	for _, c := range []struct {
		name string
		hub  *fakeHub
		env  map[string]string
		want string
	}{
		{"no token", &fakeHub{files: smallModel(), token: "hf_good"}, nil,
			"answers 401 Unauthorized: the model does not exist or needs a token (set HF_TOKEN"},
		{"wrong token", &fakeHub{files: smallModel(), token: "hf_good"}, map[string]string{"HF_TOKEN": "hf_bad"},
			"401 Unauthorized: the token was refused"},
		{"unknown revision", &fakeHub{files: smallModel(), revision: "other"}, nil,
			"404 Not Found: no such model, revision or file"},
		{"no safetensors", &fakeHub{files: bare}, nil, "the repository is not a model with config.json, " +
			"model.safetensors (or model.safetensors.index.json) and a tokenizer; it has "},
		{"PyTorch only", &fakeHub{files: bare, names: []string{"config.json", "tokenizer.json", "pytorch_model.bin"}},
			nil, "; pytorch_model.bin is a PyTorch pickle"},
		{"listed but absent", &fakeHub{files: bare, names: []string{"config.json", "tokenizer.json",
			"model.safetensors"}}, nil, "model.safetensors: http"},
		{"parent folder in the list", &fakeHub{files: smallModel(), names: []string{"../config.json"}}, nil,
			`the name "../config.json", which leads out of its folder`},
		{"absolute name in the list", &fakeHub{files: smallModel(), names: []string{"/etc/config.json"}}, nil,
			`the name "/etc/config.json"`},
		{"backslash in the list", &fakeHub{files: smallModel(), names: []string{`..\config.json`}}, nil,
			`which leads out of its folder`},
		{"parent folder in the index", &fakeHub{files: index("../../../x.safetensors")}, nil,
			`names "../../../x.safetensors", which is not the plain name`},
		{"absolute name in the index", &fakeHub{files: index("/abs/x.safetensors")}, nil,
			`which is not the plain name`},
		{"path as etag", &fakeHub{files: smallModel(), etags: map[string]string{"model.safetensors": "../../evil"}},
			nil, `unusable etag "\"../../evil\"": it is neither`},
		{"one etag for all", &fakeHub{files: smallModel(), etags: map[string]string{"model.safetensors": "same",
			"config.json": "same", "tokenizer.json": "same"}}, nil, `unusable etag "W/\"same\""`},
		{"an empty etag", &fakeHub{files: smallModel(), etags: map[string]string{"model.safetensors": ""}}, nil,
			`unusable etag "\"\""`},
		{"a shard that is not in the list", &fakeHub{files: index("model-00001-of-00001.safetensors"),
			names: []string{"config.json", "tokenizer.json", "model.safetensors.index.json"}}, nil,
			"names model-00001-of-00001.safetensors, which the repository does not have"},
		{"too many shards", &fakeHub{files: index(manyShards(5000)...)}, nil, "names 5000 shards, more than 4096"},
		{"too many bytes", &fakeHub{files: smallModel(), cdnFunc: func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, 160001))
		}}, nil, "sends more than the 160000 bytes that it announced"}, //nolint:errcheck // a test
		{"refused by the CDN", &fakeHub{files: smallModel(), cdnFunc: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
		}}, nil, "403 Forbidden"},
		{"endless redirects", &fakeHub{files: smallModel(), cdnFunc: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}}, nil, "more than 10 redirects"},
		{"redirect to a file", &fakeHub{files: smallModel(), cdnFunc: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		}}, nil, "refused to follow a redirect from http to file://"},
		{"bad endpoint", &fakeHub{files: smallModel()}, map[string]string{"HF_ENDPOINT": "huggingface.co"},
			`the hub's address (HF_ENDPOINT) is "huggingface.co", expected https://host`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.hub.start(t)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := c.hub.resolveContext(ctx, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "org/name") {
				t.Fatalf("error %v, expected %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hf_") || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds a secret: %v", err)
			}
			if _, err := os.Stat(filepath.Join(cacheDir(), "refs", "main")); err == nil {
				t.Error("refs/main was written")
			}
		})
	}
}

func TestBusyServer(t *testing.T) {
	h := (&fakeHub{files: smallModel()}).start(t)
	failures := 1
	h.cdnFunc = func(w http.ResponseWriter, r *http.Request) {
		if failures > 0 {
			failures--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Write(h.files["model.safetensors"]) //nolint:errcheck // a test
	}
	if _, err := h.resolve(Options{}); err != nil {
		t.Error(err)
	}
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.lock")
	unlock, err := lock(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held lock: %v", err)
	}
	unlock()
	again, err := lock(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
