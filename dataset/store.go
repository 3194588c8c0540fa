package dataset

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"

	"github.com/tierlora/tierlora/internal/rescue"
)

// store holds tokenised rows in one piece of bytes: memory or a mapped file (see storefile.go). Integers are little
// endian. The lengths and numbers of trained tokens are columns, so they are known without reading the ids.
type store struct {
	head storeHead
	path string // path of the source, for places of rows

	words   []byte // [Tokens] u32: the token id, with the top bit set if the token is trained
	ends    []byte // [Rows] u64: number of tokens up to the end of the row
	hashes  []byte // [Rows] u64: Row.hash
	indices []byte // [Rows] u64: Row.Index
	lines   []byte // [Rows] u64: Row.Line
	trained []byte // [Rows] u32
	counts  []byte // [Rows] u64: number of borders up to the end of the row; empty if no row has one
	borders []byte // [head.Borders] u32: Row.Borders of all rows
	labels  []byte // [Rows] i8: Row.Desirable; empty if no row has a label
	weights []byte // [Tokens] f32: Row.Weights; empty if no row has weights
	aimed   []byte // [Rows] u64: number of targets up to the end of the row; empty if no row has one
	targets []byte // [head.Targets] f32: Row.Targets of all rows

	file   []byte  // the mapped file up to the end of the columns
	unread *unread // checksums of a cache file, and which pages were compared; nil = not a cache file
}

// storeHead holds what is known about all rows together.
type storeHead struct {
	Key    string
	Rows   uint64
	Tokens uint64
	MaxID  int32 // the largest token id
	// Borders is the number of borders between sequences, over all rows; 0 = every row is one sequence.
	Borders uint64 `json:",omitempty"`
	// Labelled reports whether rows have a Desirability.
	Labelled bool `json:",omitempty"`
	// Weighted tells that rows have weights.
	Weighted bool `json:",omitempty"`
	// Targets is the number of targets, over all rows; 0 = no row has one.
	Targets uint64 `json:",omitempty"`

	Digest string // digest of the rows
	Sums   string // SHA-256 of the checksums of the pages
	Report Report // its places have no path of the source
}

const trainedBit = 1 << 31

// columnBytes is the number of bytes of a row outside its words.
const columnBytes = 4*8 + 4

// newStore finds the columns in body, which holds words and columns one after the other.
func newStore(head storeHead, path string, body []byte) *store {
	s := &store{head: head, path: path}
	take := func(n uint64) []byte {
		part := body[:n:n]
		body = body[n:]
		return part
	}
	s.words = take(4 * head.Tokens)
	for _, column := range []*[]byte{&s.ends, &s.hashes, &s.indices, &s.lines} {
		*column = take(8 * head.Rows)
	}
	s.trained = take(4 * head.Rows)
	if head.Borders > 0 {
		s.counts, s.borders = take(8*head.Rows), take(4*head.Borders)
	}
	if head.Labelled {
		s.labels = take(head.Rows)
	}
	if head.Weighted {
		s.weights = take(4 * head.Tokens)
	}
	if head.Targets > 0 {
		s.aimed, s.targets = take(8*head.Rows), take(4*head.Targets)
	}
	return s
}

func u64(column []byte, i int) uint64 { return binary.LittleEndian.Uint64(column[8*i:]) }

// span returns the half-open range of row i in words.
func (s *store) span(i int) (from, to uint64) {
	if i > 0 {
		from = u64(s.ends, i-1)
	}
	return from, u64(s.ends, i)
}

func (s *store) Len() int { return int(s.head.Rows) }

func (s *store) Length(i int) int {
	from, to := s.span(i)
	runtime.KeepAlive(s) // a mapping is released with its store
	return int(to - from)
}

func (s *store) Trained(i int) int {
	n := binary.LittleEndian.Uint32(s.trained[4*i:])
	runtime.KeepAlive(s)
	return int(n)
}

// Borders returns Row.Borders of row i.
func (s *store) Borders(i int) []int32 {
	if s.counts == nil {
		return nil
	}
	from, to := uint64(0), u64(s.counts, i)
	if i > 0 {
		from = u64(s.counts, i-1)
	}
	if from > to || to > s.head.Borders { // only in a mapped file that has changed since Verify
		rescue.Stop(s.changed())
	}
	var borders []int32
	for ; from < to; from++ {
		borders = append(borders, int32(binary.LittleEndian.Uint32(s.borders[4*from:])))
	}
	runtime.KeepAlive(s)
	return borders
}

