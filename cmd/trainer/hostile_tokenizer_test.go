package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestHostileTokenizer: a tokenizer that makes memory or time out of a few bytes is an error of the command, not a
// panic.
func TestHostileTokenizer(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(golden.StoriesDir(t), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	grow := `{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`
	for name, c := range map[string]struct{ key, value, want string }{
		"growth": {"normalizer", `{"type":"Sequence","normalizers":[` + strings.Repeat(grow+",", 11) + grow + `]}`,
			"the tokenizer makes more than"},
		"pattern": {"pre_tokenizer", `{"type":"Split","pattern":{"Regex":".*X"},"behavior":"Isolated","invert":false}`,
			"the tokenizer takes more than"},
	} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		file[c.key] = json.RawMessage(c.value)
		changed, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		code := run([]string{"inspect", "tokens", "--tokenizer", dir, "--text-file", "-"},
			strings.NewReader(strings.Repeat("a", 100_000)), &out, &errOut)
		if code != 1 || !strings.Contains(errOut.String(), c.want) || strings.Contains(errOut.String(), "goroutine") {
			t.Errorf("%s: %d %.300s", name, code, errOut.String())
		}
	}
}
