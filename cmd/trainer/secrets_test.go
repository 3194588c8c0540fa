package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsStayInTheRun: neither what a run prints nor a file in its folder holds the address of its webhook, its
// bearer token or a tag that is a token, though the server sends back all that it gets; and it still answers to a
// resumed run.
func TestSecretsStayInTheRun(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path)
		w.WriteHeader(http.StatusUnprocessableEntity)
		w.Write([]byte("no: " + r.URL.String() + " Authorization: " + r.Header.Get("Authorization") +
			" \x1b[2J\u202e")) //nolint:errcheck // a test
	}))
	defer server.Close()
	address := strings.Replace(server.URL, "127.0.0.1", "localtest.invalid", 1) // not an address of this machine
	t.Setenv("HTTP_PROXY", server.URL)
	t.Setenv("http_proxy", server.URL)
	t.Setenv("TRACKING_WEBHOOK_SECRET", "s3cret-of-mine")
	secret := address + "/services/T0AAA/bbbCCC"
	dir := t.TempDir()
	text := `base_model: embedded:stories260K
adapter: lora
lora: {r: 4}
dataset: {path: embedded:gsm8k_300.jsonl, format: completion, max_length: 64}
training: {max_steps: 2, save_steps: 1, report_to: [webhook, tensorboard]}
tracking: {webhook_url: "` + secret + `", tags: {note: hf_abcdefghijklmnopqrstuvwxyz0123}}
output_dir: r
`
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := func(what, text string) {
		t.Helper()
		for _, s := range []string{"bbbCCC", "T0AAA", "s3cret-of-mine", "hf_abcdefg", "\x1b[2J", "\u202e"} {
			if i := strings.Index(text, s); i >= 0 {
				t.Errorf("%s holds %q: %q", what, s, text[max(0, i-80):min(len(text), i+40)])
			}
		}
	}
	run := func(args ...string) string {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", args...)
		if code != 0 {
			t.Fatalf("%q: code %d: %s%s", args, code, out, errOut)
		}
		hold(strings.Join(args, " "), out+errOut)
		return out + errOut
	}
	if said := run("train", "c.yaml"); !strings.Contains(said, "422") {
		t.Errorf("the server's answer is not told: %s", said)
	}
	if len(got) == 0 || got[0] != "/services/T0AAA/bbbCCC" {
		t.Errorf("the webhook got %q", got)
	}
	run("validate", "c.yaml", "--show")
	run("report", "r", "--out", "page.html")
	run("report", "r", "--out", "-")
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(path) == "c.yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		hold(path, string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if said := run("train", "--config", "r/config.yaml", "--resume", "auto"); !strings.Contains(said,
		"the saved configuration hides the address") {
		t.Errorf("a resumed run does not say that it has no webhook: %s", said)
	}
	t.Setenv("TRAINER_TRACKING_WEBHOOK_URL", secret)
	run("doctor")
	run("doctor", "--json")
}

// TestPushWarnsOfSecrets: a file that is pushed and holds a secret is named with its line, and the secret is not.
func TestPushWarnsOfSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", "{}")
	write("model.safetensors", "\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
	write("README.md", "# mine\n\ntoken: hf_abcdefghijklmnopqrstuvwxyz0123\n")
	code, _, errOut := trainer(t, dir, nil, "", "push", ".", "--repo", "me/x", "--dry-run")
	if code != 0 || !strings.Contains(errOut, "warning: README.md, line 3, holds what looks like a secret") ||
		strings.Contains(errOut, "hf_abc") {
		t.Errorf("code %d: %s", code, errOut)
	}
	write("README.md", "# mine\n")
	if _, _, errOut := trainer(t, dir, nil, "", "push", ".", "--repo", "me/x", "--dry-run"); strings.Contains(
		errOut, "warning") {
		t.Error(errOut)
	}
}
