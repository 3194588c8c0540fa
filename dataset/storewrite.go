package dataset

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// Bounds of what is written.
const (
	spoolBytes   = 1 << 20   // of a column in memory; more goes to a temporary file
	memoryBytes  = 64 << 20  // of words in memory; more goes to a temporary file that is mapped
	reserveBytes = 512 << 20 // that are left free on a disk
	reserveEvery = 64 << 20  // written bytes between two looks at the disk
)

// spool keeps bytes in memory, and in an unlinked temporary file when there are more than limit of them.
type spool struct {
	dir    string // of the temporary file; "" = the system's
	limit  int
	blocks [][]byte
	file   *os.File
	size   int64
	disk   *diskGuard
}

const spoolBlock = 64 << 10

func (s *spool) Write(b []byte) (int, error) {
	s.size += int64(len(b))
	if s.file == nil && s.size > int64(s.limit) {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	if s.file != nil {
		return s.disk.write(s.file, b)
	}
	n := len(b)
	for len(b) > 0 {
		last := len(s.blocks) - 1
		if last < 0 || len(s.blocks[last]) == cap(s.blocks[last]) {
			s.blocks, last = append(s.blocks, make([]byte, 0, spoolBlock)), last+1
		}
		block := s.blocks[last]
		part := b[:min(len(b), cap(block)-len(block))]
		s.blocks[last] = append(block, part...)
		b = b[len(part):]
	}
	return n, nil
}

// spill moves what is in memory to a file.
func (s *spool) spill() error {
	f, err := os.CreateTemp(s.dir, "tokens.*.part")
	if err != nil {
		return err
	}
	os.Remove(f.Name()) // it lives as long as it is open
	s.file = f
	for _, block := range s.blocks {
		if _, err := s.disk.write(f, block); err != nil {
			return err
		}
	}
	s.blocks = nil
	return nil
}

// WriteTo copies all to w. Blocks of memory are given up on the way.
func (s *spool) WriteTo(w io.Writer) (n int64, err error) {
	if s.file != nil {
		return io.Copy(w, io.NewSectionReader(s.file, 0, s.size))
	}
	for i, block := range s.blocks {
		m, err := w.Write(block)
		if n += int64(m); err != nil {
			return n, err
		}
		s.blocks[i] = nil
	}
	return n, nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close() //nolint:errcheck // nobody reads it again
	}
}

// diskGuard writes to files of one disk and stops before the disk is full.
type diskGuard struct {
	dir   string
	since int
	total int64
}

// writeError is a failure to write tokens, not to read data.
type writeError struct {
	err   error
	small bool // what was written would have had room in memory
}

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (g *diskGuard) write(w io.Writer, b []byte) (int, error) {
	if g.since += len(b); g.since >= reserveEvery {
		g.since = 0
		if free, ok := diskFree(g.dir); ok && free < reserveBytes {
			return 0, &writeError{err: fmt.Errorf("the disk has only %s free after %s of tokens", sizeText(free), sizeText(g.total)), small: g.total <= memoryBytes}
		}
	}
	n, err := w.Write(b)
	g.total += int64(n)
	if err != nil {
		err = &writeError{err: atomicfile.Room(err, filepath.Join(g.dir, "tokens"), g.total+int64(len(b)-n)), small: g.total <= memoryBytes}
	}
	return n, err
}

// storeWriter makes a store of rows that come one by one, in their order: as a cache file, or in memory and beyond
// memoryBytes in a temporary file.
type storeWriter struct {
	head  storeHead
	file  *os.File // the cache file; nil = none
	out   *bufio.Writer
	sums  *pageSums
	words *spool // without a cache file
	disk  *diskGuard

	columns [8]*spool // in the order of the file; the last three are empty where every row is one sequence without a label
	digest  hash.Hash
	scratch []byte
}

// newStoreWriter writes into file, or where it is nil into memory and temporary files of dir.
func newStoreWriter(file *os.File, dir string) (*storeWriter, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	w := &storeWriter{file: file, digest: sha256.New(), disk: &diskGuard{dir: dir}}
	for i := range w.columns {
		w.columns[i] = &spool{dir: dir, limit: spoolBytes, disk: w.disk}
	}
	var to io.Writer
	if file != nil {
		to = guarded{w.disk, file}
	} else {
		w.words = &spool{dir: dir, limit: memoryBytes, disk: w.disk}
		to = w.words
	}
	w.out = bufio.NewWriterSize(to, 64<<10)
	w.sums = &pageSums{w: w.out}
	_, err := w.sums.Write([]byte(cacheMagic))
	return w, err
}

// stayInMemory keeps what has no cache file from going to a temporary one.
func (w *storeWriter) stayInMemory() {
	for _, c := range append(w.columns[:], w.words) {
		if c != nil {
			c.limit = math.MaxInt
		}
	}
}

type guarded struct {
	disk *diskGuard
	to   io.Writer
}

func (g guarded) Write(b []byte) (int, error) { return g.disk.write(g.to, b) }

