package dataset

import "sort"

// Rows are tokenised rows that can be read in any order, from memory or from a file. They are safe for concurrent use.
type Rows interface {
	Len() int
	Length(i int) int  // tokens of row i
	Trained(i int) int // trained tokens of row i
	Row(i int) Row     // the caller changes nothing in it
}

// Optional capabilities of Rows: what is known without reading the tokens.
type (
	hashed   interface{ Hash(i int) uint64 }      // Row.hash of row i
	digested interface{ Digest() (string, bool) } // digest of the rows; false where it is not known
	bounded  interface{ MaxID() int32 }           // no id is larger
)

// Memory is rows in memory.
type Memory []Row

func (m Memory) Len() int          { return len(m) }
func (m Memory) Length(i int) int  { return len(m[i].IDs) }
func (m Memory) Trained(i int) int { return m[i].Trained() }
func (m Memory) Row(i int) Row     { return m[i] }

// subset is some rows of others, in their order.
type subset struct {
	Rows
	held    []int32 // rising; indices into Rows
	without bool    // the subset is what is not held
}

func (s subset) Len() int {
	if s.without {
		return s.Rows.Len() - len(s.held)
	}
	return len(s.held)
}

// at is the row's index in Rows. Without a list of its own the larger part of a split costs no memory.
func (s subset) at(i int) int {
	if !s.without {
		return int(s.held[i])
	}
	// held[j]-j rows that are not held stand before held[j].
	return i + sort.Search(len(s.held), func(j int) bool { return int(s.held[j])-j > i })
}

func (s subset) Length(i int) int  { return s.Rows.Length(s.at(i)) }
func (s subset) Trained(i int) int { return s.Rows.Trained(s.at(i)) }
func (s subset) Row(i int) Row     { return s.Rows.Row(s.at(i)) }
func (s subset) Hash(i int) uint64 { return hashOf(s.Rows, s.at(i)) }

// hashOf is Row.hash of row i.
func hashOf(rows Rows, i int) uint64 {
	if h, ok := rows.(hashed); ok {
		return h.Hash(i)
	}
	return rows.Row(i).hash()
}

// MaxID is an upper bound of the ids of rows, false where none is known without reading them.
func MaxID(rows Rows) (int32, bool) {
	switch r := rows.(type) {
	case subset:
		return MaxID(r.Rows)
	case bounded:
		return r.MaxID(), true
	}
	return 0, false
}
