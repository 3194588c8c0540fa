package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/chat"
)

// weightKey is the column of a row's weight, which is read with Config.Weights.
const weightKey = "weight"

// weigh reads the weight of a row, and refuses weights where the run takes none.
func (s *loading) weigh(ex *Example, o Object) error {
	if !s.cfg.Weights {
		if ex.Conversation != nil {
			return ex.Conversation.CheckWeights()
		}
		return nil
	}
	if !o.Has(weightKey) {
		return nil
	}
	raw, _ := o.lookup(weightKey)
	if ex.Group != nil || ex.Completions != nil || ex.Desirable != Unlabelled {
		return fmt.Errorf("field %q: rows of preferences have no weights: remove dataset.weights or the field",
			weightKey)
	}
	w, err := parseWeight(raw)
	if err != nil {
		return fmt.Errorf("field %q %w", weightKey, err)
	}
	ex.Weight = &w
	return nil
}

// parseWeight reads a weight from JSON: a number, or a text of one as CSV files have it.
func parseWeight(raw []byte) (float64, error) {
	text := string(raw)
	switch kind := kindOf(raw); {
	case kind == "a string":
		text = textOf(raw)
	case kind != "a number":
		return 0, fmt.Errorf("is %s, want a number", kind)
	}
	w, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("is %.40q, want a number", text)
	}
	if !(w >= 0 && w <= chat.MaxWeight) {
		return 0, fmt.Errorf("is %.40s, want 0 to %d", text, chat.MaxWeight)
	}
	return w, nil
}

// weigh multiplies the weights of the tokens by the example's. With a weight of 0 no token is trained.
func (e *encoded) weigh() {
	switch {
	case e.weight == nil || *e.weight == 1:
		return
	case *e.weight == 0:
		for t := range e.labels {
			e.labels[t] = Ignore
		}
		return
	}
	if e.weights == nil {
		e.weights = ones(len(e.ids))
	}
	for t := range e.weights {
		e.weights[t] *= float32(*e.weight)
	}
}

// ones returns n weights of one.
func ones(n int) []float32 {
	w := make([]float32, n)
	for t := range w {
		w[t] = 1
	}
	return w
}

// weightsOf returns the weights of a row that is kept: nil where all of its trained tokens have the weight one. The
// weights of other tokens are one, whatever the message around them says.
func weightsOf(weights []float32, labels []int32) []float32 {
	var own []float32
	for t, w := range weights {
		if labels[t] == Ignore || w == 1 {
			continue
		}
		if own == nil {
			own = ones(len(labels))
		}
		own[t] = w
	}
	return own
}

// addWeights adds the weights of a row that has some to its hash.
func (h *rowHash) addWeights(weights []float32) {
	for _, w := range weights {
		h.add(int32(math.Float32bits(w)))
	}
}

// appendWeights appends to a row of the digest the weights of a row that has some. Their first number is larger than
// the length with which the next row begins.
func appendWeights(buf []byte, weights []float32) []byte {
	if weights == nil {
		return buf
	}
	buf = binary.LittleEndian.AppendUint32(buf, 3<<30)
	for _, w := range weights {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(w))
	}
	return buf
}

// addWeights writes the column of weights, a number for each token. It begins with the first row that has weights,
// behind ones for the rows before it.
func (w *storeWriter) addWeights(r *booked, tokens int) error {
	h, column := &w.head, w.columns[8]
	if r.weights == nil && !h.Weighted {
		return nil
	}
	put := func(weights []float32) error {
		var buf []byte
		for _, x := range weights {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
		_, err := column.Write(buf)
		return err
	}
	if !h.Weighted {
		h.Weighted = true
		for before := h.Tokens - uint64(tokens); before > 0; {
			n := min(before, 1<<14)
			if err := put(ones(int(n))); err != nil {
				return err
			}
			before -= n
		}
	}
	if r.weights == nil {
		return put(ones(tokens))
	}
	return put(r.weights)
}

// weightsAt returns Row.Weights of the tokens from (inclusive) to to (exclusive).
func (s *store) weightsAt(from, to uint64) []float32 {
	if s.weights == nil {
		return nil
	}
	var weights []float32
	for t := from; t < to; t++ {
		w := math.Float32frombits(binary.LittleEndian.Uint32(s.weights[4*t:]))
		if w != 1 && weights == nil {
			weights = ones(int(to - from))
		}
		if weights != nil {
			weights[t-from] = w
		}
	}
	return weights
}

// checkWeights tells whether the weights of all tokens are such.
func (s *store) checkWeights() bool {
	for t := 0; t < len(s.weights); t += 4 {
		w := math.Float32frombits(binary.LittleEndian.Uint32(s.weights[t:]))
		if !(w >= 0 && w <= chat.MaxWeight*chat.MaxWeight) {
			return false
		}
	}
	return true
}

// placeWeights copies the weights of a row that lies from a token on.
func (b *Batch) placeWeights(row Row, at int) {
	if b.Weights == nil && row.Weights != nil {
		b.Weights = ones(len(b.IDs))
	}
	if row.Weights != nil {
		copy(b.Weights[at:], row.Weights)
	}
}

// RowWeights returns the weights of the row in place k of Rows; nil = all are one.
func (b Batch) RowWeights(k int) []float32 {
	if b.Weights == nil {
		return nil
	}
	return weightsOf(b.Weights[b.Starts[k]:b.Starts[k]+b.Length(k)], b.Labels[b.Starts[k]:b.Starts[k]+b.Length(k)])
}

// WeightReport is the part of a report that is about weights.
type WeightReport struct {
	Rows  int     `json:"rows,omitempty"`  // kept rows with a trained token whose weight is not one
	Least float64 `json:"least,omitempty"` // weight of such rows' trained tokens
	Most  float64 `json:"most,omitempty"`
}

func (r *WeightReport) count(b *booked) {
	if b.weights == nil {
		return
	}
	least, most := b.weightSpan[0], b.weightSpan[1]
	r.add(WeightReport{Rows: 1, Least: float64(least), Most: float64(most)})
}

// add sums up another report's numbers.
func (r *WeightReport) add(o WeightReport) {
	switch {
	case o.Rows == 0:
	case r.Rows == 0:
		*r = o
	default:
		r.Rows, r.Least, r.Most = r.Rows+o.Rows, min(r.Least, o.Least), max(r.Most, o.Most)
	}
}

// write writes a line of weights, where rows have some.
func (r WeightReport) write(line func(format string, args ...any)) {
	if r.Rows > 0 {
		line("weights: %s with weights from %.6g to %.6g", words.Counted(r.Rows, "row"), r.Least, r.Most)
	}
}

// weightSpan returns the least and the largest weight of trained tokens; both one without weights.
func weightSpan(weights []float32, labels []int32) (span [2]float32) {
	span = [2]float32{float32(math.Inf(1)), 0}
	for t, w := range weights {
		if labels[t] != Ignore {
			span = [2]float32{min(span[0], w), max(span[1], w)}
		}
	}
	if weights == nil {
		return [2]float32{1, 1}
	}
	return span
}

// weigh notes the weights of a row that people look at.
func (in *Inspected) weigh(weights []float32, labels []int32) {
	if weights != nil {
		span := weightSpan(weights, labels)
		in.Weights = span[:]
	}
}
