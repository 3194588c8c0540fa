package quantised

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// decoded is a quantised weight [rows,cols] that is dequantised whenever it is read. To its readers it is a matrix of
// ordinary numbers.
type decoded struct {
	name       string // the weight's name in the file
	rows, cols int
	dtype      weights.DType // the type to which the numbers are rounded
	stored     int64         // bytes of all of its tensors
	together   int           // rows that are decoded in one pass over the codes
	// fill decodes the rows [from,to) before rounding.
	fill func(dst []float32, from, to int)
}

// float32s reads elements [from, from+len(dst)) of a weight, row-major.
func (d *decoded) float32s(from int, dst []float32) error {
	if from < 0 || from > d.rows*d.cols || len(dst) > d.rows*d.cols-from {
		return fmt.Errorf("dequantise %q: elements %d to %d of %d", d.name, from, from+len(dst), d.rows*d.cols)
	}
	var whole []float32
	for len(dst) > 0 {
		row, col := from/d.cols, from%d.cols
		last := min(d.rows, (row/d.together+1)*d.together) // to the end of a pass
		n := min((last-row)*d.cols-col, len(dst))
		if part := dst[:n]; col == 0 && n%d.cols == 0 {
			d.fill(part, row, row+n/d.cols)
		} else {
			last = (from + n + d.cols - 1) / d.cols
			if whole == nil {
				whole = make([]float32, min(d.together, d.rows)*d.cols)
			}
			d.fill(whole[:(last-row)*d.cols], row, last)
			copy(part, whole[col:])
		}
		weights.RoundFloat32s(dst[:n], d.dtype, dst[:n])
		dst, from = dst[n:], from+n
	}
	return nil
}

// finder reads the tensors of one weight and collects what is wrong with them.
type finder struct {
	src      weights.Source
	released model.Released
	module   string // the tensors' names begin with it
	stored   int64
	parts    map[string]bool // names of all tensors that belong to a weight
	problems []string
}

func (f *finder) fail(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// tensor returns a tensor of the weight, and whether it exists.
func (f *finder) tensor(suffix string) (weights.Tensor, bool) {
	t, ok := f.src.Tensor(f.module + suffix)
	if ok {
		f.parts[f.module+suffix] = true
		f.stored += int64(len(t.Data))
	}
	return t, ok
}

// need returns a tensor that the weight can't do without, of one of the types. On an error it returns false.
func (f *finder) need(suffix string, types ...weights.DType) (weights.Tensor, bool) {
	t, ok := f.tensor(suffix)
	switch {
	case !ok:
		f.fail("%s is missing: the weight can't be dequantised without it", f.module+suffix)
	case !slices.Contains(types, t.DType):
		f.fail("%s is %v, not %s", f.module+suffix, t.DType, anyOf(types))
		ok = false
	}
	return t, ok
}

func anyOf(types []weights.DType) string {
	var names []string
	for _, d := range types {
		names = append(names, d.String())
	}
	return strings.Join(names, " or ")
}

// matrix returns a tensor that must be a matrix without an empty side.
func (f *finder) matrix(suffix string, types ...weights.DType) (weights.Tensor, bool) {
	t, ok := f.need(suffix, types...)
	if ok && (len(t.Shape) != 2 || t.Shape[0] == 0 || t.Shape[1] == 0) {
		f.fail("%s has the shape %v; a quantised weight is a matrix", f.module+suffix, t.Shape)
		ok = false
	}
	return t, ok
}

// numbers returns a tensor as float32.
func (f *finder) numbers(t weights.Tensor) []float32 {
	v := make([]float32, t.Len())
	if err := weights.Float32s(t, v); err != nil {
		f.fail("%v", err)
	}
	return v
}

// fileName returns the name that the weight would have in the file, whose names may differ from the model's.
func fileName(t weights.Tensor, suffix string) string {
	return strings.TrimSuffix(t.Name, suffix) + ".weight"
}

// companions are the suffixes of tensors that belong to a quantised weight. Those of unread describe activations and
// caches, which are not quantised here.
var (
	companions = []string{".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale",
		".weight_shape",
		".weight_zero_point", ".weight_g_idx", ".qzeros", ".scales", ".g_idx"}
	unread = []string{".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale", ".activation_scale",
		".k_scale", ".v_scale", ".q_scale", ".k_proj.k_scale", ".v_proj.v_scale"}
)

// openReleased finds the weights that are dequantised while they are read.
func (c *Checkpoint) openReleased(q *model.Quantization) error {
	f := &finder{src: c.src, released: q.Released, parts: map[string]bool{}}
	c.decoded = map[string]*decoded{}
	names := c.src.Names()
	for _, name := range names {
		module, read := f.reader(name)
		if read == nil {
			continue
		}
		f.module, f.stored = module, 0
		before := len(f.problems)
		d := read()
		if d == nil || len(f.problems) > before {
			f.parts[name] = true
			continue
		}
		weight := module + ".weight"
		if _, twice := c.decoded[weight]; twice || name != weight && has(c.src, weight) {
			f.fail("%s is stored twice, as %s too: delete one of the two", weight, name)
		}
		d.stored = f.stored
		c.decoded[weight] = d
	}
	for _, name := range names {
		switch {
		case c.decoded[name] != nil || f.parts[name] || hasSuffix(name, unread):
		case hasSuffix(name, companions):
			f.fail("%s belongs to no quantised weight", name)
		default:
			c.names = append(c.names, name)
		}
	}
	for weight := range c.decoded {
		c.names = append(c.names, weight)
	}
	slices.Sort(c.names)
	if f.problems == nil && len(c.decoded) == 0 {
		f.fail("no weight is quantised, though config.json has a quantization_config: the weights are of " +
			"another model, " +
			"or were dequantised (remove quantization_config from config.json then)")
	}
	if f.problems != nil {
		return fail(f.problems)
	}
	return nil
}

func has(src weights.Source, name string) bool { _, ok := src.Tensor(name); return ok }

func hasSuffix(name string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// reader returns the module of the weight whose codes a tensor holds, and the function that reads the weight; nil if
// the tensor holds none.
func (f *finder) reader(name string) (module string, read func() *decoded) {
	if module, ok := strings.CutSuffix(name, ".qweight"); ok {
		if f.released.Layout == model.AWQ {
			return module, f.awq
		}
		return module, f.gptq
	}
	if module, ok := strings.CutSuffix(name, ".weight_packed"); ok {
		if t, _ := f.src.Tensor(name); t.DType == weights.U8 {
			return module, f.compressedFloat4
		}
		return module, f.packedIntegers
	}
	module, ok := strings.CutSuffix(name, ".weight")
	if !ok {
		return "", nil
	}
	switch t, _ := f.src.Tensor(name); t.DType {
	case weights.F8E4M3:
		return module, f.float8
	case weights.I8:
		return module, f.integer8
	case weights.U8:
		return module, f.modelOptFloat4
	}
	return "", nil
}
