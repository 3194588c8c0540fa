package dataset

import (
	"os"
	"path/filepath"
)

// AllLoader returns a loader of the training rows and then the validation rows, for work that needs each row once. Each
// of its batches packs rows end to end into the given number of tokens, or into those of the longest row if it has
// more. longest is the most tokens of a segment, at least those of the longest sequence. It must not be called for a
// stream.
func (s *Set) AllLoader(tokens, longest int) (*Loader, error) {
	if s.stream != nil {
		panic("load all rows: the rows of a stream are not known")
	}
	rows, opt := followedBy(s.Train, s.Val), s.options(1)
	opt.T, opt.Packing, opt.Padded = min(max(tokens, opt.T), max(maxEvalTokens, opt.T)), true, false
	opt.Longest = min(longest, opt.T)
	return NewLoader(rows, opt)
}

// followedBy returns the rows of a and then those of b. Both share prefixes, or neither does.
func followedBy(a, b Rows) Rows {
	if b == nil || b.Len() == 0 {
		return a
	}
	x, shares := a.(sharing)
	y, both := b.(sharing)
	if !shares || !both {
		return join{a, b}.whole()
	}
	return sharing{
		rows:   join{x.rows, y.rows}.whole(),
		prefix: append(x.prefix[:len(x.prefix):len(x.prefix)], y.prefix...),
		saved:  append(x.saved[:len(x.saved):len(x.saved)], y.saved...),
	}
}

// Sizes counts the rows of a set.
type Sizes struct{ Rows, Sequences, Tokens int }

// Sizes returns the sizes of the training rows and of the validation rows. A prefix that sequences share is no sequence
// of its own. It must not be called for a stream.
func (s *Set) Sizes() (train, val Sizes) {
	if s.stream != nil {
		panic("sizes of all rows: the rows of a stream are not known")
	}
	return countRows(s.Train), countRows(s.Val)
}

func countRows(rows Rows) (n Sizes) {
	n.Rows = rows.Len()
	for i := range n.Rows {
		n.Sequences, n.Tokens = n.Sequences+sequencesOf(rows, i), n.Tokens+rows.Length(i)
	}
	return n
}

// Folder returns the folder in which a configuration keeps what is computed from its rows; "" = it keeps nothing.
func (c Config) Folder() string {
	if c.CacheDir != CacheAuto {
		return c.CacheDir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // without a home folder nothing is kept
	}
	return filepath.Join(dir, "tierlora", "tokens")
}
