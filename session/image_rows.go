package session

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/vision/tower"
)

// ImageValues says how batches hold images.
type ImageValues struct {
	Type kernel.DType // of embeddings
	tower.Description
}

// The batch's values of images: rows of embeddings, for each token the row that replaces its own, -1 = none, rows that
// layers add to their results, the coordinates of each token's position, and the spans of tokens that see one another.
const (
	nameImageRows        = "image_rows"
	nameImageFrom        = "image_from"
	nameImageCoordinates = "image_coordinates"
	nameImageSpans       = "image_spans"
)

// nameAddedRows is the name of the rows that a layer adds.
func nameAddedRows(layer int) string { return fmt.Sprintf("image_rows_%d", layer+1) }

// declare makes the network read images from a batch of so many tokens, and returns nn.Batch.Spans.
func (v *ImageValues) declare(n *nn.Net, prefix string, tokens, width int) (spans *nn.Value) {
	from := n.Batch(prefix+nameImageFrom, kernel.T(kernel.I32, tokens))
	rows := func(name string) *nn.Value { return n.Batch(prefix+name, kernel.T(v.Type, tokens, width)) }
	embeddings, added := rows(nameImageRows), make([]*nn.Value, v.Added)
	for i := range added {
		added[i] = rows(nameAddedRows(i))
	}
	n.Images = func(x *nn.Value) *nn.Value { return n.Apply(kernel.SetRows{}, x, embeddings, from) }
	n.ImagesAfter = func(layer int, x *nn.Value) *nn.Value {
		if layer >= len(added) {
			return x
		}
		return n.Apply(kernel.SetRows{Mode: kernel.AddRows}, x, added[layer], from)
	}
	if v.Sections != [3]int{} {
		coordinates := n.Batch(prefix+nameImageCoordinates, kernel.T(kernel.I32, 3*tokens))
		n.Angles = func(table *nn.Value) *nn.Value {
			return n.Apply(kernel.AxisAngles{Rows: v.Sections[1], Columns: v.Sections[2],
				Contiguous: v.Contiguous}, table, coordinates)
		}
	}
	if v.Spans {
		spans = n.Batch(prefix+nameImageSpans, kernel.T(kernel.I32, 2*tokens))
	}
	return spans
}

// ImageRows is the memory of a batch's embeddings of images. nil = the plan has none.
type ImageRows struct {
	rows        []kernel.Tensor // [M,C] each: of tokens and of the first layers, of ImageValues.Type
	from        []int32         // [M]
	coordinates []int32         // [3*M]; nil = positions have one coordinate
	spans       []int32         // [2*M], kernel.Attention's; nil = no tokens see later ones
	used        int             // rows
	names       []string        // of rows
}

// Named returns the names of the values that the device needs beside those of ImageRowsOf: the embeddings, if there are
// any since Clear.
func (r *ImageRows) Named() []string {
	if r == nil || r.used == 0 {
		return nil
	}
	return r.names
}

// bindImages finds the values of images in the memory of a plan.
func (b *Batch) bindImages() {
	var names []string
	b.images, names = ImageRowsOf(b.store, b.prefix)
	b.names = append(b.names, names...)
}

// ImageRowsOf finds the values of images in the memory of a plan, and the names that every Put sends; nil = the plan
// has no images. Named has the others.
func ImageRowsOf(m graph.Store, prefix string) (*ImageRows, []string) {
	r, name := &ImageRows{}, prefix+nameImageFrom
	from, err := m.Tensor(name)
	if err != nil {
		return nil, nil
	}
	names := []string{name}
	r.from = from.I32()
	for name := nameImageRows; ; name = nameAddedRows(len(r.rows) - 1) {
		rows, err := m.Tensor(prefix + name)
		if err != nil {
			break
		}
		r.rows, r.names = append(r.rows, rows), append(r.names, prefix+name)
	}
	if at, err := m.Tensor(prefix + nameImageCoordinates); err == nil {
		r.coordinates, names = at.I32(), append(names, prefix+nameImageCoordinates)
	}
	if at, err := m.Tensor(prefix + nameImageSpans); err == nil {
		r.spans, names = at.I32(), append(names, prefix+nameImageSpans)
	}
	return r, names
}

// Clear removes all embeddings.
func (r *ImageRows) Clear() {
	if r == nil {
		return
	}
	for i := range r.from {
		r.from[i] = -1
	}
	clear(r.spans)
	r.used = 0
}

// Turns reports whether tokens have positions of three coordinates, which SetPositions writes.
func (r *ImageRows) Turns() bool { return r != nil && r.coordinates != nil }

// SetPosition gives a token of the batch a position that is the same in all coordinates.
func (r *ImageRows) SetPosition(token int, position int32) {
	r.setCoordinates(token, [3]int32{position, position, position})
}

func (r *ImageRows) setCoordinates(token int, at [3]int32) { copy(r.coordinates[3*token:], at[:]) }

