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

// A cache file that was whole is believed to be so while it is the same file, unchanged: reading gigabytes at every start
// would take longer than the start. What is read of it is checked all the same, page by page, before it is used.

// wholeFile is where the identity of a cache file lies that was whole.
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

// rememberWhole notes that the file is whole. Without the note all of it is read at the next start.
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

// unread are the pages of a mapped cache file with their checksums. A page is compared before its first use, and again
// where another process has changed the file since: a run in another process also changes its times, and nothing else.
type unread struct {
	path string
	file *os.File // open as long as the store, to see changes
	sums []byte
	read []atomic.Bool // a page was compared since the file changed last

	mu sync.Mutex
	id identity // of the file at that time; zero where the system has none
}

// newUnread is for an open cache file whose bytes from one on were compared already.
func newUnread(f *os.File, sums []byte, from int64) *unread {
	u := &unread{path: f.Name(), file: f, sums: sums, read: make([]atomic.Bool, len(sums)/4)}
	u.id, _ = identify(f)
	for page := from / pageBytes; page < int64(len(u.read)); page++ {
		u.read[page].Store(true)
	}
	return u
}

// look is an error where the file was shortened. Where it was changed, all that is read from now on is compared again, the
// columns, which are bytes [columns,len(data)), at once.
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

// check compares the pages of bytes [from,to) of the file, whose mapping is data, with their checksums.
func (u *unread) check(data []byte, from, to int64) error {
	for at := from / pageBytes * pageBytes; at < to; at += pageBytes {
		page := at / pageBytes
		if u.read[page].Load() {
			continue
		}
		if crc32.Checksum(data[at:min(at+pageBytes, int64(len(data)))], castagnoli) != binary.LittleEndian.Uint32(u.sums[4*page:]) {
			os.Remove(u.path)
			return fmt.Errorf("%s, tokens in the cache, has become damaged at byte %d and was deleted: start again, by --resume auto where a checkpoint was saved", u.path, at)
		}
		u.read[page].Store(true)
	}
	return nil
}

// Verify checks what the cache file holds of row i, where that was not done since the file changed.
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
