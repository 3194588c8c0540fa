package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// mixedRows is a file of rows of all fates: kept, cut, dropped, twice, with blank lines between; spoiled makes some wrong.
func mixedRows(n int, spoiled bool) string {
	var b strings.Builder
	for i := range n {
		switch r := newRandom(7, uint64(i)); {
		case spoiled && i%997 == 500:
			fmt.Fprintf(&b, "{\"prompt\":\"p\",\"completion\":%d}\n", i)
		case spoiled && i%1009 == 700:
			b.WriteString("{\"prompt\":\"p\",\"completion\":\"cut off\n")
		case i%13 == 5:
			b.WriteString("\n{\"prompt\":\"p\",\"completion\":\"\"}\n")
		case i%17 == 3:
			b.WriteString("{\"prompt\":\"twice\",\"completion\":\"the same\"}\n")
		default:
			fmt.Fprintf(&b, "{\"prompt\":\"row %d\",\"completion\":\"%s é \\n\"}\n", i, strings.Repeat("x", int(r.below(120))))
		}
	}
	return b.String()
}

func workersConfig(t testing.TB, workers int, content string) Config {
	t.Helper()
	cfg := Default()
	dir := t.TempDir()
	cfg.Path, cfg.CacheDir, cfg.MaxLength, cfg.Workers = filepath.Join(dir, "d.jsonl"), filepath.Join(dir, "cache"), 96, workers
	if err := os.WriteFile(cfg.Path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestWorkersChangeNothing: the cache file, the report, the rows and the digest are those of one worker.
func TestWorkersChangeNothing(t *testing.T) {
	content := mixedRows(20000, false)
	var want []byte
	var wantReport string
	for workers := 1; workers <= 8; workers++ {
		cfg := workersConfig(t, workers, content)
		set, report := mustLoad(t, cfg, bytesTokenizer{})
		got, err := os.ReadFile(tokensOf(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(report.String(), filepath.Dir(cfg.Path), "")
		if want == nil {
			want, wantReport = got, text
			if report.Duplicates == 0 || report.Truncated.Count == 0 || report.DroppedRows() == 0 || report.Rows != 20000 {
				t.Fatalf("the file has not all kinds of rows: %v", report)
			}
		}
		if !bytes.Equal(got, want) || text != wantReport {
			t.Errorf("%d workers: the files are equal: %v; the report\n%s\nwant\n%s", workers, bytes.Equal(got, want), text, wantReport)
		}
		known, ok := set.Train.(digested).Digest()
		if walked := digest(Memory(all(set.Train))); !ok || known != walked {
			t.Errorf("%d workers: digest %s, the rows have %s", workers, known, walked)
		}
		checkColumns(t, set.Train)
	}
}

// checkColumns compares what the columns say with the rows.
func checkColumns(t testing.TB, rows Rows) {
	t.Helper()
	most, _ := MaxID(rows)
	largest := int32(0)
	for i, r := range all(rows) {
		if rows.Length(i) != len(r.IDs) || rows.Trained(i) != r.Trained() || hashOf(rows, i) != r.hash() {
			t.Fatalf("row %d: length %d, trained %d, hash %d, the row has %d, %d, %d", i, rows.Length(i), rows.Trained(i), hashOf(rows, i), len(r.IDs), r.Trained(), r.hash())
		}
		for _, id := range r.IDs {
			largest = max(largest, id)
		}
	}
	if most < largest {
		t.Errorf("largest id %d, the rows have %d", most, largest)
	}
}

// tokensOf is the one entry of a cache.
func tokensOf(t testing.TB, cfg Config) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.tokens"))
	if err != nil || len(names) != 1 {
		t.Fatalf("entries %v, %v", names, err)
	}
	return names[0]
}

// TestWorkersAndChunks: texts that become several rows, and slices of a file, are cut alike by any number of workers.
func TestWorkersAndChunks(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "{\"text\":\"row %d %s\"}\n", i, strings.Repeat("x", int(newRandom(9, uint64(i)).below(400))))
	}
	var want []Row
	wantReport := ""
	for workers := 1; workers <= 8; workers++ {
		cfg := workersConfig(t, workers, b.String())
		cfg.Sources = []Source{{Path: cfg.Path, Split: "train[100:2900]", Weight: 1}}
		cfg.Path = ""
		set, report := mustLoad(t, cfg, bytesTokenizer{})
		rows := all(set.Train)
		for i := range rows {
			rows[i].Source = ""
		}
		text := strings.ReplaceAll(report.String(), filepath.Dir(cfg.CacheDir), "")
		if want == nil {
			want, wantReport = rows, text
			if report.Chunked.Count == 0 || report.Rows != 2800 || report.Kept != report.Rows+report.Chunks || rows[0].Index != 100 {
				t.Fatalf("no chunks, or another slice: %v", report)
			}
		}
		if !reflect.DeepEqual(rows, want) || text != wantReport {
			t.Errorf("%d workers: the rows are equal: %v; the report\n%s\nwant\n%s", workers, reflect.DeepEqual(rows, want), text, wantReport)
		}
		checkColumns(t, set.Train)
		again, report := mustLoad(t, cfg, bytesTokenizer{})
		if !strings.HasPrefix(report.CacheNote, "tokens read from ") || report.Chunked.Count == 0 || again.Train.Len() != len(want) {
			t.Errorf("second start: %v", report)
		}
	}
}

// TestWorkersAndProblems: the problems of a broken file, their order and number are those of one worker.
func TestWorkersAndProblems(t *testing.T) {
	rows := mixedRows(20000, true)
	for name, content := range map[string]string{
		"rows":         rows,
		"first row":    "[1]\n" + rows,
		"no object":    strings.Repeat("[1]\n", 5000),
		"list cut off": "[" + strings.ReplaceAll(strings.TrimSpace(mixedRows(3000, false)), "}\n", "},\n"),
	} {
		want := ""
		for workers := 1; workers <= 8; workers++ {
			cfg := Default()
			cfg.Path, cfg.MaxLength, cfg.Workers = "d.jsonl", 96, workers
			_, report, err := LoadFS(context.Background(), fstest.MapFS{"d.jsonl": {Data: []byte(content)}}, cfg, bytesTokenizer{})
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			got := fmt.Sprint(err, "\n", report)
			if want == "" {
				want = got
				t.Logf("%s: %v", name, err)
			}
			if got != want {
				t.Errorf("%s, %d workers:\n%s\nwant\n%s", name, workers, got, want)
			}
		}
	}
}

// TestSplitViews: both sides of a split are the rows that a list of rows would have.
func TestSplitViews(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(500, false))
	whole, _ := mustLoad(t, cfg, bytesTokenizer{})
	cfg.ValSplit, cfg.Seed = 0.2, 11
	set, report := mustLoad(t, cfg, bytesTokenizer{})
	rows := all(whole.Train)
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	shuffle(newRandom(cfg.Seed, streamSplit), order)
	held := map[int]bool{}
	for _, i := range order[:set.Val.Len()] {
		held[i] = true
	}
	var train, val []Row
	for i, r := range rows {
		if held[i] {
			val = append(val, r)
		} else {
			train = append(train, r)
		}
	}
	if !reflect.DeepEqual(all(set.Train), train) || !reflect.DeepEqual(all(set.Val), val) {
		t.Error("the sides differ")
	}
	checkColumns(t, set.Train)
	checkColumns(t, set.Val)
	n := 0
	for _, v := range val {
		for _, r := range train {
			if v.hash() == r.hash() {
				n++
				break
			}
		}
	}
	if report.Leaked != n || n == 0 || report.TrainRows != len(train) || report.ValRows != len(val) {
		t.Errorf("leaked %d, want %d", report.Leaked, n)
	}
}

