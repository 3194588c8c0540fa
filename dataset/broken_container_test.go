package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t testing.TB, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

// made is a file that source/testdata/make.py wrote.
func made(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("source", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// replaced changes the first place where the file has the bytes.
func replaced(t testing.TB, file, before, after string) string {
	t.Helper()
	if !strings.Contains(file, before) {
		t.Fatalf("the file has no %q", before)
	}
	return strings.Replace(file, before, after, 1)
}

// footed is a Parquet file with a footer alone.
func footed(footer string) string {
	n := binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))
	return "PAR1" + footer + string(n) + "PAR1"
}

// schemaOf is a footer whose schema has these elements, in Thrift's compact protocol.
func schemaOf(rows byte, elements ...string) string {
	n := string([]byte{0xf0 | 12, byte(len(elements)&0x7f) | 0x80, byte(len(elements) >> 7)})
	return "\x15\x02\x19" + n + strings.Join(elements, "") + "\x16" + string([]byte{rows}) + "\x19\x0c\x00"
}

// group returns a required element of a schema with a number of children, leaf an optional text.
func group(name string, children byte) string {
	return "\x35\x00\x18" + string([]byte{byte(len(name))}) + name + "\x15" + string([]byte{2 * children}) + "\x00"
}

func leaf(name string) string {
	return "\x15\x0c\x25\x00\x18" + string([]byte{byte(len(name))}) + name + "\x00"
}

func deep(n int) string {
	elements := []string{group("schema", 1)}
	for range n {
		elements = append(elements, group("a", 1))
	}
	return footed(schemaOf(0, append(elements, leaf("text"))...))
}

