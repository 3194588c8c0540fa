package source

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// expected is what testdata/make.py found with pyarrow, pandas and datasets.
type expected struct {
	Versions map[string]string
	Files    map[string]any // rows, or the name of a file with the same ones
	Splits   []struct {
		Rows  int
		Spec  string
		Spans [][2]int
		Error string
	}
	Trees []struct {
		Names  []string
		Splits map[string][]string
	}
}

func readExpected(t testing.TB) (e expected) {
	t.Helper()
	f, err := os.Open("testdata/expected.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(raw)
	d.UseNumber()
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

// read gives the rows of a file as JSON has them.
func read(t testing.TB, path string, o Options) (rows []any, lines []int, err error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	o.Path, o.At, o.Size = path, f, info.Size()
	in := NewReader(f, o)
	for {
		row, err := in.Next()
		if errors.Is(err, io.EOF) {
			return rows, lines, nil
		}
		if err != nil {
			return rows, lines, err
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(row.Data))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %s: %v", path, row.Data, err)
		}
		rows, lines = append(rows, v), append(lines, row.Line)
	}
}

// TestPeersReadTheSame compares every row with what pyarrow, pandas and datasets read.
func TestPeersReadTheSame(t *testing.T) {
	e := readExpected(t)
	values := 0
	for name, want := range e.Files {
		if same, ok := want.(string); ok {
			want = e.Files[same]
		}
		file, by, _ := strings.Cut(name, " by ")
		got, _, err := read(t, filepath.Join("testdata", file), Options{TextBy: by})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got) != len(want.([]any)) {
			t.Errorf("%s: %d rows, want %d", name, len(got), len(want.([]any)))
			continue
		}
		for i := range got {
			if where := differ(got[i], want.([]any)[i], &values); where != "" {
				t.Errorf("%s, row %d%s", name, i, where)
			}
		}
	}
	t.Logf("%d files, %d values", len(e.Files), values)
}

// differ says where two values are not the same, "" if nowhere.
func differ(got, want any, values *int) string {
	switch w := want.(type) {
	case map[string]any:
		if exact, ok := w["decimal"]; ok {
			*values++
			a, b := new(big.Rat), new(big.Rat)
			n, isNumber := got.(json.Number)
			if _, ok := a.SetString(string(n)); !isNumber || !ok {
				break
			}
			b.SetString(exact.(string))
			if a.Cmp(b) != 0 {
				break
			}
			return ""
		}
		if moment, ok := w["time"]; ok {
			*values++
			text, _ := got.(string)
			seconds, part, _ := strings.Cut(strings.TrimSuffix(text, "Z"), ".")
			for len(part) < 9 {
				part += "0"
			}
			n, _ := new(big.Int).SetString(part, 10)
			if seconds != moment || n.String() != w["nanoseconds"].(json.Number).String() {
				break
			}
			return ""
		}
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			break
		}
		for key := range w {
			if where := differ(g[key], w[key], values); where != "" {
				return "." + key + where
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			if where := differ(g[i], w[i], values); where != "" {
				return "[]" + where
			}
		}
		return ""
	case json.Number:
		*values++
		g, ok := got.(json.Number)
		if !ok {
			break
		}
		a, _ := g.Float64()
		b, _ := w.Float64()
		if g == w || strings.ContainsAny(string(w), ".e") && a == b {
			return ""
		}
	default:
		*values++
		if got == want {
			return ""
		}
	}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	return ": " + string(g) + ", want " + string(w)
}

// TestJSONColumns: both annotations that say a column holds JSON are known, an empty text is null and a broken one the
// error of its row alone.
func TestJSONColumns(t *testing.T) {
	var newer, older element
	newer.readLogical(&thrift{data: []byte{0}}, 12, thriftStruct)
	older.convert(19)
	if newer.means != holdsJSON || older.means != holdsJSON {
		t.Errorf("logical type JSON is %d, converted type JSON %d, want %d", newer.means, older.means, holdsJSON)
	}
	f, err := os.Open("testdata/broken_json.parquet")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	in := NewReader(f, Options{Path: f.Name(), At: f, Size: info.Size()})
	for i, want := range []string{`{"j":{"a": 1}}`, "", `{"j":null}`, `{"j":null}`, `{"j":null}`} {
		row, err := in.Next()
		if wrong := (*RowError)(nil); want == "" != errors.As(err, &wrong) || string(row.Data) != want {
			t.Errorf("row %d: %s (%v), want %s", i, row.Data, err, want)
		}
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last row: %v", err)
	}
}

// TestSplitsAsDatasets compares slices with those of datasets.ReadInstruction.
func TestSplitsAsDatasets(t *testing.T) {
	for _, c := range readExpected(t).Splits {
		slices, err := ParseSplit(c.Spec)
		if err != nil {
			if c.Error == "" {
				t.Errorf("%s: %v", c.Spec, err)
			}
			continue
		}
		if c.Error != "" {
			t.Errorf("%s is taken, datasets says %s", c.Spec, c.Error)
			continue
		}
		for i, s := range slices {
			got, err := s.Span(c.Rows)
			if want := c.Spans[i]; want[0] >= want[1] {
				if err == nil {
					t.Errorf("%s of %d rows is empty and taken as %v", c.Spec, c.Rows, got)
				}
			} else if err != nil || got != (Span{want[0], want[1]}) {
				t.Errorf("%s of %d rows: %v (%v), want %v", c.Spec, c.Rows, got, err, want)
			}
		}
	}
}

// TestFoldersAsDatasets compares the splits of folders with those of datasets.load_dataset_builder.
func TestFoldersAsDatasets(t *testing.T) {
	for _, c := range readExpected(t).Trees {
		tree := fstest.MapFS{}
		for _, name := range c.Names {
			tree["root/"+name] = &fstest.MapFile{}
		}
		files, err := Find(tree, "root")
		if err != nil {
			t.Errorf("%q: %v", c.Names, err)
			continue
		}
		got := map[string][]string{}
		for _, f := range files {
			got[f.Split] = append(got[f.Split], strings.TrimPrefix(f.Path, "root/"))
		}
		if !reflect.DeepEqual(got, c.Splits) {
			t.Errorf("%q: %v, want %v", c.Names, got, c.Splits)
		}
	}
}
