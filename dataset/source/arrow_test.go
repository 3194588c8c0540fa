package source

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

func arrowReader(raw []byte, limit int) *Reader {
	return NewReader(bytes.NewReader(raw), Options{Path: "d.arrow", At: bytes.NewReader(raw), Size: int64(len(raw)), Limit: limit})
}

// FuzzArrow: whatever the bytes, reading ends with rows of valid JSON or an error, and no check is left to recover.
func FuzzArrow(f *testing.F) {
	addFiles(f, "*.arrow")
	addFiles(f, "saved/*.arrow")
	addFiles(f, "saved_dict/train/*.arrow")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !isArrow(raw) {
			return
		}
		opened, err := arrowReader(raw, 1<<16).open()
		if err != nil {
			return
		}
		r := opened.(*arrowRows)
		defer r.close()
		for range 10_000 {
			row, err := r.nextRow()
			if skip := (*RowError)(nil); errors.As(err, &skip) {
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

// TestBrokenArrow: what is wrong with a file is said, and no cut, nor a number that is not what it was, is a panic.
func TestBrokenArrow(t *testing.T) {
	whole := readFile(t, "testdata/types.arrow")
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"nothing":             {nil, ""},
		"another file":        {[]byte("PAR2\x00\x00\x00\x00"), `the file is named .arrow and begins with "PAR2\x00\x00\x00\x00": it is no Arrow file`},
		"Feather 1":           {[]byte("FEA1\x00\x00\x00\x00"), "the file is Feather of version 1: write it as Parquet or JSONL"},
		"LZ4":                 {readFile(t, "testdata/lz4.arrow"), "the Arrow file is compressed with LZ4: write it without compression or with zstd"},
		"cut in a batch":      {whole[:len(whole)-100], "the Arrow file ends in the middle of a batch: it is cut off"},
		"cut in the metadata": {whole[:200], "the Arrow file ends in the middle of a batch: it is cut off"},
		"no schema":           {[]byte("\xff\xff\xff\xff\x00\x00\x00\x00"), "the Arrow file is damaged: it has no schema"},
		"rubbish behind":      {append(bytes.Clone(whole[:len(whole)-8]), "some text"...), "the Arrow file is damaged: byte 4081 begins no message"},
	} {
		in := arrowReader(c.raw, 0)
		_, err := in.Next()
		for err == nil {
			_, err = in.Next()
		}
		if c.want == "" && !errors.Is(err, io.EOF) || c.want != "" && err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	files, err := filepath.Glob("testdata/*.arrow")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	reads := 0
	for _, file := range files {
		raw := readFile(t, file)
		for at := 0; at+4 <= len(raw); at += 4 {
			for _, value := range []uint32{0, 1, 0x7fffffff, 0xffffffff, uint32(len(raw))} {
				bad := bytes.Clone(raw)
				binary.LittleEndian.PutUint32(bad[at:], value)
				opened, err := arrowReader(bad, 1<<16).open()
				if err != nil {
					continue
				}
				r, ok := opened.(*arrowRows)
				for ok && err == nil {
					_, err = r.nextRow()
					if errors.As(err, new(*RowError)) {
						err = nil
					}
				}
				if reads++; ok {
					r.close()
				}
			}
		}
	}
	t.Logf("%d damaged files read", reads)
}

// TestArrowRows: rows are counted without reading them, a slice is the same rows, and a row that is too long is passed over.
func TestArrowRows(t *testing.T) {
	raw := readFile(t, "testdata/types_file.arrow")
	o := Options{Path: "d.arrow", At: bytes.NewReader(raw), Size: int64(len(raw))}
	if n, err := Count(bytes.NewReader(raw), o); n != 4 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	all, err := gather(t, arrowReader(raw, 0))
	if err != nil || len(all) != 4 {
		t.Fatal(len(all), err)
	}
	o.Rows = Span{1, 4}
	some, err := gather(t, NewReader(bytes.NewReader(raw), o))
	if err != nil || !reflect.DeepEqual(some, all[1:]) {
		t.Errorf("rows 1 to 3: %q, %v", some, err)
	}
	short, err := gather(t, arrowReader(raw, len(all[2])))
	if len(short) != 1 || short[0] != all[2] || err == nil || !strings.Contains(err.Error(), "the row is longer than") {
		t.Errorf("%d rows of at most %d bytes, %v", len(short), len(all[2]), err)
	}
	if _, err := NewReader(bytes.NewReader(raw), Options{Path: "d.arrow"}).Next(); err == nil || err.Error() != "the file is Arrow, which must be read from a plain file: it is given as a stream" {
		t.Errorf("as a stream: %v", err)
	}
	windows := arrowReader(raw, 0)
	opened, err := windows.open()
	if err != nil {
		t.Fatal(err)
	}
	r := opened.(*arrowRows)
	defer r.close()
	if err := r.nextBatch(); err != nil {
		t.Fatal(err)
	}
	narrow(r.columns)
	for i := range 3 { // of the first batch
		if row, err := r.nextRow(); err != nil || string(row.Data) != all[i] {
			t.Errorf("by windows of 16 bytes: %s, %v", row.Data, err)
		}
	}
}

func narrow(columns []*arrowColumn) {
	for _, c := range columns {
		for _, b := range []*arrowBuffer{&c.validity, &c.offsets, &c.data} {
			b.wide = 16
		}
		narrow(c.members)
	}
}

// TestSavedFolders: the folders of save_to_disk are their files and splits, and what datasets computed beside them is no
// data.
func TestSavedFolders(t *testing.T) {
	disk := os.DirFS("testdata")
	for folder, want := range map[string][]File{
		"saved":            {{"saved/data-00000-of-00002.arrow", "train"}, {"saved/data-00001-of-00002.arrow", "train"}},
		"saved_dict":       {{"saved_dict/train/data-00000-of-00001.arrow", "train"}, {"saved_dict/test/data-00000-of-00001.arrow", "test"}},
		"saved_dict/test":  {{"saved_dict/test/data-00000-of-00001.arrow", "train"}},
		"saved_dict/train": {{"saved_dict/train/data-00000-of-00001.arrow", "train"}},
	} {
		if got, err := Find(disk, folder); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v; want %v", folder, got, err, want)
		}
	}
	const state = `{"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "x"}`
	for name, c := range map[string]struct {
		files map[string]string
		want  string // an error, or the files
	}{
		"a cache beside it":       {map[string]string{"d/state.json": state, "d/dataset_info.json": "{}", "d/data.arrow": "", "d/cache-0f.arrow": ""}, "d/data.arrow train"},
		"a cache alone":           {map[string]string{"d/x-train.arrow": "", "d/x-test.arrow": "", "d/cache-0f.arrow": "", "d/dataset_info.json": "{}"}, "d/x-test.arrow test, d/x-train.arrow train"},
		"another program's state": {map[string]string{"d/state.json": `[1]`, "d/rows.jsonl": ""}, "d/rows.jsonl train"},
		"a file is gone":          {map[string]string{"d/state.json": state, "d/dataset_info.json": "{}"}, "the folder d lacks a file that its state.json names: open d/data.arrow: file does not exist"},
		"a path":                  {map[string]string{"d/state.json": `{"_data_files": [{"filename": "../x.arrow"}]}`, "d/dataset_info.json": "{}"}, `the folder d has a state.json with the file "../x.arrow", which is no name in the folder`},
		"indices":                 {map[string]string{"d/state.json": `{"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}`, "d/dataset_info.json": "{}"}, "the folder d holds rows that a file of indices picks: load it with datasets and save it again with flatten_indices().save_to_disk()"},
		"a split is gone":         {map[string]string{"d/dataset_dict.json": `{"splits": ["train"]}`}, "the folder d lacks train/state.json: dataset_dict.json names the split"},
		"a split outside":         {map[string]string{"d/dataset_dict.json": `{"splits": [".."]}`}, `the folder d has a dataset_dict.json with the split "..", which is no name of a folder`},
		"no JSON":                 {map[string]string{"d/dataset_dict.json": `{`}, "d/dataset_dict.json: line 1, column 2: "},
	} {
		tree := fstest.MapFS{}
		for path, text := range c.files {
			tree[path] = &fstest.MapFile{Data: []byte(text)}
		}
		files, err := Find(tree, "d")
		var got []string
		for _, f := range files {
			got = append(got, f.Path+" "+f.Split)
		}
		if err != nil && !strings.HasPrefix(err.Error(), c.want) || err == nil && strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, %v; want %s", name, got, err, c.want)
		}
	}
}
