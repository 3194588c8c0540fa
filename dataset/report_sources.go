package dataset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// add adds the numbers of another report. Duplicates are counted over all rows later.
func (r *Report) add(o *Report) {
	r.Rows, r.Kept, r.Chunks = r.Rows+o.Rows, r.Kept+o.Kept, r.Chunks+o.Chunks
	r.TrainedTokens += o.TrainedTokens
	r.TotalTokens += o.TotalTokens
	r.CutTokens += o.CutTokens
	r.Longest = max(r.Longest, o.Longest)
	r.extend(o.LongestRow)
	r.extend(o.ShortestRow)
	r.addUnread(o)
	r.Chat.add(o.Chat)
	r.Groups.add(o.Groups)
	r.Weighted.add(o.Weighted)
	r.Images.add(o.Images)
	r.Detected = r.Detected || o.Detected
	r.Truncated.join(o.Truncated)
	r.Chunked.join(o.Chunked)
	for _, d := range o.Dropped {
		i := slices.IndexFunc(r.Dropped, func(known Drop) bool { return known.Reason == d.Reason })
		if i < 0 {
			i = len(r.Dropped)
			r.Dropped = append(r.Dropped, Drop{Reason: d.Reason})
		}
		r.Dropped[i].join(d)
	}
	if o.CacheNote != "" && !strings.Contains(r.CacheNote, o.CacheNote) {
		r.CacheNote = strings.TrimPrefix(r.CacheNote+"; "+o.CacheNote, "; ")
		if r.Files > 1 && len(r.CacheNote) > maxCacheNote {
			r.CacheNote = fmt.Sprintf("an entry for each of %d files", r.Files)
		}
	}
}

const maxCacheNote = 200

func (d *Drop) join(o Drop) {
	d.Count += o.Count
	d.Where = append(d.Where, o.Where[:min(len(o.Where), shownRows-len(d.Where))]...)
}

// countDuplicates counts the rows whose tokens equal those of an earlier row, if the rows are from several files.
func (r *Report) countDuplicates(rows Rows) {
	if r.Files < 2 {
		return
	}
	r.Duplicates = duplicates(rows)
}

// Supervised returns, for each format that an objective of single unlabelled sequences cannot use as it is, how it
// could use the rows.
func (r *Report) Supervised() (advice []string) {
	for _, name := range formatNames() {
		if text := Formats[name].Supervised; text != "" && slices.Contains(strings.Split(r.Format, ", "), name) {
			advice = append(advice, text)
		}
	}
	return advice
}

// GroupReport is the part of a report about rows of several sequences and about labelled rows.
type GroupReport struct {
	Rows        int `json:"rows,omitempty"`      // Rows counts the kept rows of several sequences.
	Sequences   int `json:"sequences,omitempty"` // Sequences counts the sequences of those rows.
	Most        int `json:"most,omitempty"`      // Most is the largest number of sequences of a row.
	Desirable   int `json:"desirable,omitempty"` // Desirable and Undesirable count the kept rows with each label.
	Undesirable int `json:"undesirable,omitempty"`
	// Sampled counts the kept rows that are groups of sampled answers.
	Sampled int `json:"sampled,omitempty"`
	Aimed   int `json:"aimed,omitempty"` // Aimed counts the kept rows with targets.
}

// Single reports whether every row is one sequence without a label.
func (g GroupReport) Single() bool { return g == GroupReport{} }

func (g *GroupReport) count(b *booked) {
	if n := len(b.borders) + 1; n > 1 {
		g.Rows, g.Sequences, g.Most = g.Rows+1, g.Sequences+n, max(g.Most, n)
	}
	if b.targets != nil {
		g.Aimed++
	}
	switch b.desirable {
	case Desirable:
		g.Desirable++
	case Undesirable:
		g.Undesirable++
	}
}

// add adds the numbers of another report.
func (g *GroupReport) add(o GroupReport) {
	g.Rows, g.Sequences, g.Most = g.Rows+o.Rows, g.Sequences+o.Sequences, max(g.Most, o.Most)
	g.Desirable, g.Undesirable = g.Desirable+o.Desirable, g.Undesirable+o.Undesirable
	g.Sampled += o.Sampled
	g.Aimed += o.Aimed
}

// write writes a line about groups and one about labels, if there are such rows.
func (g GroupReport) write(line func(format string, args ...any)) {
	switch {
	case g.Most == 2 && g.Sequences == 2*g.Rows:
		line("groups: %s of two sequences, which stay together", words.Counted(g.Rows, "pair"))
	case g.Rows > 0:
		line("groups: %s of %d sequences, at most %d in a row, which stay together",
			words.Counted(g.Rows, "row"), g.Sequences, g.Most)
	}
	if g.Desirable+g.Undesirable > 0 {
		line("labels: %d desirable, %d undesirable", g.Desirable, g.Undesirable)
	}
}
