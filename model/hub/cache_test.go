package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// put makes a snapshot of org/name under root.
func put(t *testing.T, root string) string {
	t.Helper()
	model := filepath.Join(root, "models--org--name")
	dir := filepath.Join(model, "snapshots", commit)
	for _, d := range []string{dir, filepath.Join(model, "refs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{
		filepath.Join(model, "refs", "main"): commit + "\n", filepath.Join(dir, "config.json"): "{}",
		filepath.Join(dir, "model.safetensors"): "", filepath.Join(dir, "tokenizer.json"): "{}",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCachePlaces(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		env  map[string]string // $ = the test's folder
		opts Options
		root string // where the cache must be, below the test's folder
	}{
		{"option", map[string]string{"HF_HUB_CACHE": "$/no"}, Options{CacheDir: "$/c"}, "c"},
		{"HF_HUB_CACHE", map[string]string{"HF_HUB_CACHE": "$/c", "HF_HOME": "$/no"}, Options{}, "c"},
		{"HF_HOME", map[string]string{"HF_HOME": "$/h", "XDG_CACHE_HOME": "$/no"}, Options{}, "h/hub"},
		{"HF_HOME with ~", map[string]string{"HF_HOME": "~/h"}, Options{}, "home/h/hub"},
		{"XDG_CACHE_HOME", map[string]string{"XDG_CACHE_HOME": "$/x"}, Options{}, "x/huggingface/hub"},
		{"default", nil, Options{}, "home/.cache/huggingface/hub"},
		{"offline", map[string]string{"HF_HUB_OFFLINE": "1"}, Options{Download: true}, "home/.cache/huggingface/hub"},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&fakeHub{}).start(t)
			dir := t.TempDir()
			t.Setenv("HF_HOME", "")
			t.Setenv("HOME", filepath.Join(dir, "home"))
			for k, v := range c.env {
				t.Setenv(k, strings.ReplaceAll(v, "$", dir))
			}
			c.opts.CacheDir = strings.ReplaceAll(c.opts.CacheDir, "$", dir)
			_, err := Resolve(ctx, "org/name", c.opts)
			if want := filepath.Join(dir, c.root, "models--org--name"); err == nil || !strings.Contains(err.Error(),
				"in the cache no "+want) {
				t.Errorf("error %v, expected it to name %s", err, want)
			}
			want := put(t, filepath.Join(dir, c.root))
			if got, err := Resolve(ctx, "org/name", c.opts); err != nil || got != want {
				t.Errorf("%s, %v; expected %s", got, err, want)
			}
		})
	}
}

