package dataset

import (
	"io"
	"sync"
	"time"
)

// Progress is how far the reading of a data file is.
type Progress struct {
	Doing string // what is done, such as "tokenising"; "" = nothing any more
	Path  string
	Rows  int   // of the file so far
	Bytes int64 // of the file so far
	Size  int64 // of the file; 0 = not known
	Took  time.Duration
}

// PerSecond is bytes a second.
func (p Progress) PerSecond() float64 { return float64(p.Bytes) / max(p.Took.Seconds(), 1e-9) }

// Left is the time that the rest of the file takes at the pace so far; 0 = not known.
func (p Progress) Left() time.Duration {
	if p.Size <= p.Bytes || p.Bytes == 0 {
		return 0
	}
	return time.Duration(float64(p.Size-p.Bytes) / p.PerSecond() * float64(time.Second))
}

// meterEvery is the least time between two reports of progress, and the time before the first.
const meterEvery = 200 * time.Millisecond

// meter tells Config.Progress how far a file is. Its methods may be called from several goroutines.
type meter struct {
	tell func(Progress)
	mu   sync.Mutex
	now  Progress
	from time.Time
	told time.Time
}

func newMeter(tell func(Progress)) *meter { return &meter{tell: tell, told: time.Now()} }

// begin starts to count anew.
func (m *meter) begin(doing, path string, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.from = Progress{Doing: doing, Path: path, Size: size}, time.Now()
}

func (m *meter) rows(n int) { m.add(func(p *Progress) { p.Rows = n }) }

func (m *meter) done(bytes int) { m.add(func(p *Progress) { p.Bytes += int64(bytes) }) }

func (m *meter) add(change func(*Progress)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.now)
	if m.tell == nil || time.Since(m.told) < meterEvery {
		return
	}
	m.told = time.Now()
	m.now.Took = m.told.Sub(m.from)
	m.tell(m.now)
}

// end says that nothing is to be shown any more.
func (m *meter) end() {
	if m.tell != nil {
		m.tell(Progress{})
	}
}

// reader counts what is read through it.
func (m *meter) reader(r io.Reader) io.Reader { return meterReader{m, r} }

type meterReader struct {
	m *meter
	r io.Reader
}

func (r meterReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.m.done(n)
	return n, err
}