// TestBrokenContainers is every way in which a file that is no JSON is known to be wrong, with the whole error.
func TestBrokenContainers(t *testing.T) {
	rows := strings.Repeat("{\"text\":\"some text\"}\n", 2000)
	gz, zs, chat := gzipped(t, rows), zstandard(t, rows), made(t, "chat_none_v1.parquet")
	size := len(chat)
	checkBroken(t, []brokenFile{
		// CSV and TSV
		{"no bytes", "d.csv", "", nil, "d.csv: the file holds no row"},
		{"a header alone", "d.csv", "text\n", nil, "d.csv: the file holds no row"},
		{"too few cells", "d.csv", "prompt,completion\na,b\nc\n", nil, "d.csv:3: the row has 1 cell, the header has 2"},
		{"too many cells", "d.csv", "prompt,completion\na,b,c\n", nil, "d.csv:2: the row has 3 cells, the header has 2"},
		{"ragged behind a cell of three lines", "d.csv", "text,n\n\"a\n\nb\",1\nc\n", nil, "d.csv:5: the row has 1 cell, the header has 2"},
		{"a quote that stays open", "d.csv", "text\na\n\"b\nc\n", nil, "d.csv:3: a quote (\") is opened in this row and never closed"},
		{"a column twice", "d.csv", "text,n,text\n", nil, `d.csv:1: the header names columns 1 and 3 both "text"`},
		{"an empty header", "d.csv", ",,\na,b,c\n", nil, "d.csv:1: the header is empty: the first line must name the columns"},
		{"semicolons", "d.csv", "text;n\na;1\n", nil, "d.csv:1: the columns seem to be parted by a semicolon: want commas in .csv and tabs in .tsv"},
		{"commas in a .tsv", "d.tsv", "text,n\na,1\n", nil, "d.tsv:1: the columns seem to be parted by a comma: want commas in .csv and tabs in .tsv"},
		{"a NUL byte", "d.csv", "text\na\x00b\n", nil, `d.csv:2: column "text" holds a NUL byte: the file is binary, or UTF-16 without its mark`},
		{"a NUL byte in the header", "d.csv", "te\x00xt\na\n", nil, "d.csv:1: the name of column 1 holds a NUL byte: the file is binary, or UTF-16 without its mark"},
		{"UTF-16", "d.csv", "\xff\xfet\x00", nil, "d.csv: the file is UTF-16: save it as UTF-8"},
		{"UTF-16 without its mark", "d.jsonl", "{\x00\"\x00t\x00", nil, "d.jsonl: the file is UTF-16 without its mark: save it as UTF-8"},
		{"UTF-16 the other way round", "d.csv", "\x00t\x00e\x00x", nil, "d.csv: the file is UTF-16 without its mark: save it as UTF-8"},
		{"UTF-32", "d.jsonl", "\xff\xfe\x00\x00{\x00\x00\x00", nil, "d.jsonl: the file is UTF-32: save it as UTF-8"},
		{"lines of old Macs", "d.csv", "text,n\ra,1\rb,2\r", nil, "d.csv:1: the lines end with a carriage return alone, as on old Macs: save the file with line feeds"},
		{"Latin-1", "d.csv", "text\ncaf\xe9\n", nil, `d.csv:2: column "text" is not UTF-8 (byte 0xe9): save the file as UTF-8`},
		{"a huge cell", "d.csv", "text\n" + strings.Repeat("a", 17<<20) + "\nb,c\n", nil,
			"d.csv:2: the row is longer than 16 MiB\nd.csv:3: the row has 2 cells, the header has 1"},
		{"columns that fit no format", "d.csv", "q,reply\na,b\n", nil,
			"d.csv:2: no format fits the keys q, reply (" + formatNeeds() + "): set dataset.format and dataset.fields"},
		{"too many columns", "d.csv", strings.Repeat("a,", 1100) + "b\n", nil, "d.csv:1: the header has more than 1024 columns"},
		// text
		{"a blank text", "d.txt", "\n\n", nil, "d.txt: no row is left to train on, all 2 were dropped: 2 because the text is empty (d.txt:1, d.txt:2)"},
		{"binary text", "d.txt", "a\x00b\n", nil, "d.txt:1: the text holds a NUL byte: the file is binary, or UTF-16 without its mark"},
		{"a huge line", "d.txt", "a\n" + strings.Repeat("a", 100<<20), nil, "d.txt:2: the row is longer than 16 MiB"},
		{"a huge line of JSON", "d.jsonl", "{\"text\":\"a\"}\n{\"text\":\"" + strings.Repeat("a", 100<<20), nil, "d.jsonl:2: the row is longer than 16 MiB"},
		{"bare texts", "d.jsonl", "\"a\"\n\"b\"\n", nil,
			"d.jsonl:1: the file begins with '\"': want JSONL (an object a line) or a JSON list of objects, or a name that ends in .csv, .tsv, .txt or .parquet"},
		// archives
		{"gzip cut off", "d.jsonl.gz", gz[:len(gz)/2], nil, "d.jsonl.gz: the file ends in the middle of its gzip data: it is cut off"},
		{"gzip without its last bytes", "d.jsonl.gz", gz[:len(gz)-4], nil, "d.jsonl.gz: the file ends in the middle of its gzip data: it is cut off"},
		{"gzip with a wrong checksum", "d.jsonl.gz", gz[:len(gz)-8] + "\x00\x00\x00\x00" + gz[len(gz)-4:], nil, "d.jsonl.gz: the file's gzip data is damaged: its checksum does not match"},
		{"gzip with a damaged block", "d.jsonl.gz", gz[:10] + "\xff" + gz[11:], nil, "d.jsonl.gz: the file's gzip data is damaged"},
		{"something behind gzip", "d.jsonl.gz", gz + "abcdefghijklmnop", nil, "d.jsonl.gz: the file's gzip header is damaged, or something else follows its data"},
		{"gzip in gzip", "d.jsonl.gz", gzipped(t, gz), nil, "d.jsonl.gz: the file is compressed twice: unpack it first"},
		{"a tar in gzip", "d.tar.gz", gzipped(t, strings.Repeat("a", 257)+"ustar\x00"+strings.Repeat("b", 300)), nil, "d.tar.gz: the file is a tar archive: unpack it first"},
		{"zeros in gzip", "d.jsonl.gz", gzipped(t, strings.Repeat("\x00", 64<<20)), nil,
			"d.jsonl.gz:1: the file begins with '\\x00': want JSONL (an object a line) or a JSON list of objects, or a name that ends in .csv, .tsv, .txt or .parquet"},
		{"zstd cut off", "d.jsonl.zst", zs[:len(zs)/2], nil, "d.jsonl.zst: the file ends in the middle of its zstd data: it is cut off"},
		{"zstd with a damaged block", "d.jsonl.zst", zs[:len(zs)-1] + "\x00", nil, "d.jsonl.zst: the file's zstd data is damaged: its checksum does not match"},
		{"a frame to pass over, then zstd cut off", "d.jsonl.zst", "\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zs[:len(zs)/2], nil,
			"d.jsonl.zst: the file ends in the middle of its zstd data: it is cut off"},
		{"something behind zstd", "d.jsonl.zst", zs + "abcdefgh", nil, "d.jsonl.zst: the file's zstd data is damaged"},
		{"a zip", "d.csv", "PK\x03\x04", nil, "d.csv: the file is a zip archive: unpack it first"},
		{"xz", "d.jsonl.xz", "\xfd7zXZ\x00", nil, "d.jsonl.xz: the file is xz-compressed: unpack it first"},
		{"Arrow without a schema", "d.arrow", "ARROW1\x00\x00", nil, "d.arrow: the Arrow file is damaged: it has no schema"},
		{"Arrow cut off", "d.arrow", made(t, "types.arrow")[:3000], nil, "d.arrow: the Arrow file ends in the middle of a batch: it is cut off"},
		{"Arrow of another program's compression", "d.arrow", made(t, "lz4.arrow"), nil, "d.arrow: the Arrow file is compressed with LZ4: write it without compression or with zstd"},
		{"Arrow in gzip", "d.arrow.gz", gzipped(t, made(t, "types.arrow")), nil, "d.arrow.gz: the file is Arrow inside a compressed file: unpack it first"},
		{"a Git LFS pointer for Arrow", "d.arrow", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", nil, "d.arrow: the file is a Git LFS pointer, not the content: run `git lfs pull` in the folder"},
		{"a Git LFS pointer", "d.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", nil, "d.jsonl: the file is a Git LFS pointer, not the content: run `git lfs pull` in the folder"},
		{"a Git LFS pointer for Parquet", "d.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", nil, "d.parquet: the file is a Git LFS pointer, not the content: run `git lfs pull` in the folder"},
		// Parquet
		{"no Parquet", "d.parquet", "{\"text\":1}", nil, `d.parquet: the file is named .parquet and begins with "{\"te" instead of "PAR1": it is no Parquet file`},
		{"magic alone", "d.parquet", "PAR1", nil, "d.parquet: the Parquet file is damaged: it has 4 bytes"},
		{"footer cut off", "d.parquet", chat[:size-20], nil, `d.parquet: the Parquet file does not end with "PAR1": it is cut off`},
		{"footer longer than the file", "d.parquet", chat[:size-8] + "\xff\xff\xff\x7fPAR1", nil, "d.parquet: the Parquet file is damaged: its footer would have 2147483647 of the file's 6759 bytes"},
		{"footer in the wrong place", "d.parquet", chat[:size-8] + "\x40\x00\x00\x00PAR1", nil, "d.parquet: the Parquet file is damaged: its footer: it has a field of an unknown type"},
		{"no columns", "d.parquet", footed("\x00"), nil, "d.parquet: the Parquet file is damaged: it has no columns"},
		{"a list longer than the footer", "d.parquet", footed("\x15\x02\x19\xfc\xff\xff\xff\xff\x07"), nil, "d.parquet: the Parquet file is damaged: its footer: a length in it is larger than what is there"},
		{"nested too deep", "d.parquet", deep(100), nil, "d.parquet: the columns of the Parquet file are nested deeper than 64 levels"},
		{"two columns of a name", "d.parquet", footed(schemaOf(0, group("schema", 2), leaf("a"), leaf("a"))), nil, `d.parquet: the Parquet file has two columns "a"`},
		{"a group without end", "d.parquet", footed(schemaOf(0, group("schema", 2), leaf("a"))), nil, "d.parquet: the Parquet file is damaged: its schema ends too early"},
		{"rows that are not there", "d.parquet", footed(schemaOf(8, group("schema", 1), leaf("a"))), nil, "d.parquet: the Parquet file is damaged: its footer says 4 rows, its row groups 0"},
		{"no rows", "d.parquet", made(t, "empty.parquet"), nil, "d.parquet: the file holds no row"},
		{"encrypted", "d.parquet", "PARE....", nil, "d.parquet: the Parquet file is encrypted: write it without encryption"},
		{"a codec that is not read", "d.parquet", made(t, "brotli.parquet"), nil, `d.parquet: column "text" of the Parquet file is compressed with brotli: write it with snappy, gzip or zstd`},
		{"numbers for a text", "d.parquet", made(t, "numbers.parquet"), nil, "d.parquet row 1: field \"text\" is a number, want a string\nd.parquet row 2: field \"text\" is a number, want a string"},
		{"a list for a text", "d.parquet", made(t, "lists.parquet"), nil, `d.parquet row 1: field "completion" is a list, want a string`},
		{"null", "d.parquet", made(t, "nulls.parquet"), nil, `d.parquet row 2: field "text" is null`},
		{"a JSON column whose text is no JSON", "d.parquet", made(t, "broken_json.parquet"), func(c *Config) { c.Format = "text"; c.Fields = map[string]string{"text": "j"} }, "d.parquet row 1: field \"j\" is an object, want a string\n" +
			`d.parquet row 2: column "j" is of type JSON, and its text is no JSON: byte 6: expected a value, found the end of the text` +
			"\nd.parquet row 3: field \"j\" is null\nd.parquet row 4: field \"j\" is null\nd.parquet row 5: field \"j\" is null"},
		{"a text that is not UTF-8", "d.parquet", made(t, "latin1.parquet"), nil, `d.parquet row 2: column "text" is not UTF-8: byte 4 is 0xe9`},
		{"a page that says it is huge", "d.parquet", replaced(t, chat, "\x15\x04\x15\x90\x03\x15\x90\x03", "\x15\x04\x15\x80\x80\x80\x80\x08\x15\x90\x03"), nil,
			"d.parquet: the Parquet file is damaged: column \"id\": a page would have 1073741824 bytes, at most 256 MiB are read"},
		{"a page longer than its column", "d.parquet", replaced(t, chat, "\x15\x04\x15\x90\x03\x15\x90\x03", "\x15\x04\x15\x90\x03\x15\x90\x7f"), nil,
			"d.parquet: the Parquet file is damaged: column \"id\": a page would have 8136 bytes, 291 are left"},
		{"a damaged page", "d.parquet", replaced(t, made(t, "chat_zstd_v2.parquet"), "\x28\xb5\x2f\xfd", "\x28\xb5\x2f\xfe"), nil,
			"d.parquet: the Parquet file is damaged: column \"id\": the checksum of a page does not match"},
		{"Parquet in gzip", "d.parquet.gz", gzipped(t, chat), nil, `d.parquet.gz: the file is named .parquet and begins with "\x1f\x8b\b\x00" instead of "PAR1": it is no Parquet file`},
		{"Parquet under another name", "d.jsonl.gz", gzipped(t, chat), nil, "d.jsonl.gz: the file is Parquet inside a compressed file: unpack it first"},
	})
}

// TestBrokenSources is every way in which a source's files are known not to be found, with the whole error.
func TestBrokenSources(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"one.jsonl": "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n", "pairs.jsonl": `{"prompt":"a","chosen":"b","rejected":"c"}`,
		"none/readme.md": "x", "mixed/a.csv": "text\na\n", "mixed/b.jsonl": `{"text":"a"}`, "split/train.jsonl": `{"text":"a"}`, "split/valid.jsonl": `{"text":"b"}`,
		"shards/train-00000-of-00003.jsonl": `{"text":"a"}`, "shards/train-00002-of-00003.jsonl": `{"text":"a"}`,
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for _, c := range []struct {
		name   string
		source Source
		want   string
	}{
		{"an empty folder", Source{Path: "none"}, "read data: the folder none holds no data file (.arrow, .csv, .json, .jsonl, .ndjson, .parquet, .tsv, .txt, also with .gz or .zst)"},
		{"mixed files", Source{Path: "mixed"}, "read data: the folder mixed holds files of several kinds (b.jsonl, a.csv): name those to read, such as *.jsonl"},
		{"a pattern that matches nothing", Source{Path: "one/*.jsonl"}, "read data: no file matches one/*.jsonl"},
		{"a pattern that is none", Source{Path: "on[e.jsonl"}, "read data: the pattern on[e.jsonl has a bracket that is not closed"},
		{"a missing shard", Source{Path: "shards"}, "read data: the folder shards lacks train-00001-of-00003.jsonl: train-00000-of-00003.jsonl is one of 3"},
		{"a split that is not there", Source{Path: "split", Split: "test"}, `read data: split: there is no split "test"; there is train, validation`},
		{"a split of one file", Source{Path: "one.jsonl", Split: "test"}, `read data: one.jsonl: there is no split "test"; there is train`},
		{"a slice beyond the end", Source{Path: "one.jsonl", Split: "train[3:9]"}, "read data: one.jsonl: train[3:9] has no row: the split has 3 rows"},
		{"a slice turned round", Source{Path: "one.jsonl", Split: "train[2:1]"}, "read data: one.jsonl: train[2:1] has no row: the split has 3 rows"},
		{"a percent that rounds to nothing", Source{Path: "one.jsonl", Split: "train[:10%]"}, "read data: one.jsonl: train[:10%] has no row: the split has 3 rows"},
		{"a file that is not there", Source{Path: "absent.jsonl", Split: "train[:1]"}, "read data: open absent.jsonl: file does not exist"},
		{"a subset of a file", Source{Path: "one.jsonl", Name: "main"}, `read data: one.jsonl: only a data set of the hub has subsets, such as "main"`},
		{"weight 0", Source{Path: "one.jsonl", Weight: -1}, "dataset.sources[0].weight: -1 must be above 0 and at most 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Default()
			if c.source.Weight == 0 {
				c.source.Weight = 1
			}
			cfg.Sources = []Source{c.source}
			_, _, err := LoadFS(context.Background(), files, cfg, bytesTokenizer{})
			if err == nil || err.Error() != c.want {
				t.Errorf("\ngot  %v\nwant %s", err, c.want)
			}
		})
	}
}