func TestFolderWins(t *testing.T) {
	h := (&fakeHub{}).start(t)
	put(t, filepath.Join(os.Getenv("HF_HOME"), "hub"))
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("org/name", 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Resolve(context.Background(), "org/name", Options{Download: true}); err != nil || got != "org/name" {
		t.Errorf("%s, %v", got, err)
	}
	if lines := h.noted(""); lines != nil {
		t.Errorf("the network was asked: %q", lines)
	}
}

func TestNotFound(t *testing.T) {
	(&fakeHub{}).start(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"m.gguf": "", "m": "GGUF\x03", "pytorch_model.bin": "\x80\x02",
		"m.safetensors": ""} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"gguf-folder/q4.gguf", "model/config.json", "model/pytorch_model.bin"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if dir, err := Resolve(context.Background(), "model", Options{}); err != nil || dir != "model" {
		t.Errorf("a model's folder, of which the tokenizer may be wanted: %s, %v", dir, err)
	}
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--name")
	for _, c := range []struct{ name, want string }{
		{"", "the name is empty"},
		{"file", "find model: file is a file, expected a model folder or org/name"},
		{"m.gguf", "find model: m.gguf is a GGUF file, llama.cpp's format for inference. Train on the original model"},
		{"m", "find model: m is a GGUF file"},
		{"gguf-folder", "find model: the folder gguf-folder has no config.json; q4.gguf is a GGUF file"},
		{"pytorch_model.bin",
			"find model: pytorch_model.bin is a PyTorch pickle, which can run code when it is opened"},
		{"m.safetensors",
			"find model: m.safetensors is a file: give its folder, which holds config.json and the tokenizer too"},
		{os.DevNull, "find model: " + os.DevNull + " is a device, expected a model folder or org/name"},
		{"./none", "find model: the folder ./none does not exist"},
		{"/none/at/all", "find model: the folder /none/at/all does not exist"},
		{"a/b/c", "find model: the folder a/b/c does not exist"},
		{"../x", "the folder ../x does not exist"},
		{`a\b`, "does not exist"},
		{"org/na me", `there is no folder "org/na me" and it is no hub name: the form is org/name`},
		{"org/..", "no hub name"}, {"org/a..b", "no hub name"}, {"org/a--b", "no hub name"}, {"-org/a", "no hub name"},
		{"org/a.", "no hub name"},
		{"org/\x00", "no hub name"},
		{"o/" + strings.Repeat("a", 95), "it has 97 characters, at most 96"},
		{"org/name", "find model org/name: there is no folder of that name, and in the cache no " + cache +
			": file does not exist\npass --download, fetch it with `trainer download org/name`, or give a folder"},
	} {
		if _, err := Resolve(context.Background(), c.name, Options{}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, expected %q", c.name, err, c.want)
		}
	}
	for _, revision := range []string{"../main", "a/../main", "a..b", "/etc", "a b", "a?b", `a\b`} {
		if _, err := Resolve(context.Background(), "org/name", Options{Revision: revision}); err == nil ||
			!strings.Contains(err.Error(), "is not a revision") {
			t.Errorf("revision %q: %v", revision, err)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "true")
	if _, err := Resolve(context.Background(), "org/name", Options{Download: true}); err == nil ||
		!strings.Contains(err.Error(), "unset HF_HUB_OFFLINE") {
		t.Errorf("offline: %v", err)
	}
}

func TestBrokenCache(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(model, snapshot string) error
		want   string
	}{
		{"no ref", func(m, s string) error {
			return os.Remove(filepath.Join(m, "refs", "main"))
		}, `refs/main, which would say the commit of "main"`},
		{"ref leads out", func(m, s string) error {
			return os.WriteFile(filepath.Join(m, "refs", "main"), []byte("../.."), 0o644)
		}, `holds "../..", which is not a commit`},
		{"ref to nothing", func(m, s string) error {
			return os.WriteFile(filepath.Join(m, "refs", "main"), []byte("abc"), 0o644)
		}, "lacks config.json, model.safetensors (or model.safetensors.index.json), tokenizer.json"},
		{"no config", func(m, s string) error {
			return os.Remove(filepath.Join(s, "config.json"))
		}, "lacks config.json"},
		{"no tokenizer", func(m, s string) error {
			return os.Remove(filepath.Join(s, "tokenizer.json"))
		}, "lacks tokenizer.json"},
		{"dangling link", func(m, s string) error {
			return os.Rename(filepath.Join(s, "model.safetensors"), filepath.Join(s, "x"))
		}, "lacks model.safetensors (or"},
		{"weights of another format", func(m, s string) error {
			return os.Rename(filepath.Join(s, "model.safetensors"), filepath.Join(s, "pytorch_model.bin"))
		}, "lacks model.safetensors (or model.safetensors.index.json); pytorch_model.bin is a PyTorch pickle"},
		{"bad index", func(m, s string) error {
			os.Remove(filepath.Join(s, "model.safetensors")) //nolint:errcheck // a test
			return os.WriteFile(filepath.Join(s, "model.safetensors.index.json"),
				[]byte(`{"weight_map":{"a":"../x.safetensors"}}`), 0o644)
		}, `lacks a readable model.safetensors.index.json (model.safetensors.index.json names "../x.safetensors"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&fakeHub{}).start(t)
			root := filepath.Join(os.Getenv("HF_HOME"), "hub")
			dir := put(t, root)
			if err := c.damage(filepath.Join(root, "models--org--name"), dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Resolve(context.Background(), "org/name", Options{}); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected %q", err, c.want)
			}
		})
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	(&fakeHub{}).start(t)
	t.Setenv("HF_HOME", dir)
	expect := func(opts Options, want string) {
		t.Helper()
		if s, err := environment(opts); err != nil || s.token != want {
			t.Errorf("token %q, %v; expected %q", s.token, err, want)
		}
	}
	expect(Options{}, "")
	write("token", "from_home\n")
	expect(Options{}, "from_home")
	t.Setenv("HF_TOKEN_PATH", write("other", " from_path "))
	expect(Options{}, "from_path")
	t.Setenv("HF_TOKEN", "from_env")
	expect(Options{}, "from_env")
	expect(Options{Token: "from_options"}, "from_options")
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_TOKEN_PATH", filepath.Join(dir, "none"))
	if _, err := environment(Options{}); err == nil || !strings.Contains(err.Error(), "read the hub token") {
		t.Errorf("an absent HF_TOKEN_PATH: %v", err)
	}
}

// TestRevisionInTheName: org/name@revision is the snapshot of that revision, downloaded or in the cache.
func TestRevisionInTheName(t *testing.T) {
	h := (&fakeHub{files: smallModel(), revision: "a/branch"}).start(t)
	ask := func(name string, o Options) (string, error) {
		o.pause = time.Millisecond
		return Resolve(context.Background(), name, o)
	}
	_, err := ask("org/name@a/branch", Options{})
	if err == nil || !strings.Contains(err.Error(), "fetch it with `trainer download org/name@a/branch`") {
		t.Errorf("without consent: %v", err)
	}
	dir, err := ask("org/name@a/branch", Options{Download: true})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, dir, h.files, "config.json", "model.safetensors", "tokenizer.json")
	for _, name := range []string{"org/name@a/branch", "org/name@" + commit} {
		if again, err := ask(name, Options{}); err != nil || again != dir {
			t.Errorf("%s from the cache: %s, %v", name, again, err)
		}
	}
	for name, want := range map[string]string{
		"org/name@":        "it names no revision behind the @",
		"org/name@../x":    "not a revision",
		"org/name@v 1":     "not a revision",
		"or g/name@v1":     `there is no folder "or g/name@v1" and it is no hub name`,
		"./folder@v1":      "the folder ./folder@v1 does not exist",
		"org/name@another": "fetch it with `trainer download org/name@another`",
	} {
		if _, err := ask(name, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := ask("org/name@a/branch", Options{Revision: "main"}); err == nil || !strings.Contains(err.Error(),
		"it names the revision a/branch, and main is asked for") {
		t.Errorf("two revisions: %v", err)
	}
}
