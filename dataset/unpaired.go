package dataset

// unpairedBlock is the number of source rows whose desirable answers come before their undesirable ones in a data set
// of pairs, as in TRL.
const unpairedBlock = 1000

// unpair orders the rows that were made of pairs, and adds mismatched sequences, as the configuration says.
func (s *Set) unpair() (err error) {
	if !s.Config.Unpaired || s.Config.look != nil || s.stream != nil {
		return nil
	}
	for _, rows := range []*Rows{&s.Train, &s.Val} {
		if *rows, err = unpairedOrder(*rows); err != nil {
			return err
		}
		if s.Config.Mismatched > 0 {
			if *rows, err = mismatch(*rows, s.Config.Mismatched, s.Config.MaxLength); err != nil {
				return err
			}
		}
	}
	return nil
}

// unpairedOrder returns rows in TRL's order. Rows without pairs keep their order.
func unpairedOrder(rows Rows) (Rows, error) {
	order, block := make([]int32, 0, rows.Len()), make([]int32, 0, 2*unpairedBlock)
	undesirable := make([]bool, 0, 2*unpairedBlock)
	flush := func() {
		for _, side := range []bool{false, true} {
			for k, i := range block {
				if undesirable[k] == side {
					order = append(order, i)
				}
			}
		}
		block, undesirable = block[:0], undesirable[:0]
	}
	var before Row
	sources, paired := 0, false
	for i := range rows.Len() {
		if err := verify(rows, i); err != nil {
			return nil, err
		}
		r := rows.Row(i)
		if same := i > 0 && r.Index == before.Index && r.Source == before.Source; !same {
			if sources == unpairedBlock {
				flush()
				sources = 0
			}
			sources++
		} else if r.Desirable != before.Desirable {
			paired = true
		}
		block, undesirable = append(block, int32(i)), append(undesirable, r.Desirable == Undesirable)
		before = r
	}
	flush()
	if !paired {
		return rows, nil
	}
	return selected{rows, order}, nil
}

// mismatched are labelled rows that each have a second sequence: their prompt with the answer of another row. The rows
// beneath hold whole answers, which it cuts at max_length.
type mismatched struct {
	rows  Rows
	among int // consecutive rows that exchange answers
	limit int // the most tokens of a sequence
	sizes []mismatchedSize
}

// mismatchedSize holds what is known about a row without reading its tokens.
type mismatchedSize struct {
	own     int32 // tokens of the row's own sequence
	all     int32 // tokens of both sequences
	trained int32 // trained tokens of both sequences
}

// mismatch returns a view of labelled rows with mismatched sequences. Rows that are not single labelled answers have
// none and are returned as they are: the objective refuses them by the report.
func mismatch(rows Rows, among, limit int) (Rows, error) {
	m := mismatched{rows: rows, among: among, limit: limit, sizes: make([]mismatchedSize, rows.Len())}
	for i := range m.sizes {
		if err := verify(rows, i); err != nil {
			return nil, err
		}
		r := rows.Row(i)
		if r.Desirable == Unlabelled || r.Borders != nil || r.Weights != nil {
			return rows, nil
		}
		r = m.Row(i)
		m.sizes[i] = mismatchedSize{r.Borders[0], int32(len(r.IDs)), int32(r.Trained())}
	}
	return m, nil
}

// other returns the row whose answer follows the prompt of row i in its second sequence: the one before it among the
// rows that exchange answers, and the last of these for the first.
func (m mismatched) other(i int) int {
	first := i - i%m.among
	if i == first {
		return min(first+m.among, m.rows.Len()) - 1
	}
	return i - 1
}

// answer returns row i with its own sequence alone.
func (m mismatched) answer(i int) Row {
	r := m.rows.Row(i)
	n := min(len(r.IDs), m.limit)
	r.IDs, r.Labels = r.IDs[:n], r.Labels[:n]
	return r
}

// Row returns row i: its own sequence, then its prompt with another row's answer. The answer of a row begins at its
// first trained token.
func (m mismatched) Row(i int) Row {
	r, other := m.answer(i), m.rows.Row(m.other(i))
	prompt, answer := r.IDs[:maskedPrefix(r.Labels)], maskedPrefix(other.Labels)
	n := min(len(prompt)+len(other.IDs)-answer, m.limit)
	ids, labels := newRow(len(r.IDs) + n)
	own := copy(ids, r.IDs)
	copy(labels, r.Labels)
	at := own + copy(ids[own:], prompt)
	for t := own; t < at; t++ {
		labels[t] = Ignore
	}
	copy(ids[at:], other.IDs[answer:])
	copy(labels[at:], other.Labels[answer:])
	r.IDs, r.Labels, r.Borders = ids, labels, []int32{int32(own)}
	return r
}

func (m mismatched) Len() int          { return m.rows.Len() }
func (m mismatched) Length(i int) int  { return int(m.sizes[i].all) }
func (m mismatched) Trained(i int) int { return int(m.sizes[i].trained) }

// Borders returns Row.Borders of row i.
func (m mismatched) Borders(i int) []int32 { return []int32{m.sizes[i].own} }

// verify checks the stored data of both rows that row i is made of.
func (m mismatched) verify(i int) error {
	if err := verify(m.rows, i); err != nil {
		return err
	}
	return verify(m.rows, m.other(i))
}