// SetPositions gives the tokens from at on the coordinates of a row's tokens from first on, whose ids all are.
func (r *ImageRows) SetPositions(all []int32, first, at int, images *dataset.RowImages) {
	coordinates, _ := Coordinates(all, images)
	for i, c := range coordinates[first:] {
		r.setCoordinates(at+i, c)
	}
}

// Coordinates returns the positions of a row's tokens in time, rows and columns, and the position after them. The
// tokens of an image have the coordinates of its grid, and what follows has the position after the grid's longer side.
// Where the model's positions have one coordinate, all are the token's number.
func Coordinates(ids []int32, images *dataset.RowImages) (all [][3]int32, next int32) {
	list := images.List
	for t := 0; t < len(ids); {
		m, ok := (*readImage)(nil), false
		if ids[t] == images.Token && len(list) > 0 {
			m, ok = list[0].(*readImage)
			list = list[1:]
		}
		if !ok || m.of.description.Sections == [3]int{} {
			all = append(all, [3]int32{next, next, next})
			t, next = t+1, next+1
			continue
		}
		for r := range int32(m.grid.Rows) {
			for c := range int32(m.grid.Cols) {
				if t < len(ids) {
					all = append(all, [3]int32{next, next + r, next + c})
					t++
				}
			}
		}
		next += int32(max(m.grid.Rows, m.grid.Cols))
	}
	return all, next
}

// add writes a token's embedding as the next row, and what the first layers add to its results.
func (r *ImageRows) add(token int, values []float32) {
	for i, rows := range r.rows {
		width := rows.Shape[1]
		at, from := r.used*width, values[i*width:][:width]
		switch rows.DType {
		case kernel.BF16:
			for j, v := range from {
				rows.U16()[at+j] = kernel.ToBF16(v)
			}
		case kernel.F16:
			for j, v := range from {
				rows.U16()[at+j] = kernel.ToF16(v)
			}
		default:
			copy(rows.F32()[at:], from)
		}
	}
	r.from[token] = int32(r.used)
	r.used++
}

// errNoImageRows is the error of rows with images in a plan without them.
var errNoImageRows = errors.New("rows have images, and this step was planned without them")

// span is a range of a row's tokens that see one another: a run of tokens of images.
type span struct{ from, to int }

// spansOf returns the spans of ids.
func spansOf(ids []int32, token int32) (all []span) {
	for t, id := range ids {
		switch {
		case id != token:
		case t > 0 && ids[t-1] == token:
			all[len(all)-1].to = t + 1
		default:
			all = append(all, span{t, t + 1})
		}
	}
	return all
}

// Uncut returns how many of the next tokens of a row a step of at most most tokens reads: none of its ends lies within
// tokens that see one another.
func Uncut(next []int32, most int, images *dataset.RowImages) (int, error) {
	most = min(most, len(next))
	if images == nil || len(images.List) == 0 {
		return most, nil
	}
	m, ok := images.List[0].(*readImage)
	if !ok || !m.of.description.Spans {
		return most, nil
	}
	for _, s := range spansOf(next, images.Token) {
		if s.from < most && s.to > most {
			most = s.from
		}
	}
	if most == 0 {
		return 0, errors.New("an image has more tokens than a step reads at once, and they see one another")
	}
	return most, nil
}

// Place writes the embeddings of images for a part of a row: ids, which begin at token at of the batch. The row has
// skip tokens of images before them. A part ends where Uncut says.
func (r *ImageRows) Place(ids []int32, at, skip int, images *dataset.RowImages) error {
	if r == nil {
		return errNoImageRows
	}
	if r.spans != nil {
		for _, s := range spansOf(ids, images.Token) {
			for t := s.from; t < s.to; t++ {
				copy(r.spans[2*(at+t):], []int32{int32(t - s.from), int32(s.to - 1 - t)})
			}
		}
	}
	var values []float32
	list, width := images.List, len(r.rows)*r.rows[0].Shape[1]
	for t, id := range ids {
		if id != images.Token {
			continue
		}
		for len(values) == 0 {
			if len(list) == 0 {
				return errors.New("a row has more tokens of images than its images have embeddings")
			}
			var err error
			if values, err = list[0].Embeddings(); err != nil {
				return fmt.Errorf("embeddings of an image: %w", err)
			}
			list = list[1:]
			cut := min(skip, len(values)/width)
			values, skip = values[cut*width:], skip-cut
		}
		r.add(at+t, values[:width])
		values = values[width:]
	}
	return nil
}

// fillImages writes the embeddings of a micro-batch's images, and the coordinates of its tokens. Positions then are the
// tokens' own numbers, by which layers find their angles.
func (b *Batch) fillImages(from dataset.Batch) error {
	b.images.Clear()
	for t, position := range from.Positions {
		if b.images.Turns() {
			b.images.SetPosition(t, position)
			b.Positions[t] = int32(t)
		}
	}
	for _, images := range from.Images {
		ids, _ := from.Row(images.Row)
		at := from.Starts[images.Row]
		if err := b.images.Place(ids, at, 0, images.RowImages); err != nil {
			return err
		}
		if b.images.Turns() {
			b.images.SetPositions(ids, 0, at, images.RowImages)
		}
	}
	return nil
}
