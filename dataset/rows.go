package dataset

// Rows gives random access to tokenised rows, in memory or in a file. It is safe for concurrent use.
type Rows interface {
	// Len returns the number of rows.
	Len() int
	// Length returns the number of tokens of row i.
	Length(i int) int
	// Trained returns the number of trained tokens of row i.
	Trained(i int) int
	// Row returns row i; the caller must not change it.
	Row(i int) Row
}

// Optional capabilities of Rows: facts that are known without reading the tokens.
type (
	hashed   interface{ Hash(i int) uint64 }      // Row.hash of row i
	digested interface{ Digest() (string, bool) } // digest of the rows; false if it is unknown
	bounded  interface{ MaxID() int32 }           // upper bound of all ids
	verified interface{ Verify(i int) error }     // checks that the stored row i is as it was written
	split    interface{ Continues(i int) bool }   // reports whether row i > 0 is from the same source row as row i-1
)

// Memory holds rows in memory.
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

// MaxID returns an upper bound of the ids of rows; false if none is known without reading the rows.
func MaxID(rows Rows) (int32, bool) {
	switch r := rows.(type) {
	case bounded:
		return r.MaxID(), true
	case subset:
		return MaxID(r.rows)
	case sharing:
		return MaxID(r.rows)
	case selected:
		return MaxID(r.rows)
	case mismatched:
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

// verify checks the stored data of row i before its first use.
func verify(rows Rows, i int) error {
	switch r := rows.(type) {
	case verified:
		return r.Verify(i)
	case subset:
		return verify(r.rows, r.at(i))
	case sharing:
		return verify(r.rows, i)
	case selected:
		return verify(r.rows, int(r.indices[i]))
	case mismatched:
		return r.verify(i)
	case joined:
		part, i := r.at(i)
		return verify(part, i)
	}
	return nil
}
