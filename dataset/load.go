package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/dataset/source"
)

// shownErrors is how many malformed rows one error lists.
const shownErrors = 5

// loadSource reads one file: from the cache if the same content was tokenised before with the same tokenizer and
// settings, else row by row on all cores.
func loadSource(ctx context.Context, cfg Config, path string, tok Tokenizer, open opener) (Rows, *Report, error) {
	if cfg.inMemory() {
		return loadInMemory(ctx, cfg, path, tok, open)
	}
	f, err := open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read data: %w", Missing(err))
	}
	defer func() { f.Close() }()
	cache := openCache(ctx, cfg, path, tok, open, f)
	defer cache.close()
	if cache.found == nil {
		err = cache.claim(ctx, path, sizeOf(f), cfg.workers())
	}
	if err != nil || cache.found != nil {
		return found(cache.found), cache.report, err
	}
	rows, report, err := tokenise(ctx, cfg, path, tok, f, cache)
	if lost := (*writeError)(nil); errors.As(err, &lost) && lost.small && cache.part != nil {
		cache.giveUp(lost)
		f.Close()
		if f, err = open(path); err != nil {
			return nil, nil, fmt.Errorf("read data: %w", err)
		}
		rows, report, err = tokenise(ctx, cfg, path, tok, f, cache)
	}
	return found(rows), report, err
}

// found returns the store as Rows, and nil Rows for a nil store.
func found(s *store) Rows {
	if s == nil {
		return nil
	}
	return s
}

// tokenise reads a file and writes its tokens to the cache's partial file, or without a cache to memory.
func tokenise(ctx context.Context, cfg Config, path string, tok Tokenizer, f io.Reader,
	cache *tokenCache) (*store, *Report, error) {
	out, err := newStoreWriter(cache.part, cache.dir)
	if err != nil {
		return nil, nil, out.explain(path, err)
	}
	if cfg.Streaming {
		out.stayInMemory()
	}
	defer out.close()
	cache.meter.begin("tokenising", path, sizeOf(f))
	hashed := newHashReader(cache.meter.reader(f))
	s := loading{cfg: cfg, path: path, tok: tok, report: newReport(path), keep: out.add, meter: cache.meter}
	if err := s.read(ctx, contextReader{ctx, hashed}, f, cfg.workers()); err != nil {
		return nil, s.report, out.explain(path, err)
	}
	s.report.SHA256 = hashed.sum()
	if out.head.Rows == 0 {
		return nil, s.report, s.report.noRow()
	}
	rows, err := out.finish(s.report, path)
	if err != nil {
		return nil, s.report, out.explain(path, err)
	}
	s.report.CacheNote = cache.publish(rows, out.sums.sums)
	return rows, s.report, nil
}

// loading is the state of reading one file.
type loading struct {
	cfg    Config
	path   string
	tok    Tokenizer
	format Format
	keys   map[string]string
	reads  []string // keys of the file that fields of the format are read from
	report *Report
	keep   func(r *booked, words []byte) error
	meter  *meter

	index    int // index of the next row to be booked
	problems []string
	broken   int
}

// read tokenises the file for s.keep and books every row in s.report.
func (s *loading) read(ctx context.Context, r, f io.Reader, workers int) error {
	in := source.NewReader(r, s.cfg.reading(ctx, s.path, f))
	defer in.Close()
	s.index = s.cfg.span.From
	if err := s.pass(ctx, in, workers, s.book); err != nil {
		return err
	}
	if s.index == s.cfg.span.From {
		return fmt.Errorf("%s: the file holds no row", s.path)
	}
	s.report.sortDropped()
	return nil
}

// noRowError is the error of a file or source whose rows were all dropped.
type noRowError struct{ source, why string }

func (e *noRowError) Error() string { return e.source + ": no row is left to train on, " + e.why }

// validation returns the error with wording for validation rows.
func (e *noRowError) validation() error {
	return fmt.Errorf("%s: no validation row is left, %s; name other validation rows, or none", e.source, e.why)
}

// noRow returns the error that a source has nothing to train on, or nil.
func (r *Report) noRow() error {
	remedy := ""
	if slices.ContainsFunc(r.Dropped, func(d Drop) bool { return d.Reason == dropCutAnswer || d.Reason == dropCut }) {
		remedy = "; raise dataset.max_length, or shorten the rows"
	}
	return &noRowError{r.Source, fmt.Sprintf("all %d were dropped: %s%s", r.Rows, r.dropList(), remedy)}
}

// pass hands the rows from s.index on to take, chunk by chunk.
func (s *loading) pass(ctx context.Context, in *source.Reader, workers int, take func(*chunk) error) error {
	p := &pipeline{rows: in, begin: s.begin, ready: func() bool { return s.keys != nil }, encode: s.encode,
		first: s.index}
	err := p.run(ctx, workers, take)
	switch {
	case errors.Is(err, errBroken) || s.broken > 0 && (err == nil || isEnd(err)):
		return s.fail()
	case err == nil || isEnd(err):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("read %s: %w", s.path, ctx.Err())
	}
	return err
}

// errBroken ends the reading; s.problems holds the reasons.
var errBroken = errors.New("broken file")

