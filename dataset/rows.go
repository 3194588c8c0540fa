package dataset

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
	verified interface{ Verify(i int) error }     // what is stored of row i is what was written
)

// Memory is rows in memory.
type Memory []Row

func (m Memory) Len() int          { return len(m) }
func (m Memory) Length(i int) int  { return len(m[i].IDs) }
func (m Memory) Trained(i int) int { return m[i].Trained() }
func (m Memory) Row(i int) Row     { return m[i] }

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
	case bounded:
		return r.MaxID(), true
	case subset:
		return MaxID(r.rows)
	case selected:
		return MaxID(r.rows)
	case joined:
		most := int32(0)
		for _, part := range r.parts {
			id, known := MaxID(part)
			if !known {
				return 0, false
			}
			most = max(most, id)
		}
		return most, true
	}
	return 0, false
}

// verify checks what is stored of row i before it is used, where that was not done yet.
func verify(rows Rows, i int) error {
	switch r := rows.(type) {
	case verified:
		return r.Verify(i)
	case subset:
		return verify(r.rows, r.at(i))
	case selected:
		return verify(r.rows, int(r.indices[i]))
	case joined:
		part, i := r.at(i)
		return verify(part, i)
	}
	return nil
}
