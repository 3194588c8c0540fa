package dataset

import (
	"fmt"
	"slices"
	"strings"
)

// shownRows is how many places the report names for each reason.
const shownRows = 3

// Report records what became of every row of a source.
type Report struct {
	Source string `json:"source"`
	// SHA256 is the hash of the file, or for several files the hash of their hashes.
	SHA256 string `json:"sha256"`
	Format string `json:"format"` // Format is the format as configured or detected.
	// Detected reports whether the format was detected from the keys of the first row.
	Detected bool `json:"format_detected"`
	// Fields lists fields and keys, as in "prompt=question, completion=answer"; "" if they have the same names.
	Fields  string `json:"fields,omitempty"`
	Trained string `json:"trained,omitempty"` // Trained is a sentence about what is trained.
	// AsChat reports whether rows of a prompt and an answer are trained as conversations.
	AsChat bool `json:"as_chat,omitempty"`
	talks  bool // rows of a format that may have texts or messages have messages
	// Warning describes what a person should look at before training; "" = nothing.
	Warning string `json:"warning,omitempty"`

	// Files is the number of files that the report covers, if there are several.
	Files  int       `json:"files,omitempty"`
	Parts  []*Report `json:"parts,omitempty"`  // Parts are the reports of the sources, if there are several.
	Weight float64   `json:"weight,omitempty"` // Weight is the weight of a source, if it is one of several or not 1.
	// Taken is the number of rows that an epoch takes from the source, including copies.
	Taken int `json:"taken,omitempty"`

	Rows      int    `json:"rows"` // Rows is the number of rows in the source.
	Kept      int    `json:"kept"`
	Dropped   []Drop `json:"dropped,omitempty"` // Dropped lists the dropped rows by reason.
	Truncated Drop   `json:"cut"`               // Truncated counts the kept rows that were truncated at max_length.
	Chunked   Drop   `json:"chunked"`           // Chunked counts the long texts that became several rows.
	Chunks    int    `json:"chunks,omitempty"`  // Chunks is the number of rows that chunking added.

	TrainedTokens int64 `json:"trained_tokens"` // TrainedTokens is the number of trained tokens of the kept rows.
	TotalTokens   int64 `json:"tokens"`         // TotalTokens is the number of tokens of the kept rows, before padding.
	// CutTokens is the number of tokens that the kept rows lost to truncation.
	CutTokens int64 `json:"cut_tokens"`
	Longest   int   `json:"longest_kept"` // Longest is the number of tokens of the longest kept row.
	// LongestRow and ShortestRow are measured before truncation, over all rows that have tokens.
	LongestRow  Extent `json:"longest"`
	ShortestRow Extent `json:"shortest"`

	// Unread lists keys of rows that nothing reads, in order of appearance, at most maxUnread of them. Null and empty
	// values do not count.
	Unread []Unread `json:"unread_keys,omitempty"`
	// UnreadMore counts occurrences of unread keys beyond those in Unread.
	UnreadMore int `json:"unread_more,omitempty"`

	Groups GroupReport `json:"groups,omitzero"` // Groups is about rows of several sequences or with a label.
	// Weighted is about rows with weights.
	Weighted WeightReport `json:"weighted,omitzero"`
	Images   ImageReport  `json:"images,omitzero"` // Images is about rows with images.
	Chat     ChatReport   `json:"conversations"`   // Chat is about formats with conversations.
	// Template describes the chat template that renders the conversations.
	Template TemplateReport `json:"template,omitzero"`

	// Duplicates counts kept rows whose tokens equal those of an earlier kept row.
	Duplicates int `json:"duplicates"`
	TrainRows  int `json:"train_rows"` // TrainRows is the number of training rows after the split.
	ValRows    int `json:"val_rows"`
	// Leaked counts validation rows whose tokens equal those of a training row.
	Leaked  int          `json:"leaked"`
	Val     *Report      `json:"val,omitempty"`     // Val is the report of ValPath.
	Batches *BatchReport `json:"batches,omitempty"` // Batches is nil before the batches are planned.
	// CacheNote says where the tokens were read from or written to; "" without a cache.
	CacheNote string `json:"cache,omitempty"`
	// Streamed says which rows of a stream the numbers cover; "" = the data is not a stream.
	Streamed string `json:"streamed,omitempty"`
}

// Extent is the length of a row.
type Extent struct {
	Tokens   int    `json:"tokens"`
	Messages int    `json:"messages,omitempty"` // messages of a conversation
	Where    string `json:"where"`              // place of the row: "data.jsonl:17"
}

func (e Extent) String() string {
	s := fmt.Sprintf("%d tokens", e.Tokens)
	if e.Messages > 0 {
		s += fmt.Sprintf(" in %d messages", e.Messages)
	}
	return s + " (" + e.Where + ")"
}

// extend updates the longest and the shortest row. Among equal rows the first counts.
func (r *Report) extend(e Extent) {
	if e.Tokens > r.LongestRow.Tokens {
		r.LongestRow = e
	}
	if e.Tokens > 0 && (r.ShortestRow.Tokens == 0 || e.Tokens < r.ShortestRow.Tokens) {
		r.ShortestRow = e
	}
}

// Drop counts the rows with one reason and names the first few.
type Drop struct {
	Reason string   `json:"reason,omitempty"`
	Count  int      `json:"count"`
	Where  []string `json:"where,omitempty"` // places of the first few: "data.jsonl:17"
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

// DroppedRows returns the number of dropped rows, whatever the reason.
func (r *Report) DroppedRows() int {
	n := 0
	for _, d := range r.Dropped {
		n += d.Count
	}
	return n
}

// count adds one row to the report; rows are added in file order.
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
	r.Weighted.count(b)
	r.Images.count(b.images)
	n := (b.to-b.from)/4 - b.tail
	r.TrainedTokens += int64(b.trained)
	r.TotalTokens += int64(n)
	for k := range len(b.borders) + 1 {
		from, to := sequenceSpan(b.borders, k, n)
		r.Longest = max(r.Longest, to-from)
	}
}

// sortDropped sorts the reasons.
func (r *Report) sortDropped() {
	slices.SortFunc(r.Dropped, func(a, b Drop) int {
		return slices.Index(dropOrder, a.Reason) - slices.Index(dropOrder, b.Reason)
	})
}

// placeless returns the report without the path of the file.
func (r *Report) placeless() *Report {
	return r.move(func(place string) string { return strings.TrimPrefix(place, r.Source) })
}

// placed returns a placeless report with the given path.
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

// describe lists which key serves which role, where the names differ.
func (f Format) describe(keys map[string]string) string {
	var parts []string
	for _, r := range f.Roles {
		if keys[r.Name] != r.Name {
			parts = append(parts, r.Name+"="+keys[r.Name])
		}
	}
	return strings.Join(parts, ", ")
}