// add takes a kept row: its words and what the columns say of it.
func (w *storeWriter) add(r *booked, words []byte) error {
	h := &w.head
	h.Rows++
	h.Tokens += uint64(len(words) / 4)
	h.MaxID = max(h.MaxID, r.maxID)
	w.hash(r, words)
	if _, err := w.sums.Write(words); err != nil {
		return err
	}
	var field [8]byte
	for i, v := range [...]uint64{h.Tokens, r.hash, uint64(r.index), uint64(r.line), uint64(r.trained)} {
		binary.LittleEndian.PutUint64(field[:], v)
		size := 8
		if i == 4 {
			size = 4
		}
		if _, err := w.columns[i].Write(field[:size]); err != nil {
			return err
		}
	}
	return w.addGroup(r)
}

// addGroup writes the columns of groups and labels. They begin with the first row that needs them, behind zeros for the
// rows before it.
func (w *storeWriter) addGroup(r *booked) error {
	h := &w.head
	counts, borders, labels := w.columns[5], w.columns[6], w.columns[7]
	if len(r.borders) > 0 && h.Borders == 0 {
		if err := counts.zeros(8 * (h.Rows - 1)); err != nil {
			return err
		}
	}
	var field [8]byte
	for _, border := range r.borders {
		binary.LittleEndian.PutUint32(field[:], uint32(border))
		if _, err := borders.Write(field[:4]); err != nil {
			return err
		}
	}
	if h.Borders += uint64(len(r.borders)); h.Borders > 0 {
		binary.LittleEndian.PutUint64(field[:], h.Borders)
		if _, err := counts.Write(field[:]); err != nil {
			return err
		}
	}
	if r.desirable != Unlabelled && !h.Labelled {
		if err := labels.zeros(h.Rows - 1); err != nil {
			return err
		}
		h.Labelled = true
	}
	if h.Labelled {
		field[0] = byte(r.desirable)
		if _, err := labels.Write(field[:1]); err != nil {
			return err
		}
	}
	return nil
}

// zeros writes n bytes of zero.
func (s *spool) zeros(n uint64) error {
	zero := make([]byte, min(n, spoolBlock))
	for ; n > 0; n -= uint64(len(zero)) {
		zero = zero[:min(n, uint64(len(zero)))]
		if _, err := s.Write(zero); err != nil {
			return err
		}
	}
	return nil
}

// hash gives a row to the digest as digest does.
func (w *storeWriter) hash(r *booked, words []byte) {
	buf := binary.LittleEndian.AppendUint32(w.scratch[:0], uint32(len(words)/4))
	ignore := Ignore
	for i := 0; i < len(words); i += 4 {
		word := binary.LittleEndian.Uint32(words[i:])
		label := uint32(ignore)
		if word&trainedBit != 0 {
			label = word &^ trainedBit
		}
		buf = binary.LittleEndian.AppendUint64(buf, uint64(label)<<32|uint64(word&^trainedBit))
	}
	buf = appendGroup(buf, r.borders, r.desirable)
	w.digest.Write(buf)
	w.scratch = buf
}

// finish writes the columns, sums up the rows in the report and gives them, for a source's path.
func (w *storeWriter) finish(report *Report, path string) (*store, error) {
	for i := range w.columns {
		if _, err := w.columns[i].WriteTo(w.sums); err != nil {
			return nil, err
		}
	}
	w.sums.flush()
	if err := w.out.Flush(); err != nil {
		return nil, err
	}
	w.head.Digest = hex.EncodeToString(w.digest.Sum(nil))
	report.Kept = int(w.head.Rows)
	report.TrainRows = report.Kept
	w.head.Report.Kept = report.Kept
	s, err := w.store(path)
	if err != nil {
		return nil, err
	}
	report.Duplicates = duplicates(s)
	s.head.Report = *report.placeless()
	return s, nil
}

// store is the rows as they lie in memory or in a file.
func (w *storeWriter) store(path string) (*store, error) {
	if w.file != nil {
		return mapStore(w.file, w.head, path)
	}
	if w.words.file != nil {
		return mapStore(w.words.file, w.head, path)
	}
	body := bytes.NewBuffer(make([]byte, 0, w.words.size))
	if _, err := w.words.WriteTo(body); err != nil {
		return nil, err
	}
	return newStore(w.head, path, body.Bytes()[len(cacheMagic):]), nil
}

// close gives up temporary files; a store of them stays.
func (w *storeWriter) close() {
	for _, c := range w.columns {
		c.close()
	}
	if w.words != nil {
		w.words.close()
	}
}

// diskFree is what may be written into a folder; tests fill the disk.
var diskFree = atomicfile.Free

// explain tells what to do about a failure to write.
func (w *storeWriter) explain(source string, err error) error {
	if lost := (*writeError)(nil); !errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("tokenise %s: write to %s: %w: free some space, or name a folder on another disk in dataset.cache_dir", source, w.disk.dir, err)
}

var errHeld = errors.New("locked by another process")

// sizeText writes bytes for a person.
func sizeText(n int64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if float64(n) >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
