package dataset

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"errors"
)

// largeCache is the configuration of a file whose tokens take several pages, in a cache.
func largeCache(t *testing.T) Config {
	t.Helper()
	var b strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&b, "{\"text\":\"row %d %s\"}\n", i, strings.Repeat("x", int(newRandom(4, uint64(i)).below(400))))
	}
	dir := t.TempDir()
	cfg := Default()
	cfg.Path, cfg.CacheDir, cfg.MaxLength, cfg.ValSplit = filepath.Join(dir, "data.jsonl"), filepath.Join(dir, "cache"), 512, 0.1
	if err := os.WriteFile(cfg.Path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 4
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data[at:at+1], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadPages: the words of a file that was whole are checked when they are read, row by row, through every view.
func TestUnreadPages(t *testing.T) {
	cfg := largeCache(t)
	want, _ := mustLoad(t, cfg, bytesTokenizer{})
	path := tokensOf(t, cfg)
	if _, report := mustLoad(t, cfg, bytesTokenizer{}); !strings.HasPrefix(report.CacheNote, "tokens read from ") {
		t.Fatal(report.CacheNote)
	}
	const at = 2*pageBytes + 77
	flip(t, path, at)
	rememberWhole(path) // as if the disk had lost the bit without a write
	set, report := mustLoad(t, cfg, bytesTokenizer{})
	if !strings.HasPrefix(report.CacheNote, "tokens read from ") {
		t.Fatalf("the words were read at the start: %s", report.CacheNote)
	}
	good, bad := 0, 0
	for k, rows := range []Rows{set.Train, set.Val} {
		for i := range rows.Len() {
			if err := verify(rows, i); err == nil {
				good++
				if before := []Rows{want.Train, want.Val}[k]; before.Row(i).hash() != rows.Row(i).hash() {
					t.Fatalf("row %d differs and was not found", i)
				}
			} else if bad++; !strings.HasSuffix(err.Error(), "tokens in the cache, has become damaged at byte 2097152 and was deleted: "+
				"start again, by --resume auto where a checkpoint was saved") || !strings.HasPrefix(err.Error(), path) {
				t.Fatal(err)
			}
		}
	}
	if good < 2000 || bad < 200 {
		t.Errorf("%d rows are right, %d wrong", good, bad)
	}
	l, err := set.TrainLoader(4)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil && l.Progress() < 1 {
		_, _, err = l.NextWindow(1)
	}
	if err == nil {
		t.Error("an epoch has no error")
	}
	for _, last := range l.Epoch(0) {
		err = last
	}
	if err == nil {
		t.Error("an evaluation has no error")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged file is still there: %v", err)
	}
	if _, report := mustLoad(t, cfg, bytesTokenizer{}); !strings.HasPrefix(report.CacheNote, "tokens written to ") {
		t.Error(report.CacheNote)
	}
}

// TestChangedCacheIsRead: a file that is not the one that was whole is read at the start, its columns always.
func TestChangedCacheIsRead(t *testing.T) {
	cfg := largeCache(t)
	mustLoad(t, cfg, bytesTokenizer{})
	path := tokensOf(t, cfg)
	flip(t, path, 2*pageBytes+77)
	if _, report := mustLoad(t, cfg, bytesTokenizer{}); !strings.Contains(report.CacheNote, "was damaged (wrong checksum) and is written again") {
		t.Error(report.CacheNote)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, path, info.Size()-20000) // in the columns
	rememberWhole(path)
	if _, report := mustLoad(t, cfg, bytesTokenizer{}); !strings.Contains(report.CacheNote, "was damaged (wrong checksum) and is written again") {
		t.Error(report.CacheNote)
	}
}
