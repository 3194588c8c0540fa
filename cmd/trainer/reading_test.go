package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/tierlora/tierlora/dataset"
)

func TestReadingLine(t *testing.T) {
	for _, c := range []struct {
		p    dataset.Progress
		want string
	}{
		{dataset.Progress{Doing: "tokenising", Path: "a/rows.jsonl", Rows: 1204331, Bytes: 1_200_000_000, Size: 10_400_000_000, Took: 24 * time.Second},
			"tokenising rows.jsonl: 1,204,331 rows, 1.2 of 10.4 GB (11%), 50 MB/s, left 3m4s"},
		{dataset.Progress{Doing: "hashing", Path: "rows.jsonl", Bytes: 5_000_000, Took: time.Second}, "hashing rows.jsonl: 5 MB, 5 MB/s"},
		{dataset.Progress{Doing: "waiting for another run that tokenises", Path: "rows.jsonl"}, "waiting for another run that tokenises rows.jsonl"},
	} {
		if got := readingLine(c.p); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestReadingIsSilent where the standard error is no terminal.
func TestReadingIsSilent(t *testing.T) {
	c := &console{err: &bytes.Buffer{}}
	if c.reading() != nil {
		t.Error("somebody is told")
	}
}
