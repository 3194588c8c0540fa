package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/words"
)

// streamTokens is how many tokens end a window of a stream that has fewer than packWindow rows: 64 MB of memory.
const streamTokens = 16 << 20

// StreamState is the place in a stream where a window begins.
type StreamState struct {
	Window int `json:"window"`         // number of the window in the epoch
	File   int `json:"file"`           // number of the file, in the order of the data
	Row    int `json:"row"`            // number of the row in the file
	Part   int `json:"part,omitempty"` // rows made from that row that lie before the window
	// CRC-32C of the file's rows before the window, and of name and size of the files before
	Sum uint32 `json:"sum"`
}

// stream is data that is read and tokenised during training. Its fields do not change while it is read.
type stream struct {
	ctx   context.Context // cancels all reading
	cfg   Config
	tok   Tokenizer
	fsys  fs.FS
	files []streamFile
	size  int64 // size of all files in bytes
	first heldRows
	sum   string // digest that a restored State must match
}

// openStream finds the files and reads their first window, by which a run is planned.
func openStream(ctx context.Context, cfg Config, tok Tokenizer, fsys fs.FS) (*stream, *Report, error) {
	s := &stream{ctx: ctx, cfg: cfg, tok: tok, fsys: fsys}
	for _, from := range cfg.training() {
		files, err := s.find(from)
		if err != nil {
			return nil, nil, err
		}
		for range int(from.Weight) {
			s.files = append(s.files, files...)
		}
	}
	for _, f := range s.files {
		s.size += f.size
	}
	r := &streamReader{stream: s, opt: Options{BatchSize: 1, T: cfg.MaxLength}}
	r.emit = func(window *stretch) error {
		s.first = window.rows.(heldRows)
		return errEnough
	}
	err := r.run(ctx)
	if !errors.Is(err, errEnough) {
		return nil, nil, err
	}
	report := r.sumUp()
	report.Streamed = fmt.Sprintf("the numbers are of the first %s, the rest is read as training goes",
		words.Counted(report.Rows, "row"))
	report.Duplicates = duplicates(s.first)
	s.sum = s.digest()
	return s, report, nil
}

// errEnough ends a read early without an error.
var errEnough = errors.New("enough was read")

// digest returns a hash over the settings that decide the rows and over the rows of the first window, and so over the
// tokenizer. Files beyond the first window may be corrected or may grow: StreamState.Sum covers what was read of them.
func (s *stream) digest() string {
	h := sha256.New()
	print, _ := fingerprint(s.tok)
	fmt.Fprintln(h, cacheKey(s.cfg, "", "", print), digest(s.first))
	for _, from := range s.cfg.training() {
		own := s.cfg.of(from)
		fmt.Fprintf(h, "%q %q %v\n", from.split(), own.Format, from.Weight)
		for _, role := range own.fieldRoles() {
			fmt.Fprintf(h, "%q %q\n", role, own.Fields[role])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// loader returns a Loader of the stream. All ids must be below vocab, unless vocab is 0.
func (s *stream) loader(opt Options, vocab int) (*Loader, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	most := opt.Group
	if opt.Packing {
		most = max(opt.Group, min(opt.T, 4*opt.T*sizesOf(s.first).sequences/s.first.tokens()+4))
	}
	return newLoader(&windows{stream: s, opt: opt, most: most, vocab: vocab}, opt, most, opt.BatchSize*opt.T), nil
}

// windows deals a stream one window at a time. A goroutine reads, tokenises and packs the next window during training
// on the current one.
type windows struct {
	*stream
	opt         Options
	most, vocab int
	seen        *stretch // the preview

	out  chan *stretch // receives the windows; nil = not reading
	next start         // place of the next window from out
	stop context.CancelFunc
	err  error // why out was closed
}

func (w *windows) deal(at start) (*stretch, error) {
	if w.out == nil || w.next != at {
		w.close()
		w.open(at)
	}
	s, ok := <-w.out
	if !ok {
		return nil, w.err
	}
	w.next = s.next
	return s, nil
}

// open starts reading.
func (w *windows) open(at start) {
	var ctx context.Context
	ctx, w.stop = context.WithCancel(w.ctx)
	out := make(chan *stretch)
	w.out, w.next = out, at
	r := &streamReader{stream: w.stream, opt: w.opt, most: w.most, vocab: w.vocab, at: at}
	r.emit = func(s *stretch) error {
		select {
		case out <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	rescue.Go(func() {
		defer close(out)
		w.err = r.run(ctx)
	})
}

func (w *windows) close() {
	if w.out == nil {
		return
	}
	w.stop()
	for range w.out { // until the goroutine has ended
	}
	w.out = nil
}

func (w *windows) preview(int) *stretch {
	if w.seen == nil {
		w.seen = &stretch{
			rows: w.first, tokens: w.first.tokens(), next: start{epoch: 1}, to: 1,
			dealt: w.opt.order(w.first, w.most, w.first.Len(), newRandom(w.opt.Seed, streamOrder, 0, 0)),
		}
	}
	return w.seen
}

func (w *windows) data() (rows int, digest string) { return 0, w.sum }

func (w *windows) len() int { return 0 }

func (w *windows) share() dealer {
	return &windows{stream: w.stream, opt: w.opt, most: w.most, vocab: w.vocab}
}

// validateStreaming rejects settings that need all rows to be known, or have no effect.
func (c Config) validateStreaming() []error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !c.Streaming {
		return nil
	}
	if c.ValSplit > 0 {
		bad("dataset.val_split: with dataset.streaming the rows are not counted before they are trained on, so no " +
			"part of them can be held out: name validation rows in dataset.val_path or dataset.val_sources")
	}
	if c.inMemory() {
		bad("dataset.format: rollouts are read into memory as groups: remove dataset.streaming")
	}
	if c.CacheDir != "" && c.CacheDir != CacheAuto {
		bad("dataset.cache_dir: with dataset.streaming nothing is written to disk: remove one of them")
	}
	if c.Mismatched > 0 {
		bad("dataset.streaming: an estimate of the divergence needs the answers of other rows, which a stream does not " +
			"have: remove it, or take a loss without an estimate")
	}
	for i, s := range c.Sources {
		if s.Weight != math.Trunc(s.Weight) {
			bad("dataset.sources[%d].weight: %v of the rows cannot be taken with dataset.streaming, which does not "+
				"know how many there are: write a whole number, or a split such as train[:1000]", i, s.Weight)
		}
	}
	return problems
}
