package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestLoadingLeavesLittleGarbage: of a vocabulary of usual size most of what is allocated stays.
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
	var start, end, live runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&start)
	tok, err := Load(dir)
	runtime.ReadMemStats(&end)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&live)
	runtime.KeepAlive(tok)
	all, kept := float64(end.TotalAlloc-start.TotalAlloc), float64(live.HeapAlloc)-float64(start.HeapAlloc)
	t.Logf("%.1f MB for a file of %.1f MB, %.1f MB are kept", all/1e6, float64(len(file))/1e6, kept/1e6)
	if all > 2*kept {
		t.Errorf("%.1f MB are allocated, %.1f MB of them are kept", all/1e6, kept/1e6)
	}
}
