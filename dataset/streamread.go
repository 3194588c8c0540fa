package dataset

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/words"
)

// streamReader reads a stream from a given place on, epoch after epoch, and emits one window after the other until emit
// fails.
type streamReader struct {
	*stream
	opt         Options
	most, vocab int
	at          start // place of the next window
	emit        func(*stretch) error

	rows    heldRows // rows that were read and not yet emitted
	grown   int      // factor by which the window is larger than usual, because a batch needs more rows
	reports []*Report
	from    StreamState // place where reading of the epoch began
	index   int         // number of the row that was kept last
	part    int         // its number among the rows made from that row
}

func (r *streamReader) run(ctx context.Context) error {
	for {
		if err := r.epoch(ctx); err != nil {
			return err
		}
	}
}

// epoch reads the files from r.at on and emits the last window of the epoch.
func (r *streamReader) epoch(ctx context.Context) error {
	r.from, r.reports, r.grown = r.at.in, nil, 1
	if from := r.from; from.File < 0 || from.File >= len(r.files) || from.Row < 0 || from.Part < 0 || from.Window < 0 {
		return fmt.Errorf("window %d at row %d of file %d does not exist: there are %d files", from.Window, from.Row,
			from.File, len(r.files))
	}
	sum, passed := uint32(0), int64(0)
	for i, f := range r.files {
		if i >= r.from.File {
			if err := r.file(ctx, i, sum, passed); err != nil {
				return err
			}
		}
		sum, passed = f.over(sum), passed+f.size
	}
	if len(r.rows.rows) == 0 && r.at.in == r.from {
		report := r.sumUp()
		return report.noRow()
	}
	for len(r.rows.rows) > 0 {
		if err := r.deal(true); err != nil {
			return err
		}
	}
	return nil
}

// file reads one file. sum and passed are the checksum and the size of the files before it.
func (r *streamReader) file(ctx context.Context, number int, sum uint32, passed int64) error {
	f := r.files[number]
	if err := r.unchanged(f); err != nil {
		return err
	}
	file, err := openIn(r.fsys)(f.path)
	if err != nil {
		return fmt.Errorf("read data: %w", err)
	}
	defer file.Close()
	o := f.cfg.reading(ctx, f.path, file)
	o.Leave = true
	in := source.NewReader(contextReader{ctx, file}, o)
	defer in.Close()
	l := &loading{cfg: f.cfg, path: f.path, tok: r.tok, report: newReport(f.path), meter: newMeter(nil),
		index: f.span.From}
	r.reports, r.index = append(r.reports, l.report), -1
	bytes := int64(0)
	skip := StreamState{Row: -1}
	if number == r.from.File && r.from != (StreamState{}) {
		skip = r.from
		if sum, bytes, err = l.seek(ctx, in, f, skip, sum); err != nil {
			return err
		}
	}
	places := places{file: number, sum: sum, before: passed + bytes, end: passed + f.size, size: r.size}
	l.keep = func(b *booked, words []byte) error { return r.keep(l, b, words, &places, skip) }
	err = l.pass(ctx, in, f.cfg.workers(), func(c *chunk) error {
		places.over(c)
		if err := l.book(c); err != nil {
			return err
		}
		if l.broken > 0 {
			return errBroken
		}
		return r.deal(false)
	})
	switch changed := r.unchanged(f); {
	case errors.Is(err, errEnough) || ctx.Err() != nil:
		return err
	case changed != nil:
		return changed
	case err == nil && l.index == f.span.From:
		return fmt.Errorf("%s: the file holds no row", f.path)
	}
	return err
}

// places computes the place in the stream of each row of a chunk.
type places struct {
	file, first  int
	sum          uint32
	before, end  int64 // bytes of the epoch before the next row, and before the file's end
	size         int64 // bytes of an epoch
	sums         []uint32
	bytesToThere []int64
}

// over advances over the rows of a chunk.
func (p *places) over(c *chunk) {
	p.first, p.sums, p.bytesToThere = c.first, p.sums[:0], p.bytesToThere[:0]
	for _, raw := range c.rows {
		p.sums, p.bytesToThere = append(p.sums, p.sum), append(p.bytesToThere, p.before)
		data := c.data[raw.from:raw.to]
		p.sum, p.before = crc32.Update(p.sum, castagnoli, data), p.before+int64(len(data))
	}
}

// part returns the fraction of the epoch before a row. Compressed rows count at most as much as their file.
func (p *places) part(index int) float64 {
	return float64(min(p.bytesToThere[index-p.first], p.end)) / float64(max(p.size, 1))
}

