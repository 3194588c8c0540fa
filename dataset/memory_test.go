package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// manyRows is a JSONL file, or a JSON list, of n rows of some 500 bytes.
func manyRows(t testing.TB, n int, list bool) (path string, size int64) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		switch {
		case list && i == 0:
			b.WriteString("[\n")
		case list:
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "{\"prompt\": \"row %d %s\", \"completion\": \"%s\"}", i, strings.Repeat("q", 250), strings.Repeat("a", 200))
		if !list {
			b.WriteString("\n")
		}
	}
	if list {
		b.WriteString("\n]\n")
	}
	path = filepath.Join(t.TempDir(), "rows.json")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, int64(b.Len())
}

// quietTokenizer allocates nothing: an id a byte.
type quietTokenizer struct {
	bytesTokenizer
	ids []int32
}

func (q quietTokenizer) IDs(s string, _ bool) []int32 { return q.ids[:len(s)] }

func newQuietTokenizer() quietTokenizer {
	q := quietTokenizer{ids: make([]int32, 1000)}
	for i := range q.ids {
		q.ids[i] = fakeFirst
	}
	return q
}

func forms() map[string]bool { return map[string]bool{"lines": false, "list": true} }

// BenchmarkLoad is the time and the garbage of reading a data file.
func BenchmarkLoad(b *testing.B) {
	for name, list := range forms() {
		b.Run(name, func(b *testing.B) {
			cfg := Default()
			var size int64
			cfg.Path, size = manyRows(b, 20000, list)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Load(context.Background(), cfg, newQuietTokenizer()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLoadingLeavesLittleGarbage: beside the rows that are kept, reading allocates little for a byte of the file.
func TestLoadingLeavesLittleGarbage(t *testing.T) {
	for name, list := range forms() {
		cfg := Default()
		path, size := manyRows(t, 4000, list)
		cfg.Path = path
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		set, _, err := Load(context.Background(), cfg, newQuietTokenizer())
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, r := range all(set.Train) {
			kept += 4 * (cap(r.IDs) + cap(r.Labels))
		}
		perByte := float64(int(after.TotalAlloc-before.TotalAlloc)-kept) / float64(size)
		t.Logf("%s: %.2f bytes of garbage a byte of the file", name, perByte)
		if perByte > garbagePerByte {
			t.Errorf("%s: %.2f bytes of garbage a byte of the file, want at most %v", name, perByte, float64(garbagePerByte))
		}
	}
}

const garbagePerByte = 6
