package dataset

import (
	"fmt"
	"slices"
	"strings"
)

// shownRows is how many places the report names for each reason.
const shownRows = 3

// Report is the data contract of a run: what became of every row of a source.
type Report struct {
	Source string
	SHA256 string // of the file
	Format string // as given or found
	Fields string // "prompt=question, completion=answer"; "" when roles and keys are the same

	Files  int       // that the numbers are of, if several
	Parts  []*Report // of each source, if there are several
	Weight float64   // of a source, if it is one of several or not 1
	Taken  int       // rows that an epoch takes of the source, copies counted

	Rows      int // in the source
	Kept      int
	Dropped   []Drop // by reason
	Truncated Drop   // kept rows that were cut at max_length
	Chunked   Drop   // long texts that became several rows
	Chunks    int    // rows that these are more than the texts

	TrainedTokens int64 // of the kept rows
	TotalTokens   int64 // of the kept rows, before padding
	CutTokens     int64 // lost to the cut, of the kept rows
	Longest       int   // tokens of the longest kept row

	Chat ChatReport // of formats with conversations

	Duplicates         int     // kept rows whose tokens an earlier kept row has too
	TrainRows, ValRows int     // after the split
	Leaked             int     // validation rows whose tokens a training row has too
	Val                *Report // of ValPath
	CacheNote          string  // where the tokens came from or went to; "" without a cache
	Streamed           string  // which rows of a stream the numbers are of; "" = it is no stream
}

// Drop counts rows with one fate and names the first few.
type Drop struct {
	Reason string
	Count  int
	Where  []string // "data.jsonl:17"
}

func (d *Drop) add(path string, b *booked) {
	d.Count++
	if len(d.Where) < shownRows {
		d.Where = append(d.Where, place(path, b.line, b.index))
	}
}

func (d Drop) places() string {
	s := strings.Join(d.Where, ", ")
	if d.Count > len(d.Where) {
		s += ", …"
	}
	return s
}

func newReport(path string) *Report { return &Report{Source: path} }

// DroppedRows counts the dropped rows of all reasons.
func (r *Report) DroppedRows() int {
	n := 0
	for _, d := range r.Dropped {
		n += d.Count
	}
	return n
}

// count books one row of a file; rows are booked in the file's order.
func (r *Report) count(b *booked, path string) {
	if !b.more {
		r.Rows++
	}
	r.countChat(b)
	if b.drop != "" {
		i := slices.IndexFunc(r.Dropped, func(d Drop) bool { return d.Reason == b.drop })
		if i < 0 {
			i = len(r.Dropped)
			r.Dropped = append(r.Dropped, Drop{Reason: b.drop})
		}
		r.Dropped[i].add(path, b)
		return
	}
	if b.chunks > 0 {
		r.Chunked.add(path, b)
		r.Chunks += b.chunks - 1
	}
	if b.cut > 0 {
		r.Truncated.add(path, b)
		r.CutTokens += int64(b.cut)
	}
	n := (b.to - b.from) / 4
	r.TrainedTokens += int64(b.trained)
	r.TotalTokens += int64(n)
	r.Longest = max(r.Longest, n)
}

// sortDropped puts the reasons into their order.
func (r *Report) sortDropped() {
	slices.SortFunc(r.Dropped, func(a, b Drop) int {
		return slices.Index(dropOrder, a.Reason) - slices.Index(dropOrder, b.Reason)
	})
}

// placeless is the report of a file by whatever path it is known.
func (r *Report) placeless() *Report {
	return r.move(func(place string) string { return strings.TrimPrefix(place, r.Source) })
}

// placed is a placeless report with a path.
func (r *Report) placed(path string) *Report {
	return r.move(func(place string) string { return path + place })
}

