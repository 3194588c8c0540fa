package dataset

import "sort"

// join is the concatenation of several Rows.
type join []Rows

// whole returns the concatenation as Rows. A single part is returned itself.
func (j join) whole() Rows {
	if len(j) == 1 {
		return j[0]
	}
	v := joined{parts: j, first: make([]int, len(j)+1)}
	for i, rows := range j {
		v.first[i+1] = v.first[i] + rows.Len()
	}
	return v
}

// joined finds the part of a row by bisection.
type joined struct {
	parts join
	first []int // index of the first row of each part, and the end
}

func (v joined) at(i int) (Rows, int) {
	p := sort.SearchInts(v.first, i+1) - 1
	return v.parts[p], i - v.first[p]
}

func (v joined) Len() int { return v.first[len(v.parts)] }

func (v joined) Length(i int) int {
	rows, i := v.at(i)
	return rows.Length(i)
}

func (v joined) Trained(i int) int {
	rows, i := v.at(i)
	return rows.Trained(i)
}

func (v joined) Row(i int) Row {
	rows, i := v.at(i)
	return rows.Row(i)
}

func (v joined) Hash(i int) uint64 {
	rows, i := v.at(i)
	return hashOf(rows, i)
}

func (v joined) Continues(i int) bool {
	rows, i := v.at(i)
	return continues(rows, i)
}

// selected is a selection of rows in a given order, possibly with repetitions.
type selected struct {
	rows    Rows
	indices []int32
}

func (s selected) Len() int          { return len(s.indices) }
func (s selected) Length(i int) int  { return s.rows.Length(int(s.indices[i])) }
func (s selected) Trained(i int) int { return s.rows.Trained(int(s.indices[i])) }
func (s selected) Row(i int) Row     { return s.rows.Row(int(s.indices[i])) }
func (s selected) Hash(i int) uint64 { return hashOf(s.rows, int(s.indices[i])) }

// subset is the rows that are not held out, in order. Its memory grows only with the number of held-out rows.
type subset struct {
	rows Rows
	held []int32 // ascending indices of the held-out rows
}

func (s subset) Len() int { return s.rows.Len() - len(s.held) }

// at returns the index of row i in rows: held[j]-j rows that are not held out come before held[j].
func (s subset) at(i int) int {
	return i + sort.Search(len(s.held), func(j int) bool { return int(s.held[j])-j > i })
}

func (s subset) Length(i int) int  { return s.rows.Length(s.at(i)) }
func (s subset) Trained(i int) int { return s.rows.Trained(s.at(i)) }
func (s subset) Row(i int) Row     { return s.rows.Row(s.at(i)) }
func (s subset) Hash(i int) uint64 { return hashOf(s.rows, s.at(i)) }
