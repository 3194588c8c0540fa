package graph

import "slices"

// largeBatch is the least size, in bytes, of a value of the batch that is sent only where Put names it. Embeddings of
// images are larger, and most steps of a generation have none.
const largeBatch = 1 << 18

// byteRange is a half-open range of bytes of a region.
type byteRange struct{ from, to int64 }

// batchRanges returns which bytes of the batch region a Put of values sends: those of the values, and all that no large
// value has. Neighbouring ranges are joined.
func (l *inputLayout) batchRanges(names []string) (all []byteRange) {
	var left []byteRange // large values that stay as they are
	var end int64
	for _, name := range l.names {
		if l.kind[name] != Batch {
			continue
		}
		at := l.offset[name]
		value := byteRange{at, at + int64(l.typ[name].Bytes())}
		end = max(end, value.to)
		if value.to-value.from >= largeBatch && !slices.Contains(names, name) {
			left = append(left, value)
		}
	}
	slices.SortFunc(left, func(a, b byteRange) int { return int(a.from - b.from) })
	var at int64
	for _, r := range append(left, byteRange{end, end}) {
		if r.from > at {
			all = append(all, byteRange{at, r.from})
		}
		at = max(at, r.to)
	}
	return all
}
