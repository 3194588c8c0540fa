package dataset

// Rows are tokenised rows that can be read in any order, from memory or from a file. They are safe for concurrent use.
type Rows interface {
	Len() int
	Length(i int) int  // tokens of row i
	Trained(i int) int // trained tokens of row i
	Row(i int) Row     // the caller changes nothing in it
}

// Memory is rows in memory.
type Memory []Row

func (m Memory) Len() int          { return len(m) }
func (m Memory) Length(i int) int  { return len(m[i].IDs) }
func (m Memory) Trained(i int) int { return m[i].Trained() }
func (m Memory) Row(i int) Row     { return m[i] }
