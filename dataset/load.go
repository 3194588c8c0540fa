package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tierlora/tierlora/dataset/source"
)

// shownErrors is how many malformed rows one error lists.
const shownErrors = 5

// loadSource reads one file, from the cache if its content was tokenised before with the same tokenizer and settings.
func loadSource(ctx context.Context, cfg Config, path string, tok Tokenizer, open opener) ([]Row, *Report, error) {
	cache, hit := openCache(ctx, cfg, path, tok, open)
	if hit != nil {
		return hit.rows, hit.report, nil
	}
	f, err := open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read data: %w", err)
	}
	defer f.Close()
	hashed := newHashReader(f)
	s := loading{cfg: cfg, path: path, tok: tok, report: newReport(path)}
	if err := s.read(ctx, contextReader{ctx, hashed}, f); err != nil {
		return nil, s.report, err
	}
	s.report.SHA256 = hashed.sum()
	s.report.CacheNote = cache.store(s.report.SHA256, s.rows, s.report)
	return s.rows, s.report, nil
}

// loading is the state of reading one file.
type loading struct {
	cfg    Config
	path   string
	tok    Tokenizer
	format Format
	keys   map[string]string
	rows   []Row
	report *Report

	buffers buffers

	index    int // of the row at hand
	problems []string
	broken   int
}

func (s *loading) read(ctx context.Context, r, f io.Reader) error {
	in := source.NewReader(r, s.cfg.reading(ctx, s.path, f))
	s.index = s.cfg.span.From
	for {
		raw, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.add(raw)
		}
		var row *source.RowError
		var file *source.FileError
		switch {
		case err == nil:
			s.index++
		case errors.As(err, &row):
			s.problem(place(s.path, row.Line, s.index), row.Error())
			s.index++
		case errors.As(err, &file):
			where := s.path
			if file.Line > 0 {
				where = fmt.Sprintf("%s:%d", s.path, file.Line)
			}
			s.problem(where, file.Error())
			return s.fail()
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("read %s: %w", s.path, err)
		default:
			return fmt.Errorf("read %s, line %d: %w", s.path, in.Line(), err)
		}
	}
	if s.broken > 0 {
		return s.fail()
	}
	if s.index == s.cfg.span.From {
		return fmt.Errorf("%s: the file holds no row", s.path)
	}
	s.report.finish(s.rows)
	if len(s.rows) == 0 {
		return fmt.Errorf("%s: no row is left to train on, all %d were dropped: %s", s.path, s.report.Rows, s.report.dropList())
	}
	return nil
}

// add parses, renders and encodes one row. Its errors are *source.RowError but for an unknown format.
func (s *loading) add(raw source.Row) error {
	fail := func(err error) error { return &source.RowError{Line: raw.Line, Err: err} }
	o, err := parseObject(raw.Data)
	if err != nil {
		var syntax *syntaxError
		if errors.As(err, &syntax) {
			if syntax.cutOff && s.index == 0 {
				return &source.FileError{Line: raw.Line, Text: "the first row ends in the middle of its JSON: want JSONL (a whole object on one line) or a JSON list of objects"}
			}
			return &source.RowError{Line: raw.Line + strings.Count(string(raw.Data[:syntax.offset]), "\n"), Err: err}
		}
		return fail(err)
	}
	if s.keys == nil {
		if err := s.chooseFormat(o); err != nil {
			return &source.FileError{Line: raw.Line, Text: err.Error()}
		}
	}
	if err := s.checkFields(o); err != nil {
		return fail(err)
	}
	ex, err := s.format.Render(Fields{row: o, keys: s.keys}, s.cfg)
	if err != nil {
		return fail(err)
	}
	e, err := encode(ex, s.tok, s.cfg, &s.buffers)
	if err != nil {
		return fail(err)
	}
	if s.broken > 0 {
		return nil // only looking for more problems
	}
	s.report.count(e, place(s.path, raw.Line, s.index))
	for _, part := range e.rows() {
		ids, labels := newRow(len(part.ids))
		copy(ids, part.ids)
		copy(labels, part.labels)
		s.rows = append(s.rows, Row{IDs: ids, Labels: labels, Index: s.index, Line: raw.Line, Source: s.path})
	}
	return nil
}

// newRow gives a row's ids and labels in one piece of memory of just their size.
func newRow(n int) (ids, labels []int32) {
	both := make([]int32, 2*n)
	return both[:n:n], both[n:]
}

// chooseFormat fixes the format and the keys by the first row; later rows must have the same keys.
func (s *loading) chooseFormat(o Object) error {
	name := s.cfg.Format
	if name == "" || name == FormatAuto {
		var err error
		if name, err = detect(o, s.cfg); err != nil {
			return err
		}
		if problems := s.cfg.validateUse(name, Formats[name]); len(problems) > 0 {
			return joinProblems(problems)
		}
	}
	s.format = Formats[name]
	s.keys, _ = s.format.bind(o, s.cfg.Fields)
	s.report.Format, s.report.Fields = name, s.format.describe(s.keys)
	return nil
}

// checkFields names the first required field that is missing or null.
func (s *loading) checkFields(o Object) error {
	for _, role := range s.format.Roles {
		key := s.keys[role.Name]
		if role.Optional || o.Has(key) {
			continue
		}
		if _, null := o.lookup(key); null {
			return fmt.Errorf("field %q is null", key)
		}
		if near, ok := nearest(key, o.keys); ok {
			return fmt.Errorf("field %q is missing; the nearest key of the row is %q", key, near)
		}
		return fmt.Errorf("field %q is missing; the row has %s", key, o.keyList())
	}
	return nil
}

func (s *loading) problem(where, text string) {
	s.broken++
	if len(s.problems) == shownErrors {
		return
	}
	s.problems = append(s.problems, where+": "+text)
}

// fail makes one error of the problems found.
func (s *loading) fail() error {
	text := strings.Join(s.problems, "\n")
	if more := s.broken - len(s.problems); more > 0 {
		text += fmt.Sprintf("\n%s: %d more rows are malformed", s.path, more)
	}
	return errors.New(text)
}

// contextReader stops a long read when the run is interrupted.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// contextReaderAt is contextReader for a file that is read at any place.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
}

func (c contextReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.ReadAt(p, at)
}
