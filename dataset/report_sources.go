package dataset

import (
	"fmt"
	"slices"
	"strings"
)

// add sums up another report's numbers; duplicates are counted over all rows later.
func (r *Report) add(o *Report) {
	r.Rows, r.Kept, r.Chunks = r.Rows+o.Rows, r.Kept+o.Kept, r.Chunks+o.Chunks
	r.TrainedTokens, r.TotalTokens, r.CutTokens = r.TrainedTokens+o.TrainedTokens, r.TotalTokens+o.TotalTokens, r.CutTokens+o.CutTokens
	r.Longest = max(r.Longest, o.Longest)
	r.extend(o.LongestRow)
	r.extend(o.ShortestRow)
	r.addUnread(o)
	r.Chat.add(o.Chat)
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

// countDuplicates counts the rows whose tokens an earlier one has, where several files make the rows.
func (r *Report) countDuplicates(rows Rows) {
	if r.Files < 2 {
		return
	}
	r.Duplicates = duplicates(rows)
}

// Untrainable says why no run can use the rows, for each of their formats that is of that kind.
func (r *Report) Untrainable() (reasons []string) {
	for _, name := range formatNames() {
		if why := Formats[name].Untrainable; why != "" && slices.Contains(strings.Split(r.Format, ", "), name) {
			reasons = append(reasons, why)
		}
	}
	return reasons
}
