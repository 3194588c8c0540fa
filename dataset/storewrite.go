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

// Sizes and limits of writing.
const (
	spoolBytes   = 1 << 20   // bytes of a column in memory; more go to a temporary file
	memoryBytes  = 64 << 20  // bytes of words in memory; more go to a temporary file that is mapped
	reserveBytes = 512 << 20 // bytes left free on a disk
	reserveEvery = 64 << 20  // bytes written between two checks of free space
)

// spool keeps up to limit bytes in memory and moves them to an unlinked temporary file when there are more.
type spool struct {
	dir    string // folder of the temporary file; "" = the system's
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

// spill moves the bytes in memory to a file.
func (s *spool) spill() error {
	f, err := os.CreateTemp(s.dir, "tokens.*.part")
	if err != nil {
		return err
	}
	os.Remove(f.Name()) // the unlinked file exists as long as it is open
	s.file = f
	for _, block := range s.blocks {
		if _, err := s.disk.write(f, block); err != nil {
			return err
		}
	}
	s.blocks = nil
	return nil
}

// WriteTo copies all bytes to w and releases blocks of memory as it goes.
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
		s.file.Close() // nobody reads it again
	}
}

// diskGuard writes to files of one disk and stops before the disk is full.
type diskGuard struct {
	dir   string
	since int
	total int64
}

// writeError is a failure to write tokens, as opposed to reading data.
type writeError struct {
	err   error
	small bool // the bytes written so far would fit in memory
}

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (g *diskGuard) write(w io.Writer, b []byte) (int, error) {
	if g.since += len(b); g.since >= reserveEvery {
		g.since = 0
		if free, ok := diskFree(g.dir); ok && free < reserveBytes {
			return 0, &writeError{err: fmt.Errorf("the disk has only %s free after %s of tokens", sizeText(free),
				sizeText(g.total)), small: g.total <= memoryBytes}
		}
	}
	n, err := w.Write(b)
	g.total += int64(n)
	if err != nil {
		err = &writeError{err: atomicfile.Room(err, filepath.Join(g.dir, "tokens"), g.total+int64(len(b)-n)),
			small: g.total <= memoryBytes}
	}
	return n, err
}

// storeWriter makes a store from rows that are added in order: as a cache file, or in memory, with a temporary file
// beyond memoryBytes.
type storeWriter struct {
	head  storeHead
	file  *os.File // the cache file; nil = none
	out   *bufio.Writer
	sums  *pageSums
	words *spool // words, if there is no cache file
	disk  *diskGuard

	// columns are in file order. The last six are empty if every row is one sequence without a label, weights and
	// targets.
	columns [11]*spool
	digest  hash.Hash
	scratch []byte
}

// newStoreWriter writes to file. If file is nil it writes to memory and temporary files in dir.
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

// stayInMemory disables the temporary file for words.
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

// add adds a kept row: its words and its values in the columns.
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
	if err := w.addWeights(r, len(words)/4); err != nil {
		return err
	}
	if err := w.addTargets(r); err != nil {
		return err
	}
	return w.addGroup(r)
}

// addGroup writes the columns of groups and labels. They begin with the first row that needs them, after zeros for the
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

// zeros writes n zero bytes.
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

// hash adds a row to the digest, in the way of the function digest.
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
	buf = appendTargets(appendWeights(appendGroup(buf, r.borders, r.desirable), r.weights), r.targets)
	w.digest.Write(buf)
	w.scratch = buf
}

// finish writes the columns, completes the report and returns the rows for the given path of the source.
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

// store returns the rows in memory or in the file.
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

// close releases temporary files. A store that uses them stays valid.
func (w *storeWriter) close() {
	for _, c := range w.columns {
		c.close()
	}
	if w.words != nil {
		w.words.close()
	}
}

// diskFree returns how many bytes may be written into a folder; tests replace it to simulate a full disk.
var diskFree = atomicfile.Free

// explain adds to a write error what to do about it.
func (w *storeWriter) explain(source string, err error) error {
	if lost := (*writeError)(nil); !errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("tokenise %s: write to %s: %w: free some space, or name a folder on another disk in "+
		"dataset.cache_dir", source, w.disk.dir, err)
}

var errHeld = errors.New("locked by another process")

// sizeText formats a number of bytes for a person.
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
