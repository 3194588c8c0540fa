package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
)

// reading shows how far a data file is, in one line of a terminal that is empty again at the end; nil where no person
// watches.
func (c *console) reading() func(dataset.Progress) {
	if !mayColour(c.err) {
		return nil
	}
	shown := false
	return func(p dataset.Progress) {
		if p.Doing == "" {
			if shown {
				fmt.Fprint(raw(c.err), "\r\x1b[K")
			}
			shown = false
			return
		}
		shown = true
		line := plainText(readingLine(p))
		fmt.Fprint(raw(c.err), "\r", line[:min(len(line), columns(c.err)-1)], "\x1b[K")
	}
}

// readingLine is "tokenising rows.jsonl: 1,204,331 rows, 1.20 of 10.4 GB (11 %), 52 MB/s, left 2m57s".
func readingLine(p dataset.Progress) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", p.Doing, filepath.Base(p.Path))
	sep := ": "
	part := func(format string, args ...any) {
		fmt.Fprintf(&b, sep+format, args...)
		sep = ", "
	}
	if p.Rows > 0 {
		part("%s rows", rate(float64(p.Rows)))
	}
	if p.Bytes == 0 {
		return b.String()
	}
	unit, name := 1e6, "MB"
	if max(p.Size, p.Bytes) >= 1e9 {
		unit, name = 1e9, "GB"
	}
	if p.Size > 0 {
		part("%.3g of %.3g %s (%d%%)", float64(p.Bytes)/unit, float64(p.Size)/unit, name, 100*p.Bytes/p.Size)
	} else {
		part("%.3g %s", float64(p.Bytes)/unit, name)
	}
	part("%.0f MB/s", p.PerSecond()/1e6)
	if left := p.Left(); left >= time.Second {
		part("left %v", left.Round(time.Second))
	}
	return b.String()
}
