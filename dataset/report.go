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
	Source   string `json:"source"`
	SHA256   string `json:"sha256"`            // of the file; of several, over theirs
	Format   string `json:"format"`            // as given or found
	Detected bool   `json:"format_detected"`   // found from the keys of the first row
	Fields   string `json:"fields,omitempty"`  // "prompt=question, completion=answer"; "" when roles and keys are the same
	Trained  string `json:"trained,omitempty"` // what is trained, in a sentence
	// AsChat says that rows of a prompt and an answer are trained as conversations.
	AsChat bool `json:"as_chat,omitempty"`
	// Warning says what of the data a person should look at before training; "" = nothing.
	Warning string `json:"warning,omitempty"`

	Files  int       `json:"files,omitempty"`  // that the numbers are of, if several
	Parts  []*Report `json:"parts,omitempty"`  // of each source, if there are several
	Weight float64   `json:"weight,omitempty"` // of a source, if it is one of several or not 1
	Taken  int       `json:"taken,omitempty"`  // rows that an epoch takes of the source, copies counted

	Rows      int    `json:"rows"` // in the source
	Kept      int    `json:"kept"`
	Dropped   []Drop `json:"dropped,omitempty"` // by reason
	Truncated Drop   `json:"cut"`               // kept rows that were cut at max_length
	Chunked   Drop   `json:"chunked"`           // long texts that became several rows
	Chunks    int    `json:"chunks,omitempty"`  // rows that these are more than the texts

	TrainedTokens int64  `json:"trained_tokens"` // of the kept rows
	TotalTokens   int64  `json:"tokens"`         // of the kept rows, before padding
	CutTokens     int64  `json:"cut_tokens"`     // lost to the cut, of the kept rows
	Longest       int    `json:"longest_kept"`   // tokens of the longest kept row
	LongestRow    Extent `json:"longest"`        // before the cut, of all rows that have tokens
	ShortestRow   Extent `json:"shortest"`

	// Unread are keys of rows that nothing reads, in the order in which they came, at most maxUnread of them. Rows whose
	// value is null or empty are not counted.
	Unread []Unread `json:"unread_keys,omitempty"`
	// UnreadMore is how many times rows have a key that Unread has no room for.
	UnreadMore int `json:"unread_more,omitempty"`

	Groups   GroupReport    `json:"groups,omitzero"`   // of rows of several sequences or with a label
	Chat     ChatReport     `json:"conversations"`     // of formats with conversations
	Template TemplateReport `json:"template,omitzero"` // by which they are written

	Duplicates int          `json:"duplicates"` // kept rows whose tokens an earlier kept row has too
	TrainRows  int          `json:"train_rows"` // after the split
	ValRows    int          `json:"val_rows"`
	Leaked     int          `json:"leaked"`             // validation rows whose tokens a training row has too
	Val        *Report      `json:"val,omitempty"`      // of ValPath
	Batches    *BatchReport `json:"batches,omitempty"`  // nil before they are planned
	CacheNote  string       `json:"cache,omitempty"`    // where the tokens came from or went to; "" without a cache
	Streamed   string       `json:"streamed,omitempty"` // which rows of a stream the numbers are of; "" = it is no stream
}

// Extent is how long a row is.
type Extent struct {
	Tokens   int    `json:"tokens"`
	Messages int    `json:"messages,omitempty"` // of a conversation
	Where    string `json:"where"`              // "data.jsonl:17"
}

func (e Extent) String() string {
	s := fmt.Sprintf("%d tokens", e.Tokens)
	if e.Messages > 0 {
		s += fmt.Sprintf(" in %d messages", e.Messages)
	}
	return s + " (" + e.Where + ")"
}

// extend takes a row into the longest and the shortest; of equal ones the first counts.
func (r *Report) extend(e Extent) {
	if e.Tokens > r.LongestRow.Tokens {
		r.LongestRow = e
	}
	if e.Tokens > 0 && (r.ShortestRow.Tokens == 0 || e.Tokens < r.ShortestRow.Tokens) {
		r.ShortestRow = e
	}
}

// Drop counts rows with one fate and names the first few.
type Drop struct {
	Reason string   `json:"reason,omitempty"`
	Count  int      `json:"count"`
	Where  []string `json:"where,omitempty"` // the first few: "data.jsonl:17"
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
	for _, key := range b.unread {
		r.countUnread(Unread{Key: key, Rows: 1})
	}
	r.countChat(b)
	extent := Extent{Tokens: b.length, Where: place(path, b.line, b.index)}
	if b.chat != nil {
		extent.Messages = b.chat.messages
	}
	r.extend(extent)
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
	r.Groups.count(b)
	n := (b.to - b.from) / 4
	r.TrainedTokens += int64(b.trained)
	r.TotalTokens += int64(n)
	for k := range len(b.borders) + 1 {
		from, to := sequenceSpan(b.borders, k, n)
		r.Longest = max(r.Longest, to-from)
	}
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
	for _, e := range []*Extent{&moved.LongestRow, &moved.ShortestRow} {
		if e.Tokens > 0 {
			e.Where = to(e.Where)
		}
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