// TestCacheFitsAnyPath: an entry serves the same content under another name, with that name in rows and report.
func TestCacheFitsAnyPath(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(300, false))
	mustLoad(t, cfg, bytesTokenizer{})
	plain := cfg
	plain.CacheDir = ""
	for _, c := range []*Config{&cfg, &plain} {
		c.Path = filepath.Join(filepath.Dir(c.Path), "other name.jsonl")
	}
	if err := os.WriteFile(cfg.Path, []byte(mixedRows(300, false)), 0o600); err != nil {
		t.Fatal(err)
	}
	got, report := mustLoad(t, cfg, bytesTokenizer{})
	want, wantReport := mustLoad(t, plain, bytesTokenizer{})
	if !strings.HasPrefix(report.CacheNote, "tokens read from ") {
		t.Errorf("note %q", report.CacheNote)
	}
	report.CacheNote = ""
	if !reflect.DeepEqual(report, wantReport) || !reflect.DeepEqual(all(got.Train), all(want.Train)) {
		t.Errorf("report\n%v\nwant\n%v", report, wantReport)
	}
}

// TestHashIsRemembered only for a file that was left alone, and only while nothing of it changes.
func TestHashIsRemembered(t *testing.T) {
	cfg := workersConfig(t, 1, mixedRows(50, false))
	hints := func() int {
		names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.hash"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	f, err := os.Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := identify(f); !ok {
		t.Skip("this system does not tell a file's change time")
	}
	_, first := mustLoad(t, cfg, bytesTokenizer{})
	if hints() != 0 {
		t.Fatal("the hash of a file that has just been written is remembered")
	}
	time.Sleep(restTime + 100*time.Millisecond)
	mustLoad(t, cfg, bytesTokenizer{})
	if hints() != 1 {
		t.Fatal("the hash is not remembered")
	}
	content, err := os.ReadFile(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, []byte("row 0"))] = 'R' // of the same size, and the old time of modification given back
	if err := os.WriteFile(cfg.Path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(cfg.Path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	_, report := mustLoad(t, cfg, bytesTokenizer{})
	if report.SHA256 == first.SHA256 || !strings.HasPrefix(report.CacheNote, "tokens written to ") {
		t.Errorf("a changed file is taken for the old one: %v", report)
	}
}

// TestInterrupted: a run that is stopped while it tokenises leaves no entry and says that it was stopped.
func TestInterrupted(t *testing.T) {
	for _, dir := range []bool{false, true} {
		cfg := workersConfig(t, 2, mixedRows(50000, false))
		if !dir {
			cfg.CacheDir = ""
		}
		ctx, stop := context.WithCancel(context.Background())
		tok := &stopping{stop: stop}
		_, _, err := Load(ctx, cfg, tok)
		if !errors.Is(err, context.Canceled) || err.Error() != "read "+cfg.Path+": context canceled" {
			t.Errorf("error %v", err)
		}
		if left := entries(t, cfg); dir && len(left) != 0 {
			t.Errorf("left %v", left)
		}
	}
}

// stopping ends the run in the middle of its rows.
type stopping struct {
	bytesTokenizer
	stop func()
}

func (s *stopping) IDs(text string, special bool) []int32 {
	if strings.HasPrefix(text, "row 30000") {
		s.stop()
	}
	return s.bytesTokenizer.IDs(text, special)
}

// TestTemporaryFile: rows beyond the bound of memory go to a temporary file and are the same.
func TestTemporaryFile(t *testing.T) {
	cfg := workersConfig(t, 2, mixedRows(5000, false))
	cfg.CacheDir = ""
	want, _ := mustLoad(t, cfg, bytesTokenizer{})
	dir := t.TempDir()
	f, err := os.Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, err := newStoreWriter(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	out.words.limit = 100 << 10
	for _, c := range out.columns {
		c.limit = 5000
	}
	s := loading{cfg: cfg, path: cfg.Path, tok: bytesTokenizer{}, report: newReport(cfg.Path), keep: out.add, meter: newMeter(nil)}
	if err := s.read(context.Background(), f, f, 2); err != nil {
		t.Fatal(err)
	}
	rows, err := out.finish(s.report, cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	if out.words.file == nil || out.columns[0].file == nil {
		t.Error("nothing was written to a file")
	}
	out.close()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if !reflect.DeepEqual(all(rows), all(want.Train)) {
		t.Error("the rows differ")
	}
}
