package dataset

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStreamsOfPackedFiles: what is compressed is streamed and resumed as what is not.
func TestStreamsOfPackedFiles(t *testing.T) {
	first, second := streamLines(0, 5000), streamLines(5000, 4500)
	var want [][]int32
	for _, ending := range []string{"", ".gz", ".zst"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"a": first, "b": second} {
			switch ending {
			case ".gz":
				text = gzipped(t, text)
			case ".zst":
				text = zstandard(t, text)
			}
			writeFile(t, dir, name+".jsonl"+ending, text)
		}
		cfg := Default()
		cfg.Path, cfg.MaxLength, cfg.Streaming, cfg.Packing = dir, 64, true, true
		l := openStreamLoader(t, cfg, 10)
		var got [][]int32
		var states []State
		for l.at.epoch < 2 {
			states = append(states, l.State())
			got = append(got, mustNext(t, l, 1)[0].IDs)
			if now := l.Progress(); now < float64(states[len(states)-1].Epoch) || now > float64(l.at.epoch+1) {
				t.Fatalf("progress %v in epoch %d", now, l.at.epoch)
			}
		}
		if want == nil {
			want = got
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
			t.Fatalf("%q: other batches", ending)
		}
		for _, k := range []int{1, len(states) / 3, len(states) / 2, len(states) - 1} {
			again := openStreamLoader(t, cfg, 10)
			if err := again.Restore(states[k]); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(mustNext(t, again, 1)[0].IDs, want[k]) {
				t.Errorf("%q: from state %d on, other batches", ending, k)
			}
		}
	}
}

// TestStreamOfParquet: a stream of Parquet's row groups deals what a set of the file deals, and resumes inside them.
func TestStreamOfParquet(t *testing.T) {
	cfg := Default()
	cfg.Path, cfg.MaxLength, cfg.Shuffle = "source/testdata/stream.parquet", 64, false
	const batch = 10
	want, _, err := Load(context.Background(), cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Streaming = true
	l := openStreamLoader(t, cfg, batch)
	var states []State
	var batches []Batch
	rows, inside := 0, 0
	for l.at.epoch < 1 {
		states = append(states, l.State())
		b := mustNext(t, l, 1)[0]
		for _, r := range b.Rows {
			if got, ids := b.of.Row(r).IDs, want.Train.Row(rows).IDs; !slices.Equal(got, ids) {
				t.Fatalf("row %d is %v, want %v", rows, got, ids)
			}
			rows++
		}
		batches = append(batches, b)
	}
	if rows != want.Train.Len() || rows < 9000 {
		t.Errorf("%d rows, want %d", rows, want.Train.Len())
	}
	for k := 0; k < len(states); k += 37 {
		if states[k].Stream.Row > 0 {
			inside++
		}
		again := openStreamLoader(t, cfg, batch)
		if err := again.Restore(states[k]); err != nil {
			t.Fatal(err)
		}
		for i := k; i < min(k+3, len(states)); i++ {
			if got := mustNext(t, again, 1)[0]; !slices.Equal(got.IDs, batches[i].IDs) || again.at.epoch == 0 && again.State() != states[i+1] {
				t.Fatalf("from state %d on, batch %d is another", k, i)
			}
		}
		again.Close()
	}
	if inside < 5 {
		t.Errorf("%d of the states lie inside the file, the test wants some", inside)
	}
}

// TestStreamOfLongRows: a window ends at its tokens, not only at its rows.
func TestStreamOfLongRows(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 24 MB of rows")
	}
	var b strings.Builder
	for range 24 {
		b.WriteString(`{"text": "` + strings.Repeat("x", 1_000_000) + "\"}\n")
	}
	cfg := Default()
	cfg.Path, cfg.MaxLength, cfg.Streaming, cfg.Shuffle = writeFile(t, t.TempDir(), "long.jsonl", b.String()), maxMaxLength, true, false
	l := openStreamLoader(t, cfg, 1)
	windows, rows := 0, 0
	for l.at.epoch == 0 {
		s, err := l.stretch()
		if err != nil {
			t.Fatal(err)
		}
		if l.position == 0 {
			windows++
			if s.tokens > streamTokens+maxMaxLength {
				t.Errorf("a window of %d tokens", s.tokens)
			}
		}
		rows += len(mustNext(t, l, 1)[0].Rows)
	}
	if windows != 2 || rows != 24 {
		t.Errorf("%d windows of %d rows, want 2 of 24", windows, rows)
	}
}

// TestStreamReport: the report says that it is of the beginning, and validation rows are read wholly.
func TestStreamReport(t *testing.T) {
	cfg := streamConfig(t)
	cfg.ValPath = writeFile(t, t.TempDir(), "val.jsonl", streamLines(0, 50))
	set, report, err := Load(context.Background(), cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Val.Len() != 50 || !set.Streaming() || set.Train.Len() != 4096 {
		t.Errorf("%d validation rows, %d of the beginning", set.Val.Len(), set.Train.Len())
	}
	text := report.String()
	for _, part := range []string{
		"data: " + cfg.Path + ", format text, found from the keys of the first row\n  streaming: the numbers are of the first 4",
		" rows, the rest is read as training goes\n  rows: 4",
		"\nvalidation data: " + cfg.ValPath + " (sha256 ",
		"leak: 50 of the 50 validation rows are training rows too",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the report lacks %q:\n%s", part, text)
		}
	}
	if entries, err := filepath.Glob(filepath.Join(cfg.Path, "*")); err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v", entries, err)
	}
}