// label returns Row.Desirable of row i.
func (s *store) label(i int) Desirability {
	if s.labels == nil {
		return Unlabelled
	}
	return Desirability(s.labels[i])
}

// Hash is Row.hash of row i.
func (s *store) Hash(i int) uint64 {
	h := u64(s.hashes, i)
	runtime.KeepAlive(s)
	return h
}

// Continues reports whether the row is from the same source row as the one before.
func (s *store) Continues(i int) bool {
	same := u64(s.indices, i-1) == u64(s.indices, i)
	runtime.KeepAlive(s)
	return same
}

func (s *store) Row(i int) Row {
	from, to := s.span(i)
	if from > to || to > s.head.Tokens { // only in a mapped file that has changed since Verify
		rescue.Stop(s.changed())
	}
	words := s.words[4*from : 4*to]
	r := Row{Index: int(u64(s.indices, i)), Line: int(u64(s.lines, i)), Source: s.path}
	r.IDs, r.Labels = fromWords(words)
	r.Borders, r.Desirable, r.Weights, r.Targets = s.Borders(i), s.label(i), s.weightsAt(from, to), s.targetsOf(i)
	if s.file != nil && slices.Max(r.IDs) > s.head.MaxID {
		rescue.Stop(s.changed())
	}
	runtime.KeepAlive(s)
	return r
}

// changed returns the error of rows that are no longer as they were written.
func (s *store) changed() error {
	if s.unread == nil {
		return &rescue.ChangedError{Path: "the temporary file with the tokens of " + s.path}
	}
	return &rescue.ChangedError{Path: s.unread.path}
}

// fromWords returns the ids and labels of a row's words.
func fromWords(words []byte) (ids, labels []int32) {
	ids, labels = newRow(len(words) / 4)
	for t := range ids {
		w := binary.LittleEndian.Uint32(words[4*t:])
		ids[t], labels[t] = int32(w&^trainedBit), Ignore
		if w&trainedBit != 0 {
			labels[t] = ids[t]
		}
	}
	return ids, labels
}

// MaxID returns the largest token id of the rows.
func (s *store) MaxID() int32 { return s.head.MaxID }

// Digest returns digest(s), which was recorded when the rows were written.
func (s *store) Digest() (string, bool) { return s.head.Digest, true }

// newRow returns slices for the ids and labels of a row, in one allocation of their exact size.
func newRow(n int) (ids, labels []int32) {
	both := make([]int32, 2*n)
	return both[:n:n], both[n:]
}

// check rejects inconsistent columns, since damaged data can have a correct checksum.
func (s *store) check() error {
	n := uint64(0)
	for i := range s.Len() {
		end := u64(s.ends, i)
		if end <= n || end > s.head.Tokens || uint64(binary.LittleEndian.Uint32(s.trained[4*i:])) > end-n ||
			u64(s.indices, i) >= maxPlace || u64(s.lines, i) >= maxPlace {
			return errCacheRows
		}
		if !s.checkGroup(i, end-n) || !s.checkTargets(i) {
			return errCacheRows
		}
		n = end
	}
	if n != s.head.Tokens || n == 0 || s.head.Report.Kept != s.Len() || !s.checkWeights() {
		return errCacheRows
	}
	return nil
}

// checkGroup reports whether the borders and the label of row i are valid for a row of the given number of tokens.
func (s *store) checkGroup(i int, tokens uint64) bool {
	if s.labels != nil && (s.label(i) < Undesirable || s.label(i) > Desirable) {
		return false
	}
	if s.counts == nil {
		return true
	}
	from, to := uint64(0), u64(s.counts, i)
	if i > 0 {
		from = u64(s.counts, i-1)
	}
	if from > to || to > s.head.Borders || to-from >= MaxSequences || i == s.Len()-1 && to != s.head.Borders {
		return false
	}
	return tokens <= math.MaxInt32 && checkGroup(s.Borders(i), int(tokens)) == nil
}

// maxPlace bounds row and line numbers.
const maxPlace = 1 << 62
