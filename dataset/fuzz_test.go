package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tierlora/tierlora/dataset/source"
)

// seeds are the broken files and some good ones.
func seeds(f *testing.F) {
	for _, c := range brokenFiles {
		if len(c.content) < 4096 {
			f.Add([]byte(c.content))
		}
	}
	for _, s := range []string{
		`{"instruction":"i","input":"x","output":"o"}`, `{"prompt":"p\ud83d\ude00","completion":"c"}`, `{"text":"t"}`,
		`{"input_ids":[5,6,0],"labels":[-100,6,-100],"attention_mask":[1,1,0]}`,
		"[\n{\"text\":\"]}\\\"[\"},{\"text\":\"b\"}\n]", "\xef\xbb\xbf {\"text\":\"a\"}\r\n\r\n{\"text\":\"b\"}",
	} {
		f.Add([]byte(s))
	}
}

// FuzzFile: whatever a file holds, loading ends with an error that names the file or with rows that keep the rules.
func FuzzFile(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		set, report, err := loadText(t, "d.jsonl", string(content), func(c *Config) { c.MaxLength = 24 })
		if err != nil {
			if !strings.HasPrefix(err.Error(), "d.jsonl") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if report.Kept+report.DroppedRows() != report.Rows+report.Chunks || report.Kept != set.Train.Len() {
			t.Fatalf("the rows do not add up: %v", report)
		}
		for _, r := range all(set.Train) {
			if len(r.IDs) > 24 || len(r.IDs) != len(r.Labels) || r.Labels[0] != Ignore || r.Trained() == 0 {
				t.Fatalf("row %+v", r)
			}
			for i, l := range r.Labels {
				if l != Ignore && l != r.IDs[i] {
					t.Fatalf("label %d of id %d", l, r.IDs[i])
				}
			}
		}
		l, err := set.TrainLoader(3)
		if err != nil {
			t.Fatal(err)
		}
		for b := range l.Epoch(0) {
			checkBatch(t, l, b)
		}
	})
}

// FuzzObject compares the row parser with encoding/json: what it takes is an object with the same keys and values.
func FuzzObject(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObject(data)
		var want map[string]json.RawMessage
		if jsonErr := json.Unmarshal(data, &want); err == nil && (jsonErr != nil || len(want) != len(o.keys)) {
			t.Fatalf("took %q as %v, encoding/json: %v", data, o.keys, jsonErr)
		}
		if err != nil {
			return
		}
		fields := Fields{row: o, keys: map[string]string{}}
		for i, key := range o.keys {
			if !bytes.Equal(want[key], o.values[i]) {
				t.Fatalf("key %q: %q, want %q", key, o.values[i], want[key])
			}
			fields.keys["x"] = key
			if s, err := fields.Text("x"); err == nil && fields.Present("x") {
				var plain string
				if json.Unmarshal(want[key], &plain) != nil || plain != s || !utf8.ValidString(s) {
					t.Fatalf("key %q: text %q of %q", key, s, want[key])
				}
			}
			fields.Ints("x")
		}
	})
}

// FuzzList compares the reader of lists with encoding/json.
func FuzzList(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := source.NewReader(bytes.NewReader(data), source.Options{Limit: 1 << 20})
		var got [][]byte
		var failed error
		for {
			row, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				failed = err
				var skip *source.RowError
				if errors.As(err, &skip) {
					continue
				}
				break
			}
			got = append(got, bytes.Clone(row.Data))
		}
		var want []json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return
		}
		if failed != nil || len(got) != len(want) {
			t.Fatalf("%d elements (%v), want %d", len(got), failed, len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("element %d: %q, want %q", i, got[i], want[i])
			}
		}
	})
}

// FuzzCacheBody: an entry with a right checksum over anything is refused or gives rows that keep the rules.
func FuzzCacheBody(f *testing.F) {
	rows := madeRows(3, 5, 1)
	report := &Report{Source: "made", Kept: 3}
	whole := encodeEntry("key", rows, report)
	f.Add(whole[:len(whole)-32])
	f.Add([]byte(cacheMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		rows, report, err := decodeBody(body, "key", "made")
		if err != nil {
			return
		}
		if len(rows) != report.Kept {
			t.Fatalf("%d rows, the report says %d", len(rows), report.Kept)
		}
		for _, r := range rows {
			if len(r.IDs) == 0 || len(r.IDs) != len(r.Labels) {
				t.Fatalf("row %+v", r)
			}
		}
	})
}