// book takes the chunks in the order of the file.
func (s *loading) book(c *chunk) error {
	for i := range c.booked {
		r := &c.booked[i]
		if !r.more {
			s.index++
		}
		if r.err != nil {
			var row *source.RowError
			errors.As(r.err, &row)
			s.problem(place(s.path, row.Line, r.index), row.Error())
		}
		if s.broken > 0 {
			continue // reading on only finds further problems
		}
		s.report.count(r, s.path)
		if r.drop != "" {
			continue
		}
		if err := s.keep(r, c.words[r.from:r.to]); err != nil {
			return err
		}
	}
	s.advise()
	s.meter.rows(s.index)
	var file *source.FileError
	switch {
	case c.end == nil || isEnd(c.end):
		return nil
	case errors.As(c.end, &file):
		where := s.path
		if file.Line > 0 {
			where = fmt.Sprintf("%s:%d", s.path, file.Line)
		}
		s.problem(where, file.Error())
		return errBroken
	}
	return fmt.Errorf("read %s, line %d: %w", s.path, c.line, c.end)
}

// begin looks at rows until the first well-formed one, which decides the format. Its errors are *source.FileError.
func (s *loading) begin(raw source.Row, index int) error {
	o, err := parseRow(raw.Data)
	if err == nil {
		err = s.chooseFormat(o)
	} else if syntax := (*syntaxError)(nil); !errors.As(err, &syntax) || !syntax.cutOff || index > 0 {
		return nil // encode reports the error
	} else {
		err = errors.New("the first row ends in the middle of its JSON: want JSONL (a whole object on one line) or a " +
			"JSON list of objects")
	}
	if err != nil {
		return &source.FileError{Line: raw.Line, Text: err.Error()}
	}
	return nil
}

// encode parses, renders and tokenises one row. It is safe for concurrent use.
func (s *loading) encode(raw source.Row, b *buffers) (encoded, error) {
	if s.cfg.look != nil && !s.cfg.look.wants(s.path, raw.Line) {
		return unseen(), nil
	}
	o, err := parseRow(raw.Data)
	if err != nil {
		if syntax := (*syntaxError)(nil); errors.As(err, &syntax) {
			err = &source.RowError{Line: raw.Line + bytes.Count(raw.Data[:syntax.offset], []byte("\n")), Err: err}
		}
		return encoded{}, err
	}
	if err := s.checkFields(o); err != nil {
		return encoded{}, err
	}
	fields := s.fields(o)
	ex, err := s.format.Render(fields, s.cfg)
	if err != nil {
		return encoded{}, err
	}
	if err := s.weigh(&ex, o); err != nil {
		return encoded{}, err
	}
	if ex.Conversation != nil {
		ex.Conversation.GiveSystem(s.cfg.System)
	}
	if ex.Conversation != nil && s.cfg.Images != nil {
		if ex.Images, err = readImages(ex.Conversation, s.cfg.Images, s.path); err != nil {
			return encoded{}, err
		}
	}
	if ex.Completions != nil {
		for _, talk := range ex.Completions.Talks {
			talk.GiveSystem(s.cfg.System)
		}
	}
	if s.cfg.look != nil {
		return unseen(), s.cfg.look.take(s.path, raw.Line, ex, s.tok, s.cfg)
	}
	if s.cfg.Prompts && ex.Empty == "" {
		e, err := promptOf(ex, s.tok, s.cfg, b)
		e.columns = slices.Clone(raw.Data)
		return e, err
	}
	e, err := encode(ex, s.tok, s.cfg, b)
	e.unread = s.unread(fields, ex.Unused)
	return e, err
}

// chooseFormat fixes the format and the keys by the first row; later rows must have the same keys.
func (s *loading) chooseFormat(o Object) error {
	name := s.cfg.Format
	if name == "" || name == FormatAuto {
		var err error
		if _, missing := prompts.bind(o, s.cfg.Fields); s.cfg.Prompts && missing == "" {
			name = FormatPrompts
		} else if name, err = detect(o, s.cfg); err != nil {
			return err
		}
	}
	var err error
	if s.format, err = s.cfg.settle(name); err != nil {
		return err
	}
	s.keys, _ = s.format.bind(o, s.cfg.Fields)
	if talks := s.format.Talks; talks != nil && !s.format.Chat && talks(Fields{row: o, keys: s.keys}) {
		s.format, s.report.talks = s.format.asConversations(), true
	}
	if s.format.Chat {
		if _, err := s.cfg.chat.open(); err != nil {
			return err
		}
	}
	if missing := s.checkFields(o); missing == nil && s.format.Fits != nil &&
		!s.format.Fits(Fields{row: o, keys: s.keys}) {
		return errors.New(s.format.Other)
	}
	s.reads = slices.Collect(maps.Values(s.keys))
	if s.cfg.Weights {
		s.reads = append(s.reads, weightKey)
	}
	s.report.Format, s.report.Fields, s.report.Detected = name, s.format.describe(s.keys), name != s.cfg.Format
	return nil
}

// checkFields returns an error for the first required field that is missing or null.
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
		if role.Advice != "" && s.cfg.Fields[role.Name] == "" {
			return fmt.Errorf("field %q is missing; the row has %s: %s", key, o.keyList(), role.Advice)
		}
		return fmt.Errorf("field %q is missing; the row has %s: dataset.fields says which keys are read, and rows of "+
			"one source have one format", key, o.keyList())
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

// fail makes one error of all problems found.
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

// contextReaderAt is contextReader for random access.
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
