package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestLoadingLeavesLittleGarbage: vocabulary, merges and their tables take some seven bytes for a byte of the file.
func TestLoadingLeavesLittleGarbage(t *testing.T) {
	const n = 40000
	var vocab, merges strings.Builder
	fmt.Fprintf(&vocab, `"a":0,"b":1`)
	before := "a"
	for i := range n { // ab, abb, abbb would be quadratic: each merge joins a and a token of its own
		name := fmt.Sprintf("t%05d", i)
		fmt.Fprintf(&vocab, `,"%s":%d,"%s%s":%d`, name, 2*i+2, before, name, 2*i+3)
		fmt.Fprintf(&merges, `"%s %s",`, before, name)
	}
	file := strings.Replace(small, `{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4}`, "{"+vocab.String()+`,"<unk>":80002,"▁":80003,"ab":80004}`, 1)
	file = strings.Replace(file, `["a b"]`, "["+merges.String()+`"a b"]`, 1)
	file = strings.Replace(file, `"id":5`, `"id":80005`, 1)
	file = strings.Replace(file, `"ids":[5]`, `"ids":[80005]`, 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	_, err := Load(dir)
	runtime.ReadMemStats(&end)
	if err != nil {
		t.Fatal(err)
	}
	perByte := float64(end.TotalAlloc-start.TotalAlloc) / float64(len(file))
	t.Logf("%.1f bytes are allocated for a byte of the file", perByte)
	if perByte > 10 {
		t.Errorf("%.1f bytes are allocated for a byte of the file, want at most 10", perByte)
	}
}
