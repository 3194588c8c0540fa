package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

func offline(t *testing.T) {
	t.Helper()
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
		"TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
}

func call(args ...string) (code int, out, errOut string) {
	var a, b strings.Builder
	code = run(args, strings.NewReader(""), &a, &b)
	return code, a.String(), b.String()
}

// TestPushAndMergeRefuse: mistakes on the command line are told with what to do, and before any work.
func TestPushAndMergeRefuse(t *testing.T) {
	offline(t)
	adapterDir := golden.Path(t, "combined/one")
	half := t.TempDir()
	if err := os.WriteFile(filepath.Join(half, "adapter_config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := t.TempDir()
	if err := os.WriteFile(filepath.Join(bare, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	badRun := t.TempDir()
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if err := os.WriteFile(filepath.Join(badRun, name), golden.ReadFile(t, adapterDir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(badRun, "config.yaml"), []byte("base_model: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	merge := func(more ...string) []string {
		return append([]string{"merge", "--model", "embedded:stories260K", "--adapter", adapterDir, "--out",
			filepath.Join(t.TempDir(), "x")}, more...)
	}
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"push", adapterDir}, "name the repository: --repo OWNER/NAME"},
		{2, []string{"push"}, "takes one argument, the folder of an adapter or model; got 0"},
		{2, []string{"push", adapterDir, "--repo", "first"},
			`--repo "first" is no repository's name: the form is OWNER/NAME`},
		{2, []string{"push", adapterDir, "--repo", "me/../x"}, "is no repository's name"},
		{2, []string{"push", adapterDir, "--repo", "me/x", "--base-model", "/data/llama"},
			`--base-model "/data/llama" is no name of the hub: the form is ORG/NAME`},
		{2, []string{"push", half, "--repo", "me/x"},
			"has adapter_config.json and no adapter_model.safetensors: has the run finished?"},
		{2, []string{"push", bare, "--repo", "me/x"}, "has no weights in SafeTensors"},
		{2, []string{"push", t.TempDir(), "--repo", "me/x"},
			"is no folder of an adapter (adapter_config.json) or of a model (config.json)"},
		{2, []string{"push", adapterDir, "--repo", "me/x", "--run", filepath.Join(bare, "none")}, "no run: "},
		{1, []string{"push", adapterDir, "--repo", "me/x"},
			"push to me/x: there is no token: set HF_TOKEN, or log in with `hf auth login`"},
		{3, []string{"download", "a/b"}, "download a/b: GET http://127.0.0.1:1/api/models/a/b/revision/main: "},
		{2, []string{"download", "stories"}, `download: "stories" is no hub name: the form is org/name`},
		{2, []string{"download", "a/../b"}, "is no hub name"},
		{2, []string{"download", "a/b@"}, `"a/b@" names no revision behind the @`},
		{2, []string{"download", "a/b@../x"}, `"../x" is not a revision: the name of a branch or tag, or a commit`},
		{2, []string{"download", "a/b@x/../y"}, `"x/../y" is not a revision`},
		{2, merge("--dtype", "int4"), `--dtype "int4" is not one of bf16, fp16, fp32, nf4`},
		{2, merge("--shard-size", "big"), `--shard-size "big" is no size above 0 such as 5GB or 2GiB`},
		{2, merge("--shard-size", "0"), `--shard-size "0" is no size above 0`},
		{2, merge("--base", "q4"),
			`--base "q4" is not one of auto, trained, original, nf4, nf4-double, fp4, fp4-double, int8`},
		{2, merge("--base", "trained"),
			"has no config.yaml that says what the adapter was trained over: name it, --base original, nf4"},
		{2, merge("--combination", "ties"), `--combination "ties" is not one of cat, linear`},
		{2, merge("--adapter", adapterDir+"=half"), `the weight after = is "half", which is no number`},
		{2, merge("--check-text", filepath.Join(bare, "none")), "--check-text: "},
		{2, merge("--adapter", badRun), "what it was trained over can't be read: "},
		{1, merge("--adapter", adapterDir+"=-1", "--combination", "linear"), "where the sign is lost; use cat"},
	} {
		code, out, errOut := call(c.args...)
		if code != c.code || !strings.Contains(errOut, c.want) || out != "" {
			t.Errorf("%q: exit code %d, want %d\n%s%s\nwant %s", c.args, code, c.code, out, errOut, c.want)
		}
	}
}

// TestPushDryRun: the files and the card are shown, the pushed configuration names the base model as asked, and nobody
// is asked for anything.
func TestPushDryRun(t *testing.T) {
	offline(t)
	dir := t.TempDir()
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), golden.ReadFile(t, golden.Path(t, "combined/one"), name),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"optimizer.safetensors": "no", "metrics.jsonl": `{"step": 1, "loss": 2}` +
		"\n", ".lock": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errOut := call("push", dir, "--repo", "me/first", "--dry-run", "--json", "--base-model", "org/base")
	var answer struct {
		Private bool
		Files   []struct{ Name string }
		Card    string
	}
	if code != 0 || json.Unmarshal([]byte(out), &answer) != nil {
		t.Fatalf("%d %s %s", code, out, errOut)
	}
	names := []string{}
	for _, f := range answer.Files {
		names = append(names, f.Name)
	}
	if strings.Join(names, " ") != "README.md adapter_config.json adapter_model.safetensors" || !answer.Private ||
		!strings.Contains(answer.Card, "base_model: org/base\n") {
		t.Errorf("%+v", answer)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("my own card\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, out, errOut = call("push", dir, "--repo", "me/first", "--dry-run", "--with-run"); !strings.Contains(out,
		"\nmy own card\n") || !strings.Contains(out, "metrics.jsonl") ||
		!strings.Contains(errOut, "which others do not have: --base-model ORG/NAME") {
		t.Errorf("%s%s", out, errOut)
	}
}

// TestDownloadCommand: a repository of the hub lands in a folder, and a second call asks for no file again.
func TestDownloadCommand(t *testing.T) {
	offline(t)
	files := map[string]string{"adapter_config.json": "{}", "README.md": "card"}
	gets := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const commit = "0123456789abcdef0123456789abcdef01234567"
		if r.URL.Path == "/api/models/me/first/revision/v2" {
			w.Write([]byte(`{"sha":"` + commit +
				`","siblings":[{"rfilename":"README.md"},{"rfilename":"adapter_config.json"}]}`)) //nolint:errcheck // of a test
			return
		}
		text, ok := files[strings.TrimPrefix(r.URL.Path, "/me/first/resolve/"+commit+"/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodGet {
			gets++
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
		w.Write([]byte(text)) //nolint:errcheck // of a test
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	dir := filepath.Join(t.TempDir(), "here")
	for range 2 {
		code, out, errOut := call("download", "me/first@v2", "--out", dir, "--include", "*.json",
			"--include", "README.md")
		if code != 0 || !strings.HasPrefix(out, dir+"\n2 files, ") {
			t.Fatalf("%d %s %s", code, out, errOut)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || string(got) != "card" || gets != 2 {
		t.Errorf("%q, %v, %d transfers", got, err, gets)
	}
}