func (r *Report) move(to func(place string) string) *Report {
	moved := *r
	moved.Source, moved.CacheNote = to(r.Source), ""
	drop := func(d Drop) Drop {
		where := slices.Clone(d.Where)
		for i := range where {
			where[i] = to(where[i])
		}
		d.Where = where
		return d
	}
	moved.Truncated, moved.Chunked, moved.Dropped = drop(r.Truncated), drop(r.Chunked), slices.Clone(r.Dropped)
	for i, d := range moved.Dropped {
		moved.Dropped[i] = drop(d)
	}
	return &moved
}

func (r *Report) dropList() string {
	parts := make([]string, len(r.Dropped))
	for i, d := range r.Dropped {
		parts[i] = fmt.Sprintf("%d because %s (%s)", d.Count, d.Reason, d.places())
	}
	return strings.Join(parts, "; ")
}

// String is the report for a log, some lines long.
func (r *Report) String() string {
	var b strings.Builder
	r.write(&b, "data")
	r.writeParts(&b, "source")
	if r.Val != nil {
		b.WriteString("\n")
		r.Val.write(&b, "validation data")
		r.Val.writeParts(&b, "validation source")
	}
	return b.String()
}

func (r *Report) write(b *strings.Builder, title string) {
	fmt.Fprintf(b, "%s: %s", title, r.Source)
	if r.Streamed == "" {
		fmt.Fprintf(b, " (sha256 %.12s)", r.SHA256)
	}
	fmt.Fprintf(b, ", format %s", r.Format)
	if r.Files > 1 && r.Parts == nil {
		fmt.Fprintf(b, ", %d files", r.Files)
	}
	if r.Fields != "" {
		fmt.Fprintf(b, " (%s)", r.Fields)
	}
	if r.Streamed != "" {
		fmt.Fprintf(b, "\n  streaming: %s", r.Streamed)
	}
	fmt.Fprintf(b, "\n  rows: %d read, %d kept, %d dropped", r.Rows, r.Kept, r.DroppedRows())
	if r.Val == nil && r.ValRows > 0 {
		fmt.Fprintf(b, "; %d to train on, %d held out", r.TrainRows, r.ValRows)
	}
	if r.Weight != 0 {
		fmt.Fprintf(b, "; weight %v takes %d an epoch", r.Weight, r.Taken)
	}
	for _, d := range r.Dropped {
		fmt.Fprintf(b, "\n  dropped %d: %s (%s)", d.Count, d.Reason, d.places())
	}
	if t := r.Truncated; t.Count > 0 {
		fmt.Fprintf(b, "\n  cut %d at max_length, %d tokens lost (%s)", t.Count, r.CutTokens, t.places())
	}
	if c := r.Chunked; c.Count > 0 {
		fmt.Fprintf(b, "\n  chunked %d texts longer than max_length into %d rows (%s)", c.Count, c.Count+r.Chunks, c.places())
	}
	share := 0.0
	if r.TotalTokens > 0 {
		share = 100 * float64(r.TrainedTokens) / float64(r.TotalTokens)
	}
	fmt.Fprintf(b, "\n  tokens: %d, trained %d (%.1f %%), longest row %d", r.TotalTokens, r.TrainedTokens, share, r.Longest)
	r.Chat.write(b)
	if r.Duplicates > 0 {
		fmt.Fprintf(b, "\n  duplicates: %d rows have the tokens of an earlier row", r.Duplicates)
	}
	if r.Leaked > 0 {
		fmt.Fprintf(b, "\n  leak: %d of the %d validation rows are training rows too", r.Leaked, r.ValRows)
	}
	if r.CacheNote != "" {
		fmt.Fprintf(b, "\n  cache: %s", r.CacheNote)
	}
}

// describe says which key serves which role, where the names differ.
func (f Format) describe(keys map[string]string) string {
	var parts []string
	for _, r := range f.Roles {
		if keys[r.Name] != r.Name {
			parts = append(parts, r.Name+"="+keys[r.Name])
		}
	}
	return strings.Join(parts, ", ")
}
