package dataset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/rescue"
)

// A cache file that was undamaged is trusted while it is the same unchanged file, because reading gigabytes at every
// start would take longer than the rest of the start. Its pages are still checked one by one before their first use.

// wholeFile returns the path of the record that a cache file was undamaged.
func wholeFile(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".whole" }

func wasWhole(f *os.File) bool {
	id, known := identityOf(f)
	if !known {
		return false
	}
	var then identity
	text, err := regular.ReadFile(wholeFile(f.Name()))
	return err == nil && json.Unmarshal(text, &then) == nil && then == id
}

// rememberWhole records that the file is undamaged. Without the record the whole file is read at the next start.
func rememberWhole(path string) {
	f, err := openRegular(path)
	if err != nil {
		return
	}
	defer f.Close()
	if id, known := identityOf(f); known {
		if text, err := json.Marshal(id); err == nil {
			_ = atomicfile.Write(wholeFile(path), text)
		}
	}
}

// unread tracks which pages of a mapped cache file were compared with their checksums. A page is compared before its
// first use, and again if another process has changed the file since. (A run in another process changes only the file
// times.)
type unread struct {
	path string
	file *os.File // open as long as the store, to detect changes
	sums []byte
	read []atomic.Bool // which pages were compared since the file last changed

	mu sync.Mutex
	id identity // identity of the file at that time; zero if the system has none
}

// newUnread returns the state of an open cache file whose bytes from `from` on were compared already.
func newUnread(f *os.File, sums []byte, from int64) *unread {
	u := &unread{path: f.Name(), file: f, sums: sums, read: make([]atomic.Bool, len(sums)/4)}
	u.id, _ = identify(f)
	for page := from / pageBytes; page < int64(len(u.read)); page++ {
		u.read[page].Store(true)
	}
	return u
}

// look returns an error if the file was truncated. If it was changed, all pages are compared again before their next
// use, and the columns, bytes [columns,len(data)), at once.
func (u *unread) look(data []byte, columns int64) error {
	id, known := identify(u.file)
	if !known {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if id == u.id {
		return nil
	}
	if id.Size < int64(len(data)) {
		return &rescue.ChangedError{Path: u.path}
	}
	for page := range u.read {
		u.read[page].Store(false)
	}
	u.id = id
	return u.check(data, columns, int64(len(data)))
}

// check compares the pages that hold the bytes [from,to) of the file with their checksums; data is its mapping.
func (u *unread) check(data []byte, from, to int64) error {
	for at := from / pageBytes * pageBytes; at < to; at += pageBytes {
		page := at / pageBytes
		if u.read[page].Load() {
			continue
		}
		if crc32.Checksum(data[at:min(at+pageBytes, int64(len(data)))],
			castagnoli) != binary.LittleEndian.Uint32(u.sums[4*page:]) {
			os.Remove(u.path)
			return fmt.Errorf("%s, tokens in the cache, has become damaged at byte %d and was deleted: start again, "+
				"by --resume auto where a checkpoint was saved", u.path, at)
		}
		u.read[page].Store(true)
	}
	return nil
}

// Verify checks the stored data of row i, unless that was done since the file last changed.
func (s *store) Verify(i int) error {
	if s.unread == nil {
		return nil
	}
	const begin = int64(len(cacheMagic))
	if err := s.unread.look(s.file, begin+4*int64(s.head.Tokens)); err != nil {
		return err
	}
	from, to := s.span(i)
	if from >= to || to > s.head.Tokens {
		return &rescue.ChangedError{Path: s.unread.path}
	}
	return s.unread.check(s.file, begin+4*int64(from), begin+4*int64(to))
}
