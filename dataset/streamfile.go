package dataset

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"time"

	"github.com/tierlora/tierlora/dataset/source"
)

// streamFile is a file of a stream, or a span of its rows, in the state that it had when the run began.
type streamFile struct {
	piece
	cfg      Config // the configuration that reads the file
	size     int64
	modified time.Time
}

// find lists the files of a source. To find a slice it skips over the rows before it; Parquet files record their number
// of rows.
func (s *stream) find(from Source) ([]streamFile, error) {
	terms, err := source.ParseSplit(from.split())
	if err != nil {
		return nil, fmt.Errorf("split %w", err)
	}
	at := slashed(s.fsys, from.Path)
	if from.Folder != "" {
		at = slashed(s.fsys, from.Folder)
	}
	found, err := findFiles(s.fsys, at, from)
	if err != nil {
		return nil, fmt.Errorf("read data: %w", err)
	}
	var files []streamFile
	for _, term := range terms {
		picked, err := source.Pick(found, term.Split)
		if err != nil {
			return nil, fmt.Errorf("read data: %s: %w", from.Path, err)
		}
		pieces, err := s.slice(term, picked)
		if err != nil {
			return nil, fmt.Errorf("read data: %s: %w", from.Path, err)
		}
		for _, p := range pieces {
			f := streamFile{piece: p, cfg: s.cfg.of(from)}
			f.cfg.span = p.span
			info, err := fs.Stat(s.fsys, p.path)
			if err == nil {
				err = checkFile(p.path, info, nil)
			}
			if err != nil {
				return nil, fmt.Errorf("read data: %w", Missing(err))
			}
			f.size, f.modified = info.Size(), info.ModTime()
			files = append(files, f)
		}
	}
	return files, nil
}

// slice distributes a slice over files.
func (s *stream) slice(term source.Slice, files []source.File) ([]piece, error) {
	if counts, ok, err := s.known(files); !term.Whole() && (ok || err != nil) {
		if err != nil {
			return nil, err
		}
		total := 0
		for _, n := range counts {
			total += n
		}
		span, err := term.Span(total)
		if err != nil {
			return nil, err
		}
		return spread(files, counts, span), nil
	}
	rows := source.Span{}
	for _, end := range []struct {
		of *int
		to *int
	}{{term.From, &rows.From}, {term.To, &rows.To}} {
		if end.of == nil {
			continue
		}
		if term.Percent || *end.of < 0 {
			return nil, fmt.Errorf(
				"%s counts in percent or from the end, and dataset.streaming does not know how many rows "+
					"the files have: write rows from the start, such as %s[:1000], or give Parquet files, which say "+
					"how many they have", term, term.Split)
		}
		*end.to = *end.of
	}
	if term.To != nil && rows.To <= rows.From {
		return nil, fmt.Errorf("%s has no row", term)
	}
	var pieces []piece
	for i, f := range files {
		span := source.Span{From: max(rows.From, 0), To: rows.To}
		n := 0
		if last := i == len(files)-1; !last && (rows.From > 0 || rows.To > 0) {
			var err error
			if n, err = s.cfg.countUpTo(s.ctx, f.Path, openIn(s.fsys), max(rows.From+1, rows.To)); err != nil {
				return nil, err
			}
		}
		if n == 0 || n > span.From {
			pieces = append(pieces, piece{f.Path, span})
		}
		rows.From = max(rows.From-n, 0)
		if term.To == nil {
			continue
		}
		if rows.To -= n; rows.To <= 0 {
			break
		}
	}
	if pieces == nil {
		return nil, fmt.Errorf("%s has no row", term)
	}
	return pieces, nil
}

// known returns the number of rows of each file, if all files record it.
func (s *stream) known(files []source.File) (counts map[string]int, ok bool, err error) {
	counts = map[string]int{}
	for _, f := range files {
		if ext := path.Ext(f.Path); ext != ".parquet" && ext != ".arrow" {
			return nil, false, nil
		}
		if counts[f.Path], err = s.cfg.countRows(s.ctx, f.Path, openIn(s.fsys)); err != nil {
			return nil, false, err
		}
	}
	return counts, true, nil
}

// unchanged returns an error if a file has changed since the run began.
func (s *stream) unchanged(f streamFile) error {
	info, err := fs.Stat(s.fsys, f.path)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: it was there when the run began: %w", f.path, err)
	case info.Size() != f.size:
		return fmt.Errorf("read %s: the file has changed while it was streamed: it had %d bytes, now it has %d", f.path,
			f.size, info.Size())
	case !info.ModTime().Equal(f.modified):
		return fmt.Errorf("read %s: the file has changed while it was streamed: it was of %s, now it is of %s", f.path,
			f.modified.UTC().Format(time.RFC3339Nano), info.ModTime().UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// over adds name and size of a completely read file to a checksum.
func (f streamFile) over(sum uint32) uint32 {
	return crc32.Update(sum, castagnoli, fmt.Appendf(nil, "%q %d %v\n", path.Base(f.path), f.size, f.span))
}

// errNotAsBefore returns the error of a cursor whose earlier rows have changed.
func (f streamFile) errNotAsBefore(row int) error {
	return fmt.Errorf("%s: the rows before row %d, or the files before it, are not what they were: give the run its "+
		"old data back", f.path, row+1)
}

// seek skips over the rows before a place without tokenising them, and compares them with what was read before. It
// returns the checksum over these rows and their number of bytes.
func (l *loading) seek(ctx context.Context, in *source.Reader, f streamFile, to StreamState,
	sum uint32) (_ uint32, bytes int64, err error) {
	l.meter = newMeter(l.cfg.Progress)
	l.meter.begin("reading up to the checkpoint's row in", f.path, f.size)
	defer func() {
		l.meter.end()
		l.meter = newMeter(nil)
	}()
	for ; l.index < to.Row; l.index++ {
		raw, err := in.Next()
		if err == nil && l.keys == nil {
			err = l.begin(raw, l.index)
		}
		var row *source.RowError
		switch {
		case err == nil || errors.As(err, &row):
		case isEnd(err):
			return 0, 0, f.errNotAsBefore(to.Row)
		case ctx.Err() != nil:
			return 0, 0, fmt.Errorf("read %s: %w", f.path, ctx.Err())
		default:
			return 0, 0, fmt.Errorf("read %s, line %d: %w", f.path, in.Line(), err)
		}
		if err == nil {
			sum = crc32.Update(sum, castagnoli, raw.Data)
			bytes += int64(len(raw.Data))
			l.meter.done(len(raw.Data))
		}
	}
	if sum != to.Sum {
		return 0, 0, f.errNotAsBefore(to.Row)
	}
	return sum, bytes, nil
}
