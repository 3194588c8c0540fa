package dataset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tierlora/tierlora/internal/rescue"
)

// Format of a cache file, with little-endian integers:
//
//	magic
//	words and columns (see store)
//	a CRC-32C for every page of the bytes before: u32
//	head (JSON), its length as u32, SHA-256 of head and length
const (
	cacheMagic = "tierlora tokens\n"
	pageBytes  = 1 << 20
	tailBytes  = 4 + sha256.Size
	maxHead    = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errCacheShort = errors.New("too short")
	errCacheSum   = errors.New("wrong checksum")
	errCacheKey   = errors.New("made for something else")
	errCacheRows  = errors.New("rows that do not add up")
)

// pageSums computes the checksum of every page of the bytes written to it.
type pageSums struct {
	w    io.Writer
	sums []byte
	sum  uint32
	fill int // bytes in the current page
}

func (p *pageSums) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	for b = b[:n]; len(b) > 0; {
		part := b[:min(len(b), pageBytes-p.fill)]
		p.sum = crc32.Update(p.sum, castagnoli, part)
		if p.fill += len(part); p.fill == pageBytes {
			p.flush()
		}
		b = b[len(part):]
	}
	return n, err
}

// flush ends the current page.
func (p *pageSums) flush() {
	if p.fill > 0 {
		p.sums = binary.LittleEndian.AppendUint32(p.sums, p.sum)
		p.sum, p.fill = 0, 0
	}
}

// writeHead completes a cache file after its columns.
func writeHead(w io.Writer, head storeHead, sums []byte) error {
	sum := sha256.Sum256(sums)
	head.Sums = hex.EncodeToString(sum[:])
	text, err := json.Marshal(head)
	if err != nil {
		panic("dataset: a report is always JSON: " + err.Error())
	}
	text = binary.LittleEndian.AppendUint32(text, uint32(len(text)))
	sum = sha256.Sum256(text)
	for _, part := range [][]byte{sums, text, sum[:]} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// openStore maps the cache file of a key. The whole file is read once, by all cores, and compared with its checksums,
// so that damage is found before training. If the file was undamaged before and has not changed since, only the columns
// are compared now, and its words when they are first read (store.Verify). fs.ErrNotExist means that there is no such
// file.
func openStore(ctx context.Context, path, key, source string, workers int, m *meter) (*store, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	s, err := openStoreFile(ctx, f, key, source, workers, m)
	if err != nil {
		f.Close() //nolint:errcheck // read only
	}
	return s, err
}

// openStoreFile is openStore for an open file, which the store takes over.
func openStoreFile(ctx context.Context, f *os.File, key, source string, workers int, m *meter) (*store, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head, sums, err := readHead(f, info.Size())
	if err != nil {
		return nil, err
	}
	if head.Key != key || head.outdated() {
		return nil, errCacheKey
	}
	from := int64(0)
	if wasWhole(f) {
		from = (int64(len(cacheMagic)) + 4*int64(head.Tokens)) / pageBytes * pageBytes
	}
	m.begin("checking the tokens of", source, head.size()-from)
	if err := checkPages(ctx, f, from, head.size(), sums, workers, m.done); err != nil {
		return nil, err
	}
	s, err := mapStore(f, head, source)
	if err == nil {
		s.unread = newUnread(f, sums, from)
	}
	return s, err
}

// outdated reports whether an older program wrote the rows, which read a preference pair as one sequence.
func (h *storeHead) outdated() bool {
	f := Formats[h.Report.Format]
	return f.Preference && !f.Asked && h.Borders == 0 && !h.Labelled
}

// size returns the number of bytes of magic, words and columns.
func (h *storeHead) size() int64 {
	n := uint64(len(cacheMagic)) + 4*h.Tokens + columnBytes*h.Rows
	if h.Borders > 0 {
		n += 8*h.Rows + 4*h.Borders
	}
	if h.Labelled {
		n += h.Rows
	}
	if h.Weighted {
		n += 4 * h.Tokens
	}
	if h.Targets > 0 {
		n += 8*h.Rows + 4*h.Targets
	}
	return int64(n)
}

// readHead reads the head at the end of a file of size bytes. It trusts no length in the file.
func readHead(r io.ReaderAt, size int64) (head storeHead, sums []byte, err error) {
	tail := make([]byte, tailBytes)
	if size < int64(len(cacheMagic)+tailBytes) {
		return head, nil, errCacheShort
	}
	if _, err := r.ReadAt(tail, size-tailBytes); err != nil {
		return head, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > maxHead || n > size-int64(len(cacheMagic)+tailBytes) {
		return head, nil, errCacheSum
	}
	text := make([]byte, n+4)
	if _, err := r.ReadAt(text, size-tailBytes-n); err != nil {
		return head, nil, err
	}
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], tail[4:]) {
		return head, nil, errCacheSum
	}
	if err := json.Unmarshal(text[:n], &head); err != nil {
		return head, nil, errCacheKey
	}
	if head.Rows > math.MaxInt64/columnBytes/4 || head.Tokens > math.MaxInt64/16 || head.Borders > head.Tokens ||
		head.Targets > math.MaxInt64/16 {
		return head, nil, errCacheRows
	}
	pages := (head.size() + pageBytes - 1) / pageBytes
	if head.size()+4*pages+n+tailBytes != size {
		return head, nil, errCacheShort
	}
	sums = make([]byte, 4*pages)
	if _, err := r.ReadAt(sums, head.size()); err != nil {
		return head, nil, err
	}
	if sum := sha256.Sum256(sums); hex.EncodeToString(sum[:]) != head.Sums {
		return head, nil, errCacheSum
	}
	return head, sums, nil
}

// The size of a read while a file is checked, and the most goroutines that read.
const (
	readBytes = 4 * pageBytes
	readers   = 8
)

// checkPages compares the bytes [from,size) with their checksums; from is the start of a page. It reads them into
// buffers: pages read through a mapping would count as memory of this process.
func checkPages(ctx context.Context, r io.ReaderAt, from, size int64, sums []byte, workers int,
	done func(bytes int)) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	fail := func(err error) { failed.CompareAndSwap(nil, &err) }
	var wg sync.WaitGroup
	for range min(workers, readers) {
		wg.Go(rescue.Wrap(func() {
			buf := make([]byte, readBytes)
			for failed.Load() == nil {
				at := from + (next.Add(1)-1)*readBytes
				if at >= size {
					return
				}
				if err := ctx.Err(); err != nil {
					fail(err)
					return
				}
				part := buf[:min(readBytes, size-at)]
				if _, err := r.ReadAt(part, at); err != nil {
					fail(err)
					return
				}
				of := sums[4*(at/pageBytes):]
				for page := range slices.Chunk(part, pageBytes) {
					if crc32.Checksum(page, castagnoli) != binary.LittleEndian.Uint32(of) {
						fail(errCacheSum)
					}
					of = of[4:]
				}
				done(len(part))
			}
		}))
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// mapStore maps a file whose words and columns follow its magic. The mapping is released with the store. The file must
// not be truncated; replacing it by rename is safe.
func mapStore(f *os.File, head storeHead, source string) (*store, error) {
	data, unmap, err := mapFile(f, head.size())
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	body, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok {
		unmap()
		return nil, errCacheKey
	}
	s := newStore(head, source, body)
	s.file = data
	if err := s.check(); err != nil {
		unmap()
		return nil, err
	}
	forget := rescue.Mapped(f.Name(), data)
	runtime.AddCleanup(s, func(unmap func()) { forget(); unmap() }, unmap)
	return s, nil
}
