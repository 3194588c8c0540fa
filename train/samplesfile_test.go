package train

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/golden"
)

// sampleLines are the lines of samples.jsonl that say this.
func sampleLines(t *testing.T, all []SampleInfo) string {
	t.Helper()
	var b strings.Builder
	for _, s := range all {
		line, err := json.Marshal(map[string]any{"step": s.Step})
		if err != nil {
			t.Fatal(err)
		}
		prompt, _ := json.Marshal(s.Prompt) //nolint:errcheck // a text
		text, _ := json.Marshal(s.Answer)   //nolint:errcheck // a text
		fmt.Fprintf(&b, "%s,\"prompt\":%s,\"text\":%s}\n", strings.TrimSuffix(string(line), "}"), prompt, text)
	}
	return b.String()
}

// TestSamplesFile: a resumed run cuts what lies behind its step, half a line too; texts and file are bounded.
func TestSamplesFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, SamplesFile)
	first := sampleLines(t, []SampleInfo{{0, "a", "b"}, {2, "a", "<script>\n\x00"}})
	put(t, path, first+sampleLines(t, []SampleInfo{{4, "a", "d"}})+`{"step":4,"pro`)
	var said []string
	s := newSamplesFile(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	if err := s.Start(RunInfo{Dir: dir, Done: 2}); err != nil {
		t.Fatal(err)
	}
	if got := string(golden.ReadFile(t, path)); got != first {
		t.Fatalf("kept %q", got)
	}
	s.most = 100 << 10
	for step := 3; step < 8; step++ {
		if err := s.Sample(SampleInfo{step, "p", strings.Repeat("é", 30<<10) + "\xff"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(EndInfo{}); err != nil {
		t.Fatal(err)
	}
	lines := fileLines(t, path)
	if len(lines) != 2+3 || len(said) != 1 || !strings.HasSuffix(said[0],
		"samples.jsonl has 0 MiB: no more samples are written to it, the log has them all") {
		t.Fatalf("%d lines, said %q", len(lines), said)
	}
	var l SampleLine
	if err := json.Unmarshal([]byte(lines[4]), &l); err != nil || l.Step != 5 || len(l.Text) > mostSampleText ||
		!utf8.ValidString(l.Text) || !strings.HasSuffix(l.Text, "é…") {
		t.Errorf("%v: %d bytes of step %d", err, len(l.Text), l.Step)
	}
	if err := s.Start(RunInfo{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.End(EndInfo{}) //nolint:errcheck // a test
	if got := golden.ReadFile(t, path); len(got) > 0 {
		t.Errorf("a new run keeps %q", got)
	}
}
