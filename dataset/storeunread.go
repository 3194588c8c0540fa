package dataset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
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

// unread are the pages of a mapped cache file that nobody has read since it was opened.
type unread struct {
	path string
	sums []byte
	end  int64 // of the pages: what follows was checked
	read []atomic.Bool
}

func newUnread(path string, sums []byte, end int64) *unread {
	return &unread{path, sums, end, make([]atomic.Bool, end/pageBytes)}
}

// check compares the pages of bytes [from,to) of the file, of which data is the beginning, with their checksums.
func (u *unread) check(data []byte, from, to int64) error {
	for at := from / pageBytes * pageBytes; at < min(to, u.end); at += pageBytes {
		page := at / pageBytes
		if u.read[page].Load() {
			continue
		}
		if crc32.Checksum(data[at:at+pageBytes], castagnoli) != binary.LittleEndian.Uint32(u.sums[4*page:]) {
			os.Remove(u.path)
			return fmt.Errorf("%s, tokens in the cache, has become damaged at byte %d and was deleted: start again, by --resume auto where a checkpoint was saved", u.path, at)
		}
		u.read[page].Store(true)
	}
	return nil
}

// Verify checks what the cache file holds of row i, where that was not done yet.
func (s *store) Verify(i int) error {
	if s.unread == nil {
		return nil
	}
	from, to := s.span(i)
	const begin = int64(len(cacheMagic))
	return s.unread.check(s.file, begin+4*int64(from), begin+4*int64(to))
}
