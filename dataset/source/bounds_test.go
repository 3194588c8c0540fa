package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// endlessBytes gives the same byte for ever, and counts how many were taken.
type endlessBytes struct {
	b     byte
	taken int
}

func (e *endlessBytes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	e.taken += len(p)
	return len(p), nil
}

// TestEndlessRows: a row without end is given up, in every container and however it is packed.
func TestEndlessRows(t *testing.T) {
	const limit = 1 << 10
	for _, c := range []struct {
		path, begin string
		fill        byte
	}{
		{"d.jsonl", `{"text":"`, 'a'}, {"d.json", `[{"text":"`, 'a'}, {"d.csv", "text\n", 'a'}, {"d.csv", "text\n\"", '\n'}, {"d.tsv", "text\n", '\t'},
		{"d.txt", "", 'a'}, {"d.csv", "", 'a'}, {"d.csv", "", ','},
	} {
		e := &endlessBytes{b: c.fill}
		in := NewReader(io.MultiReader(strings.NewReader(c.begin), e), Options{Path: c.path, Limit: limit})
		err := ends(in)
		var file *FileError
		if !errors.As(err, &file) || !strings.Contains(err.Error(), "a row does not end within 65536 bytes: this is no file of rows") {
			t.Errorf("%s %q: %v", c.path, c.begin, err)
		}
		if e.taken > 4*bufferBytes {
			t.Errorf("%s %q: %d bytes were read", c.path, c.begin, e.taken)
		}
	}
}

// ends reads to the fatal error.
func ends(in *Reader) error {
	for {
		_, err := in.Next()
		var skip *RowError
		if err != nil && !errors.As(err, &skip) {
			return err
		}
	}
}

// TestBombs: a small file that unpacks to a large one takes the memory of a row.
func TestBombs(t *testing.T) {
	var zeros, lines bytes.Buffer
	gz, err := gzip.NewWriterLevel(&zeros, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	zs, err := zstd.NewWriter(&lines, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	for range 256 {
		gz.Write(make([]byte, 1<<20))                              //nolint:errcheck // into memory
		zs.Write(append(bytes.Repeat([]byte("a"), 1<<20-1), '\n')) //nolint:errcheck // into memory
	}
	gz.Close() //nolint:errcheck // into memory
	zs.Close() //nolint:errcheck // into memory
	for path, file := range map[string]*bytes.Buffer{"d.txt.gz": &zeros, "d.txt.zst": &lines} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		size := file.Len()
		in := NewReader(file, Options{Path: path})
		if err := ends(in); path == "d.txt.zst" && !errors.Is(err, io.EOF) || path == "d.txt.gz" && err == nil {
			t.Error(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
			t.Errorf("%s: %d bytes of file took %d of memory", path, size, took)
		}
	}
}

// TestHashesSeeTheFile: behind the last row the whole file was read, though a slice ends earlier and gzip has its own end.
func TestHashesSeeTheFile(t *testing.T) {
	for _, path := range []string{"testdata/quotes.csv.gz", "testdata/chat_gzip_v1.parquet", "testdata/lines.jsonl"} {
		raw := readFile(t, path)
		rest := bytes.NewReader(raw)
		in := NewReader(rest, Options{Path: path, Rows: Span{0, 1}, At: bytes.NewReader(raw), Size: int64(len(raw))})
		if err := ends(in); !errors.Is(err, io.EOF) || rest.Len() != 0 {
			t.Errorf("%s: %v, %d bytes are left", path, err, rest.Len())
		}
	}
}

// TestCloseEndsTheReading: a reader that was not read to its end leaves nothing behind, and gives no row any more.
func TestCloseEndsTheReading(t *testing.T) {
	before := runtime.NumGoroutine()
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200_000 {
		fmt.Fprintf(z, "{\"text\": \"row %d\"}\n", i*i)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for path, raw := range map[string][]byte{
			"d.jsonl.zst": packed.Bytes(), "quotes.csv.gz": readFile(t, "testdata/quotes.csv.gz"), "lines.jsonl": readFile(t, "testdata/lines.jsonl"),
			"chat.parquet": readFile(t, "testdata/chat_gzip_v1.parquet"),
		} {
			rest := bytes.NewReader(raw)
			in := NewReader(rest, Options{Path: path, At: bytes.NewReader(raw), Size: int64(len(raw))})
			closed := 0
			if _, err := in.Next(); err != nil {
				t.Fatal(path, err)
			}
			release := in.close
			in.close = func() { closed++; release() }
			in.Close()
			in.Close()
			if _, err := in.Next(); !errors.Is(err, ErrClosed) || closed != 1 {
				t.Errorf("%s: a closed reader gives %v; its decompressor was closed %d times", path, err, closed)
			}
		}
		NewReader(strings.NewReader(""), Options{}).Close() // before its first row
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left, there were %d", runtime.NumGoroutine(), before)
}

// TestLeaveStopsAtTheSlice: what comes behind the rows asked for is not read.
func TestLeaveStopsAtTheSlice(t *testing.T) {
	file := strings.Repeat("{\"text\": \"a row\"}\n", 100_000)
	rest := strings.NewReader(file)
	in := NewReader(rest, Options{Path: "d.jsonl", Rows: Span{0, 10}, Leave: true})
	if err := ends(in); !errors.Is(err, io.EOF) || rest.Len() < len(file)-1<<20 {
		t.Errorf("%v, %d of %d bytes were read", err, len(file)-rest.Len(), len(file))
	}
	rest = strings.NewReader(file)
	if n, err := Count(rest, Options{Path: "d.jsonl", Rows: Span{To: 7}, Leave: true}); n != 7 || err != nil || rest.Len() < len(file)-1<<20 {
		t.Errorf("%d rows are counted, %v, %d of %d bytes were read", n, err, len(file)-rest.Len(), len(file))
	}
}
