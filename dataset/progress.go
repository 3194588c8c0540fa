package dataset

import (
	"io"
	"sync"
	"time"
)

// Progress is how far the reading of a data file has come.
type Progress struct {
	Doing string // Doing names the current work, such as "tokenising"; "" = finished.
	Path  string
	Rows  int   // rows read so far
	Bytes int64 // bytes read so far
	Size  int64 // size of the file in bytes; 0 = unknown
	Took  time.Duration
}

// PerSecond returns the rate in bytes a second.
func (p Progress) PerSecond() float64 { return float64(p.Bytes) / max(p.Took.Seconds(), 1e-9) }

// Left returns the time for the rest of the file at the average rate so far; 0 = unknown.
func (p Progress) Left() time.Duration {
	if p.Size <= p.Bytes || p.Bytes == 0 {
		return 0
	}
	return time.Duration(float64(p.Size-p.Bytes) / p.PerSecond() * float64(time.Second))
}

// meterEvery is the least time between two calls of Config.Progress, and before the first.
const meterEvery = 200 * time.Millisecond

// meter reports the progress of reading a file to Config.Progress. It is safe for concurrent use.
type meter struct {
	tell func(Progress)
	mu   sync.Mutex
	now  Progress
	from time.Time
	told time.Time
}

func newMeter(tell func(Progress)) *meter { return &meter{tell: tell, told: time.Now()} }

// begin starts counting from zero.
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

// end reports that the work is finished.
func (m *meter) end() {
	if m.tell != nil {
		m.tell(Progress{})
	}
}

// reader counts the bytes that are read through it.
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
