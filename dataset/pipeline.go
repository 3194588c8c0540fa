package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/internal/rescue"
)

// Bounds of the chunks in flight for one file. A chunk is what a worker takes at a time.
const (
	chunkBytes  = 64 << 10
	chunkRows   = 512
	flightBytes = 64 << 20 // one chunk may be larger, if it is the only one in flight
)

// chunk is a run of rows in file order: first as the file has them, then as tokens.
type chunk struct {
	first int // index of its first row
	data  []byte
	rows  []rawRow
	end   error // why the file ends after this chunk; io.EOF at the end of the file
	line  int   // line of that end

	words  []byte // words of the rows that are kept, little endian
	booked []booked
	done   chan struct{} // receives a value when a worker has finished the chunk
}

// rawRow is a row as the file has it.
type rawRow struct {
	line     int
	from, to int   // range in the chunk's data
	err      error // error of reading the row: *source.RowError
}

// booked records what became of a row, or of one of the rows that a text is divided into.
type booked struct {
	index, line int
	more        bool   // the row belongs to the same text as the one before
	chunks      int    // rows of the text that begins here; 0 = it is one row
	from, to    int    // range in the chunk's words
	drop        string // reason to drop the row; "" = kept
	cut         int    // tokens of a kept row lost to max_length
	tail        int    // tokens of a kept row beyond max_length
	length      int    // tokens before truncation, also of a dropped row
	trained     int
	borders     []int32 // Row.Borders
	desirable   Desirability
	rollout     *Rollout   // Row.Rollout
	columns     []byte     // Row.Columns
	images      *RowImages // Row.Images
	weights     []float32  // Row.Weights
	weightSpan  [2]float32 // least and largest of its trained tokens
	targets     []float32  // Row.Targets
	hash        uint64
	maxID       int32
	err         error // *source.RowError
	chat        *chatCounts
	unread      []string // keys of the source row that nothing reads; nil where more is true
}

// pipeline reads on one goroutine, encodes on several, and hands over the chunks in file order.
type pipeline struct {
	rows    *source.Reader
	first   int                                   // index of the file's first row
	begin   func(raw source.Row, index int) error // called until it has chosen the format
	ready   func() bool
	encode  func(raw source.Row, b *buffers) (encoded, error)
	ordered chan *chunk
	work    chan *chunk
	free    chan *chunk

	mu     sync.Mutex
	room   sync.Cond
	flight int
	wg     sync.WaitGroup
}

// run calls take for each chunk in file order, until take fails or the file ends. The arguments of take do not depend
// on the number of workers.
func (p *pipeline) run(ctx context.Context, workers int, take func(*chunk) error) error {
	ctx, stop := context.WithCancel(ctx)
	p.room.L = &p.mu
	p.ordered, p.work = make(chan *chunk, 2*workers), make(chan *chunk, 2*workers)
	p.free = make(chan *chunk, 4*workers+2)
	p.wg.Go(rescue.Wrap(func() { p.read(ctx) }))
	for range workers {
		p.wg.Go(rescue.Wrap(func() {
			var b buffers
			for c := range p.work {
				if ctx.Err() == nil {
					p.tokenise(c, &b)
				}
				c.done <- struct{}{}
			}
		}))
	}
	var failed error
	for c := range p.ordered {
		<-c.done
		if failed == nil {
			failed = ctx.Err() // chunks that workers left out must not be taken
		}
		if failed == nil {
			if failed = take(c); failed != nil {
				stop()
			}
		}
		p.release(c)
	}
	stop()
	p.wg.Wait()
	return failed
}

// read fills chunks until the file ends, reading fails, or the context is cancelled.
func (p *pipeline) read(ctx context.Context) {
	defer close(p.ordered)
	defer close(p.work)
	index := p.first
	for {
		c := p.fill(index)
		index += len(c.rows)
		p.acquire(len(c.data))
		p.ordered <- c
		p.work <- c
		if c.end != nil || ctx.Err() != nil {
			return
		}
	}
}