// keep adds a row that is to be trained on.
func (r *streamReader) keep(l *loading, b *booked, rowWords []byte, p *places, skip StreamState) error {
	if r.part++; b.index != r.index {
		r.index, r.part = b.index, 0
	}
	if b.index == skip.Row && r.part < skip.Part {
		return nil
	}
	at := place(l.path, b.line, b.index)
	if r.vocab > 0 && int(b.maxID) >= r.vocab {
		return fmt.Errorf("%s: token id %d, the model knows 0 to %d: tokenizer and model do not belong together", at,
			b.maxID,
			r.vocab-1)
	}
	if n := len(b.borders) + 1; r.opt.Group > 0 && n > r.opt.Group {
		const text = "%s: the row has %s, and the first rows of the stream have at most %d: " +
			"name a file of the larger rows first"
		return fmt.Errorf(text, at, words.Counted(n, "sequence"), r.opt.Group)
	}
	l.report.Kept++
	r.rows.add(heldRow{
		trained: b.trained, borders: b.borders, desirable: b.desirable, weights: b.weights, targets: b.targets,
		index: b.index, line: b.line, hash: b.hash, source: l.path, before: p.part(b.index),
		at: StreamState{File: p.file, Row: b.index, Part: r.part, Sum: p.sums[b.index-p.first]},
	}, rowWords)
	return nil
}

// deal emits the windows that are complete. The last window of an epoch must be marked as the last, so deal waits for
// one more row unless the epoch has ended.
func (r *streamReader) deal(end bool) error {
	for {
		n := r.window(end)
		if n == 0 {
			return nil
		}
		if err := r.emit(r.take(n, end && n == len(r.rows.rows))); err != nil {
			return err
		}
		r.grown = 1
	}
}

// window returns the number of rows of the next window, 0 if there are not enough rows yet: packWindow rows, or as many
// as have streamTokens tokens, or more if a batch needs more. Of these it takes as many as fill whole batches, so that
// only the last batch of an epoch may be smaller.
func (r *streamReader) window(end bool) int {
	have := len(r.rows.rows)
	for {
		enough := sort.Search(have, func(i int) bool { return r.rows.rows[i].end >= r.grown*streamTokens }) + 1
		n := min(r.grown*packWindow, enough)
		if n >= have {
			if end {
				return have
			}
			return 0
		}
		sequences := r.sequences(n)
		if sequences < r.opt.BatchSize {
			r.grown++
			continue
		}
		over := sequences % r.opt.BatchSize
		switch {
		case over == 0:
			return n
		case !r.opt.Packing:
			return n - over
		}
		return max(sort.Search(n, func(fewer int) bool { return r.sequences(fewer) > sequences-over })-1, 1)
	}
}

// sequences returns how many sequences the first n rows make.
func (r *streamReader) sequences(n int) int {
	if !r.opt.Packing || n == 0 {
		return n
	}
	return pack(r.rows, upTo(n), r.opt.T, r.most, r.opt.Group, n).len()
}

// take makes a window of the first n rows.
func (r *streamReader) take(n int, last bool) *stretch {
	window, rest := r.rows.cut(n)
	s := &stretch{
		start: r.at, rows: window, tokens: window.tokens(), next: start{epoch: r.at.epoch + 1}, to: 1,
		dealt: r.opt.order(window, r.most, n,
			newRandom(r.opt.Seed, streamOrder, uint64(r.at.epoch), uint64(r.at.in.Window))),
	}
	if r.at.in.Window > 0 {
		s.from = window.rows[0].before
	}
	if last {
		s.ended = r.total()
	} else {
		s.next = start{r.at.epoch, rest.rows[0].at}
		s.next.in.Window, s.to = r.at.in.Window+1, rest.rows[0].before
	}
	r.rows, r.at = rest, s.next
	return s
}

// total returns a function that reports the numbers of the epoch that was read.
func (r *streamReader) total() func() {
	report, epoch := r.sumUp(), r.at.epoch+1
	report.Streamed = "these are all rows of an epoch"
	if r.from != (StreamState{}) {
		report.Streamed = "these are the rows of an epoch that were read since the run was resumed"
	}
	return func() {
		if r.cfg.EndOfEpoch != nil {
			r.cfg.EndOfEpoch(epoch, report)
		}
	}
}

// sumUp returns the report of the epoch that was read.
func (r *streamReader) sumUp() *Report {
	report := *joinReports(r.reports, nil)
	report.SHA256, report.Source, report.TrainRows = "", r.cfg.Title(), report.Kept
	report.sortDropped()
	return &report
}
