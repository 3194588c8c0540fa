package export

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// pieceLen is the most numbers of a tensor that are in memory as float32 at a time, except for one long row.
const pieceLen = 1 << 21

// mergedRows is the number of rows to which one thread adds the adapter at a time.
const mergedRows = 32

func cutWeight(name string) (module string, ok bool) { return strings.CutSuffix(name, ".weight") }

func isEmbedding(module string) bool { return strings.HasSuffix(module, "embed_tokens") }

// layer returns the name by which updates know a tensor.
func layer(name string) string { return strings.TrimSuffix(name, ".weight") }

// tensor returns a tensor of the base model by the model's name.
func (m *merging) tensor(name string) (weights.Tensor, error) {
	t, ok := m.s.Base.Tensors().Tensor(baseName(m.s, name))
	if !ok {
		return t, fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	return t, nil
}

// baseName returns the name of the base model's tensor from which a tensor of the merged model is made: the embeddings'
// for the head that an adapter unties from them.
func baseName(s *session.Session, name string) string {
	if _, ok := s.Base.Tensors().Tensor(name); !ok && name == adapter.HeadWeight && s.Net.UntiedHead() {
		return s.Base.Config.HeadName()
	}
	return name
}

// isNumbers reports whether a type is a floating-point type that a merge may change.
func isNumbers(d weights.DType) bool {
	return d == weights.F32 || d == weights.BF16 || d == weights.F16 || d == weights.F64
}

// target returns the type of a tensor in the file.
func (m *merging) target(t weights.Tensor) weights.DType {
	if d, ok := dtypes[m.o.DType]; ok && isNumbers(t.DType) {
		return d
	}
	return t.DType
}

// each reads a tensor in pieces of whole rows and calls see with the base's numbers and, for an adapted tensor, the
// sums; otherwise merged is base. Both are valid until the next piece.
func (m *merging) each(ctx context.Context, name string, see func(from int, base, merged []float32) error) error {
	return m.eachOf(ctx, name, 0, see)
}

// eachOf does what each does for a sample of rows spread over the tensor; 0 = all rows.
func (m *merging) eachOf(ctx context.Context, name string, sample int, see func(from int, base,
	merged []float32) error) error {
	t, err := m.tensor(name)
	if err != nil {
		return err
	}
	read, err := m.reader(name, t)
	if err != nil {
		return err
	}
	width := 1
	if len(t.Shape) > 0 {
		width = max(1, t.Shape[len(t.Shape)-1])
	}
	update, adapted := m.updates[layer(name)]
	n := t.Len()
	rows := max(1, pieceLen/width)
	step := rows * width
	if count := n / width; sample > 0 && sample < count {
		rows = max(1, sample/sampleGroups)
		step = count / min(sample, sampleGroups) * width
	}
	for from := 0; from < n; from += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.base = grow(m.base, min(rows*width, n-from))
		if err := m.readPiece(t, read, from); err != nil {
			return err
		}
		if adapted {
			m.merged = grow(m.merged, len(m.base))
			err := m.spread(len(m.base)/width, mergedRows, func(a, b int) error {
				merged := m.merged[a*width : b*width]
				copy(merged, m.base[a*width:])
				update(merged, from/width+a)
				if i := firstBad(merged); i >= 0 {
					return fmt.Errorf("with the adapter, tensor %s has %v at element %d of %v: its numbers are too "+
						"large for the type", t.Name, merged[i], from+a*width+i, t.Shape)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := see(from, m.base, m.merged); err != nil {
				return err
			}
		} else if err := see(from, m.base, m.base); err != nil {
			return err
		}
		m.release(name, t, from, len(m.base))
	}
	return nil
}

// reader returns a function that reads elements of the weights to which the adapter is added.
func (m *merging) reader(name string, t weights.Tensor) (func(dst []float32, from int) error, error) {
	stored := m.s.Base.Tensors()
	if !m.trained[name] || stored.Config(name) != nil {
		base := baseName(m.s, name)
		return func(dst []float32, from int) error { return stored.Float32s(base, from, dst) }, nil
	}
	if m.packed != name {
		m.packed = ""
		p, err := m.pack(&m.again, t, *m.o.Trained, func(add func([]float32) error) error {
			return m.eachStored(name, t, add)
		})
		if err != nil {
			return nil, err
		}
		m.packed, m.base4 = name, p
	}
	return func(dst []float32, from int) error { m.base4.DequantiseRange(dst, from, from+len(dst)); return nil }, nil
}

// readPiece reads into base, with all threads if the tensor is stored in reading order.
func (m *merging) readPiece(t weights.Tensor, read func(dst []float32, from int) error, from int) error {
	grain := chunk
	if t.Data == nil { // for experts in blocks across rows, a small piece takes as long as a block
		grain = len(m.base)
	}
	return m.spread(len(m.base), grain, func(a, b int) error {
		piece := m.base[a:b]
		if err := read(piece, from+a); err != nil {
			return err
		}
		if i := firstBad(piece); i >= 0 {
			return fmt.Errorf("the base model's tensor %s has %v at element %d of %v: get the model again", t.Name,
				piece[i], from+a+i, t.Shape)
		}
		return nil
	})
}

// eachStored reads a matrix as the checkpoint stores it.
func (m *merging) eachStored(name string, t weights.Tensor, add func([]float32) error) error {
	for from, n := 0, t.Len(); from < n; from += pieceLen {
		m.base = grow(m.base, min(pieceLen, n-from))
		read := func(dst []float32, from int) error { return m.s.Base.Tensors().Float32s(name, from, dst) }
		if err := m.readPiece(t, read, from); err != nil {
			return err
		}
		if err := add(m.base); err != nil {
			return err
		}
		m.release(name, t, from, len(m.base))
	}
	return nil
}

// pack quantises a matrix that each yields in pieces. The result is valid until the quantiser's next use.
func (m *merging) pack(q *quant.Quantiser, t weights.Tensor, c quant.Config,
	each func(add func([]float32) error) error) (quant.Packed, error) {
	if len(t.Shape) != 2 {
		return quant.Packed{}, fmt.Errorf("tensor %s has the shape %v; a quantised weight is a matrix", t.Name, t.Shape)
	}
	if err := q.Reset(t.Shape[0], t.Shape[1], c); err != nil {
		return quant.Packed{}, err
	}
	if err := each(q.Add); err != nil {
		return quant.Packed{}, err
	}
	return q.Finish()
}

// release returns the memory of data that was read to the system.
func (m *merging) release(name string, t weights.Tensor, from, n int) {
	if size := t.DType.Size(); t.Data != nil {
		m.s.Base.Weights.Release(weights.Tensor{Data: t.Data[from*size : (from+n)*size]})
		return
	}
	if from+n < t.Len() {
		return
	}
	for _, part := range []string{"", ".absmax", "_blocks", "_scales"} { // a quantised tensor's parts, when it is read
		if p, ok := m.s.Base.Weights.Tensor(name + part); ok {
			m.s.Base.Weights.Release(p)
		}
	}
}

func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// firstBad returns the index of the first NaN or infinity, or -1.
func firstBad(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// partOf maps the model's names to the names of the tensors in the file that contain them.
func (m *merging) partOf() map[string]string {
	of := map[string]string{}
	for whole, parts := range m.wholes {
		for _, part := range parts.Parts {
			of[part] = whole
		}
	}
	return of
}

// tensors lists the folder's tensors by their names in its files.
func (m *merging) tensors(ctx context.Context) ([]weights.Tensor, error) {
	var all []weights.Tensor
	partOf := m.partOf()
	names := m.s.Base.Tensors().Names()
	if _, stored := m.s.Base.Tensors().Tensor(adapter.HeadWeight); !stored && m.s.Net.UntiedHead() {
		names = append(slices.Clone(names), adapter.HeadWeight)
	}
	if m.head != nil {
		head, err := headTensors(m)
		if err != nil {
			return nil, err
		}
		all = append(all, head...)
	}
	for _, name := range names {
		if m.head != nil && name == adapter.HeadWeight {
			continue
		}
		t, err := m.tensor(name)
		if err != nil {
			return nil, err
		}
		if baseName(m.s, name) != name { // the base model has no file name for it
			t.Name = name
		}
		m.names[t.Name] = name
		own := []weights.Tensor{{Name: t.Name, DType: m.target(t), Shape: t.Shape}}
		if whole := partOf[name]; whole != "" {
			if m.wholes[whole].Parts[0] != name {
				continue
			}
			own[0].Name, own[0].Shape = whole, m.wholes[whole].Shape
		}
		if m.stored[name] {
			if own, err = m.storedTensors(ctx, name, t); err != nil {
				return nil, err
			}
		}
		for _, t := range own {
			m.bytes += int64(t.Len() * t.DType.Size())
		}
		all = append(all, own...)
	}
	return all, nil
}

// data writes a tensor of the folder and records its hash.
func (m *merging) data(ctx context.Context) weights.Data {
	return func(t weights.Tensor, w io.Writer) error {
		h := sha256.New()
		if err := m.bytesOf(ctx, t, io.MultiWriter(w, h)); err != nil {
			return err
		}
		m.sums[t.Name] = [32]byte(h.Sum(nil))
		return nil
	}
}

func (m *merging) bytesOf(ctx context.Context, t weights.Tensor, w io.Writer) error {
	if data, ok := m.parts[t.Name]; ok {
		_, err := w.Write(data)
		return err
	}
	whole, ok := m.wholes[t.Name]
	for _, part := range whole.Parts {
		of, err := m.tensor(part)
		if err == nil {
			err = m.bytesOf(ctx, weights.Tensor{Name: part, DType: t.DType, Shape: of.Shape}, w)
		}
		if err != nil {
			return err
		}
	}
	if ok {
		return nil
	}
	name := m.names[t.Name]
	from, err := m.tensor(name)
	switch {
	case err != nil:
		return err
	case m.stored[name]:
		packed, err := m.packMerged(ctx, name, from)
		if err == nil {
			_, err = w.Write(packed.Codes)
		}
		return err
	case !isNumbers(from.DType):
		_, err := w.Write(from.Data)
		return err
	}
	_, adapted := m.updates[layer(name)]
	counts := &layerCounts{}
	err = m.each(ctx, name, func(at int, base, merged []float32) error {
		size := from.DType.Size()
		if from.Data != nil && !adapted && from.DType == t.DType && !m.trained[name] {
			_, err := w.Write(from.Data[at*size : (at+len(base))*size])
			return err
		}
		if adapted {
			m.countRounded(counts, t.DType, base, merged)
		}
		if err := m.store(t, at, merged); err != nil {
			return err
		}
		_, err := w.Write(m.raw)
		return err
	})
	if adapted {
		m.lost[layer(name)] = counts
	}
	return err
}

// store rounds a piece of a tensor into raw.
func (m *merging) store(t weights.Tensor, at int, merged []float32) error {
	size := t.DType.Size()
	m.raw = slices.Grow(m.raw[:0], len(merged)*size)[:len(merged)*size]
	return m.spread(len(merged), chunk, func(a, b int) error {
		if i := tooLarge(t.DType, merged[a:b]); i >= 0 {
			return fmt.Errorf("tensor %s is %v at element %d, which fp16 can't hold (65504 is its largest): use "+
				"--dtype bf16 or fp32", t.Name, merged[a+i], at+a+i)
		}
		_, err := weights.AppendFloat32s(m.raw[a*size:a*size:b*size], t.DType, merged[a:b])
		return err
	})
}

// tooLarge returns the index of the first number that rounds to infinity, or -1.
func tooLarge(d weights.DType, x []float32) int {
	if d != weights.F16 {
		return -1
	}
	for i, v := range x {
		if math.Abs(float64(v)) >= 65520 {
			return i
		}
	}
	return -1
}

// readBack compares a written folder with what was to be written.
func (m *merging) readBack(ctx context.Context, dir string) error {
	set, err := weights.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	defer set.Close() //nolint:errcheck // it was only read
	if n := len(set.Names()); n != len(m.sums) {
		return fmt.Errorf("read back what was written: %d tensors, %d were written", n, len(m.sums))
	}
	for _, name := range set.Names() {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, _ := set.Tensor(name)
		h := sha256.New()
		for at := 0; at < len(t.Data); at += pieceLen {
			part := t.Data[at:min(at+pieceLen, len(t.Data))]
			h.Write(part)
			set.Release(weights.Tensor{Data: part})
		}
		if [32]byte(h.Sum(nil)) != m.sums[name] {
			return fmt.Errorf("read back what was written: tensor %s has other bytes than were written; check the "+
				"disk (%s to write)", name, session.FormatBytes(m.bytes))
		}
	}
	return nil
}
