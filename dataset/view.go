package dataset

import "sort"

// join is several Rows one after the other.
type join []Rows

// whole is the rows as one: the only ones themselves, where there is one part.
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

// joined finds a row's part by bisection.
type joined struct {
	parts join
	first []int // index of each part's first row, and of the end
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

// selected is some of the rows, in an order of its own and some of them perhaps twice.
type selected struct {
	rows    Rows
	indices []int32
}

func (s selected) Len() int          { return len(s.indices) }
func (s selected) Length(i int) int  { return s.rows.Length(int(s.indices[i])) }
func (s selected) Trained(i int) int { return s.rows.Trained(int(s.indices[i])) }
func (s selected) Row(i int) Row     { return s.rows.Row(int(s.indices[i])) }
