package dataset

// heldRows holds rows of a stream in memory: one word a token, as in a store.
type heldRows struct {
	words []byte
	rows  []heldRow
}

type heldRow struct {
	end         int // tokens up to the end of the row
	trained     int
	index, line int
	borders     []int32 // Row.Borders
	desirable   Desirability
	weights     []float32 // Row.Weights
	targets     []float32 // Row.Targets
	hash        uint64
	source      string
	at          StreamState // place of a window that begins with this row, except for the window's number
	before      float64     // fraction of the epoch before the row
}

func (h *heldRows) add(r heldRow, words []byte) {
	h.words = append(h.words, words...)
	r.end = len(h.words) / 4
	h.rows = append(h.rows, r)
}

// cut separates the first n rows from the others and copies the others to memory of their own.
func (h heldRows) cut(n int) (first, rest heldRows) {
	end := h.rows[n-1].end
	first = heldRows{h.words[: 4*end : 4*end], h.rows[:n:n]}
	rest = heldRows{make([]byte, 0, len(h.words)), make([]heldRow, 0, len(h.rows))}
	rest.words = append(rest.words, h.words[4*end:]...)
	for _, r := range h.rows[n:] {
		r.end -= end
		rest.rows = append(rest.rows, r)
	}
	return first, rest
}

func (h heldRows) tokens() int {
	if len(h.rows) == 0 {
		return 0
	}
	return h.rows[len(h.rows)-1].end
}

func (h heldRows) span(i int) (from, to int) {
	if i > 0 {
		from = h.rows[i-1].end
	}
	return from, h.rows[i].end
}

func (h heldRows) Len() int { return len(h.rows) }

func (h heldRows) Length(i int) int {
	from, to := h.span(i)
	return to - from
}

func (h heldRows) Trained(i int) int { return h.rows[i].trained }

// Borders returns Row.Borders of row i.
func (h heldRows) Borders(i int) []int32 { return h.rows[i].borders }

// Hash is Row.hash of row i.
func (h heldRows) Hash(i int) uint64 { return h.rows[i].hash }

func (h heldRows) Row(i int) Row {
	from, to := h.span(i)
	r := h.rows[i]
	row := Row{Index: r.index, Line: r.line, Source: r.source, Borders: r.borders, Desirable: r.desirable,
		Weights: r.weights, Targets: r.targets}
	row.IDs, row.Labels = fromWords(h.words[4*from : 4*to])
	return row
}
