package source

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func addFiles(f *testing.F, pattern string) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		f.Fatal(pattern, err)
	}
	for _, path := range paths {
		f.Add(readFile(f, path))
	}
}

// gather reads all rows; each is checked to be an object of valid JSON.
func gather(t *testing.T, in *Reader) (rows []string, failed error) {
	t.Helper()
	for {
		row, err := in.Next()
		var skip *RowError
		switch {
		case errors.Is(err, io.EOF):
			return rows, failed
		case errors.As(err, &skip):
			failed = err
			continue
		case err != nil:
			return rows, err
		}
		var object map[string]any
		if err := json.Unmarshal(row.Data, &object); err != nil || !utf8.Valid(row.Data) {
			t.Fatalf("row %d: %q: %v", len(rows), row.Data, err)
		}
		rows = append(rows, string(row.Data))
	}
}

// FuzzParquet: whatever the bytes, reading ends with rows of valid JSON or an error, and no check is left to recover.
func FuzzParquet(f *testing.F) {
	addFiles(f, "*.parquet")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !bytes.HasPrefix(raw, []byte(parquetMagic)) {
			return
		}
		in := NewReader(bytes.NewReader(raw), Options{Path: "d.parquet", At: bytes.NewReader(raw), Size: int64(len(raw)), Limit: 1 << 16})
		opened, err := in.open()
		if err != nil {
			return
		}
		p := opened.(*parquetRows)
		for range 10_000 {
			row, err := p.row()
			var skip *RowError
			if errors.As(err, &skip) {
				continue
			}
			if err != nil {
				return
			}
			if !json.Valid(row.Data) || !utf8.Valid(row.Data) {
				t.Fatalf("%q", row.Data)
			}
		}
	})
}

// FuzzThrift: skipping reads all or fails.
func FuzzThrift(f *testing.F) {
	f.Add([]byte("\x15\x02\x19\x0c\x00"))
	f.Add([]byte("\x1b\x02\x88\x01a\x01b\x01c\x01d\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := &thrift{data: raw}
		r.skip(thriftStruct, 0)
		if r.at > len(raw) {
			t.Fatal("read beyond the end")
		}
	})
}

// isJSON: such a file is read as JSON whatever its name, and its rows are checked later. Packed ones are too.
func isJSON(raw []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(raw, "\xef\xbb\xbf \t\r\n"), []byte("{")) || bytes.HasPrefix(raw, []byte("\x1f\x8b")) || bytes.HasPrefix(raw, []byte("\x28\xb5\x2f\xfd"))
}

// FuzzCSV compares with encoding/csv where both take the text, and where no quote stands inside a plain cell.
func FuzzCSV(f *testing.F) {
	addFiles(f, "*.csv")
	f.Add([]byte("a,b\r\n\"x\"\"y\",\"\n\"\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if isJSON(raw) {
			return
		}
		got, failed := gather(t, NewReader(bytes.NewReader(raw), Options{Path: "d.csv", Limit: 1 << 16}))
		if failed != nil || bytes.ContainsAny(raw, "\r") {
			return
		}
		r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))))
		all, err := r.ReadAll()
		if err != nil {
			return
		}
		if len(all) != len(got)+1 && len(all)+len(got) > 0 {
			t.Fatalf("%d rows, encoding/csv has %d", len(got), len(all)-1)
		}
		for i, row := range got {
			var cells map[string]string
			if err := json.Unmarshal([]byte(row), &cells); err != nil {
				t.Fatal(err)
			}
			for j, name := range all[0] {
				if name != "" && cells[name] != all[i+1][j] {
					t.Fatalf("row %d: %q is %q, encoding/csv has %q", i, name, cells[name], all[i+1][j])
				}
			}
		}
	})
}

// FuzzText: the lines of a text are what splitting it gives.
func FuzzText(f *testing.F) {
	addFiles(f, "*.txt")
	f.Add([]byte("a\n\n\nb\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if isJSON(raw) {
			return
		}
		text := strings.ReplaceAll(string(raw), "\r\n", "\n")
		for _, by := range TextUnits {
			got, failed := gather(t, NewReader(bytes.NewReader(raw), Options{Path: "d.txt", TextBy: by, Limit: 1 << 16}))
			if failed != nil || by != TextLine || strings.HasPrefix(text, "\ufeff") {
				continue
			}
			want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if text == "" {
				want = nil
			}
			var lines []string
			for _, row := range got {
				var v struct{ Text string }
				if err := json.Unmarshal([]byte(row), &v); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, v.Text)
			}
			if !slices.Equal(lines, want) {
				t.Fatalf("%q, want %q", lines, want)
			}
		}
	})
}

// FuzzFile: whatever the bytes and the name, reading ends.
func FuzzFile(f *testing.F) {
	for _, pattern := range []string{"*.gz", "*.jsonl", "*.json", "*.tsv"} {
		addFiles(f, pattern)
	}
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x58\x09\x00\x00\x41"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, path := range []string{"d.csv", "d.tsv", "d.txt"} {
			ends(NewReader(bytes.NewReader(raw), Options{Path: path, Limit: 1 << 12})) //nolint:errcheck // it ends, that is all
		}
		in := NewReader(bytes.NewReader(raw), Options{Path: "d", Limit: 1 << 12})
		ends(in) //nolint:errcheck // it ends, that is all
	})
}

// FuzzSplit: what is taken is written back as it was read, and a span lies in its split.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"train", "train[:5%]", "train[-3:]+test[10:200]", "a.b[1_0:%]", "all[:]"} {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		slices, err := ParseSplit(text)
		if err != nil {
			return
		}
		for _, s := range slices {
			again, err := ParseSplit(s.String())
			if err != nil || len(again) != 1 || again[0].String() != s.String() {
				t.Fatalf("%q is written %q: %v", text, s, err)
			}
			if n < 0 || n > 1<<40 {
				continue
			}
			if span, err := s.Span(n); err == nil && (span.From < 0 || span.From >= span.To || span.To > n) {
				t.Fatalf("%q of %d rows: %v", text, n, span)
			}
		}
	})
}

// FuzzCard: a card is read or refused.
func FuzzCard(f *testing.F) {
	f.Add("---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n    path: [\"**/x-*.csv\", b.csv]\n---\n", "a", "dir/x-1.csv")
	f.Add("---\nconfigs: [{config_name: b, data_dir: d, default: true}]\n---", "", "d/y.json")
	f.Fuzz(func(t *testing.T, card, subset, name string) {
		files, err := Subset([]string{name, "b.csv"}, []byte(card), subset)
		if err == nil && len(files) == 0 {
			t.Fatal("no file and no error")
		}
	})
}