// fill reads the next chunk.
func (p *pipeline) fill(first int) *chunk {
	var c *chunk
	select {
	case c = <-p.free:
		c.data, c.rows, c.end, c.words, c.booked = c.data[:0], c.rows[:0], nil, c.words[:0], c.booked[:0]
	default:
		c = &chunk{done: make(chan struct{}, 1), data: make([]byte, 0, chunkBytes+chunkBytes/4),
			words: make([]byte, 0, 2*chunkBytes)}
	}
	c.first = first
	for len(c.data) < chunkBytes && len(c.rows) < chunkRows {
		raw, err := p.rows.Next()
		if err == nil && !p.ready() {
			err = p.begin(raw, first+len(c.rows))
		}
		var row *source.RowError
		if err != nil && !errors.As(err, &row) {
			c.end, c.line = err, p.rows.Line()
			return c
		}
		r := rawRow{line: raw.Line, from: len(c.data), err: err}
		if err == nil {
			c.data = append(c.data, raw.Data...)
		}
		r.to = len(c.data)
		c.rows = append(c.rows, r)
	}
	return c
}

// acquire waits until n more bytes may be in flight.
func (p *pipeline) acquire(n int) {
	p.mu.Lock()
	for p.flight > 0 && p.flight+n > flightBytes {
		p.room.Wait()
	}
	p.flight += n
	p.mu.Unlock()
}

// release makes a chunk's bytes available again. A chunk that a huge row enlarged is left to the garbage collector.
func (p *pipeline) release(c *chunk) {
	p.mu.Lock()
	p.flight -= len(c.data)
	p.room.Signal()
	p.mu.Unlock()
	if cap(c.data)+cap(c.words) > 32*chunkBytes {
		return
	}
	select {
	case p.free <- c:
	default:
	}
}

// tokenise does all work on the rows of a chunk that does not depend on earlier rows.
func (p *pipeline) tokenise(c *chunk, b *buffers) {
	for k, raw := range c.rows {
		r := booked{index: c.first + k, line: raw.line, err: raw.err}
		var e encoded
		if r.err == nil {
			e, r.err = p.encode(source.Row{Line: raw.line, Data: c.data[raw.from:raw.to]}, b)
		}
		if row := (*source.RowError)(nil); r.err != nil && !errors.As(r.err, &row) {
			r.err = &source.RowError{Line: raw.line, Err: r.err}
		}
		c.book(r, e)
	}
}

// book appends the outcome of an example, which may be several rows.
func (c *chunk) book(r booked, e encoded) {
	r.chat, r.drop, r.length, r.unread = e.chat, e.drop, e.length, e.unread
	switch {
	case r.err != nil || r.drop != "":
		c.booked = append(c.booked, r)
	case e.chunk > 0:
		parts := e.rows()
		for i, part := range parts {
			r.chunks, r.more = 0, i > 0
			if i > 0 {
				r.unread = nil
			} else {
				r.chunks = len(parts)
			}
			c.booked = append(c.booked, c.write(r, part))
		}
	default:
		if e.cut {
			r.cut = e.lost
		}
		c.booked = append(c.booked, c.write(r, e))
	}
	for _, e := range e.more {
		c.book(booked{index: r.index, line: r.line, more: true}, e)
	}
}

// write appends the words of a row that is kept.
func (c *chunk) write(r booked, e encoded) booked {
	r.from, r.tail = len(c.words), e.tail
	c.words = slices.Grow(c.words, 4*len(e.ids))
	h := newRowHash()
	for t, id := range e.ids {
		h.add(id)
		r.maxID = max(r.maxID, id)
		word := uint32(id)
		if e.labels[t] != Ignore { // then the label is the id itself
			word |= trainedBit
			if t < len(e.ids)-e.tail {
				r.trained++
			}
		}
		c.words = binary.LittleEndian.AppendUint32(c.words, word)
	}
	r.borders, r.desirable, r.rollout, r.columns = e.borders, e.desirable, e.rollout, e.columns
	h.addGroup(r.borders, r.desirable)
	r.weights = weightsOf(e.weights, e.labels)
	r.weightSpan = weightSpan(r.weights, e.labels)
	h.addWeights(r.weights)
	r.targets = slices.Clone(e.targets)
	h.addTargets(r.targets)
	r.images = e.images
	h.addImages(r.images)
	r.to, r.hash = len(c.words), uint64(h)
	return r
}

// isEnd reports whether reading succeeded up to the end of the file.
func isEnd(err error) bool { return errors.Is(err, io.EOF) }
