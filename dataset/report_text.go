package dataset

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// String returns the report for a log: a line that names the data, then lines of the form "topic: text".
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

// writeParts writes a block for each source.
func (r *Report) writeParts(b *strings.Builder, title string) {
	for i, p := range r.Parts {
		b.WriteString("\n")
		p.write(b, fmt.Sprintf("%s %d", title, i))
	}
}

func (r *Report) write(b *strings.Builder, title string) {
	fmt.Fprintf(b, "%s: %s", title, r.Source)
	if r.Streamed == "" {
		fmt.Fprintf(b, " (sha256 %.12s)", r.SHA256)
	}
	fmt.Fprintf(b, ", format %s", r.Format)
	if r.Detected {
		b.WriteString(", found from the keys of the first row")
	}
	if r.AsChat {
		b.WriteString(", trained as conversations")
	}
	if r.Files > 1 && r.Parts == nil {
		fmt.Fprintf(b, ", %d files", r.Files)
	}
	if r.Fields != "" {
		fmt.Fprintf(b, " (%s)", r.Fields)
	}
	line := func(format string, args ...any) { fmt.Fprintf(b, "\n  "+format, args...) }
	if r.Warning != "" {
		line("warning: %s", r.Warning)
	}
	if r.Streamed != "" {
		line("streaming: %s", r.Streamed)
	}
	r.writeRows(b, line)
	if keys := r.KeysNotRead(); keys != "" {
		line("keys not read: %s", keys)
	}
	share := 0.0
	if r.TotalTokens > 0 {
		share = 100 * float64(r.TrainedTokens) / float64(r.TotalTokens)
	}
	line("tokens: %d, trained %d (%.1f%%), longest row %d", r.TotalTokens, r.TrainedTokens, share, r.Longest)
	if r.LongestRow.Tokens > r.ShortestRow.Tokens {
		line("longest: %v; shortest: %v", r.LongestRow, r.ShortestRow)
	}
	r.Groups.write(line)
	r.Weighted.write(line)
	if n := r.Images; n.Count > 0 {
		line("images: %d in %d rows; their embeddings stand in the places of %d tokens (%.1f%%)", n.Count, n.Rows,
			n.Tokens, 100*float64(n.Tokens)/float64(max(r.TotalTokens, 1)))
	}
	r.Chat.write(line)
	if t := r.Template; t.Name != "" {
		line("template: %v", t)
	}
	if r.Trained != "" {
		line("trained: %s", r.Trained)
	}
	if r.Duplicates > 0 {
		line("duplicates: %d rows have the tokens of an earlier row", r.Duplicates)
	}
	if r.Leaked > 0 {
		line("warning: %s", r.leak())
	}
	if r.Batches != nil {
		line("batches: %v", r.Batches)
	}
	if r.CacheNote != "" {
		line("cache: %s", r.CacheNote)
	}
}

// writeRows writes what became of the rows.
func (r *Report) writeRows(b *strings.Builder, line func(format string, args ...any)) {
	line("rows: %d read, %d kept, %d dropped", r.Rows, r.Kept, r.DroppedRows())
	if r.Val == nil && r.ValRows > 0 {
		fmt.Fprintf(b, "; %d to train on, %d held out", r.TrainRows, r.ValRows)
	}
	if r.Weight != 0 {
		fmt.Fprintf(b, "; weight %v takes %d an epoch", r.Weight, r.Taken)
	}
	for _, d := range r.Dropped {
		line("dropped: %d because %s (%s)", d.Count, d.Reason, d.places())
	}
	if t := r.Truncated; t.Count > 0 {
		line("cut: %d at max_length, %d tokens lost (%s)", t.Count, r.CutTokens, t.places())
	}
	if c := r.Chunked; c.Count > 0 {
		line("chunked: %d texts longer than max_length became %d rows (%s)", c.Count, c.Count+r.Chunks, c.places())
	}
}

func (c *ChatReport) write(line func(format string, args ...any)) {
	if c.Conversations == 0 {
		return
	}
	line("conversations: %d, turns trained %d", c.Conversations, c.Turns)
	if c.System != "" {
		line("system: %s, in every conversation", strconv.Quote(words.Clip(c.System, 80)))
	}
	if c.Broken > 0 {
		line("no end: %d rows are cut at max_length in the middle of their first turn, so its end is not trained "+
			"(on_truncated: drop leaves them out)", c.Broken)
	}
	if c.Split > 0 {
		line("split: %d conversations became %d rows, because the template writes earlier turns otherwise", c.Split,
			c.SplitRows)
	}
	if c.Across > 0 {
		line("loss mask: %d tokens straddle the boundary of a trained turn and are trained", c.Across)
	}
	if c.Other > 0 {
		line("prompts: %d turns begin otherwise than the template's prompt for them, which opens a reasoning", c.Other)
	}
	if c.Left > 0 {
		line("left out: the template does not write %d texts or calls of messages", c.Left)
	}
	if c.Tools > 0 {
		line("tools: the template does not write %s of %s: the model is not told of them (dataset.chat_template "+
			"names a template that does)",
			words.Counted(c.Tools, "tool"), words.Counted(c.Toolless, "conversation"))
	}
	if c.Plain > 0 {
		line("special tokens: %d inside the messages of %d rows, read as plain text%s", c.Plain, c.PlainRows, c.which())
	}
	if c.Special > 0 {
		line("special tokens: %d inside messages, allowed by allow_special%s", c.Special, c.which())
	}
}

// which lists the special tokens inside messages: ": <|im_end|> in 2 rows, …".
func (c *ChatReport) which() string {
	var parts []string
	for i, f := range c.Found {
		if i == shownRows {
			parts = append(parts, "…")
			break
		}
		rows := "rows"
		if f.Rows == 1 {
			rows = "row"
		}
		parts = append(parts, fmt.Sprintf("%s in %d %s", f.Token, f.Rows, rows))
	}
	if parts == nil {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// Brief returns a summary in one line, and a line for each warning.
func (r *Report) Brief() []string {
	var b strings.Builder
	fmt.Fprintf(&b, "data     %s", r.Source)
	if r.Streamed != "" {
		b.WriteString(", streamed")
	} else {
		rows := r.Kept
		if r.Val == nil {
			rows -= r.ValRows
		}
		fmt.Fprintf(&b, ", %s rows", words.Count(rows))
		if n := r.ValRows; n > 0 {
			fmt.Fprintf(&b, " and %s for validation", words.Count(n))
		}
	}
	if r.TotalTokens > 0 {
		fmt.Fprintf(&b, ", %s tokens, %.1f%% trained", words.Count(r.TotalTokens),
			100*float64(r.TrainedTokens)/float64(r.TotalTokens))
	}
	if n := r.DroppedRows(); n > 0 {
		fmt.Fprintf(&b, ", %s dropped", words.Count(n))
	}
	if n := r.Truncated.Count; n > 0 {
		fmt.Fprintf(&b, ", %s cut", words.Count(n))
	}
	lines := []string{b.String()}
	for _, warning := range r.Warnings() {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}
