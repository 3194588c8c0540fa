package quantised

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// statePrefix precedes the scheme in the name of a weight's state, a JSON object stored as bytes.
const statePrefix = ".quant_state.bitsandbytes__"

// Suffixes of the tensors that belong to a 4-bit weight, besides the state.
const (
	suffixAbsmax  = ".absmax"
	suffixMap     = ".quant_map"
	suffixNested  = ".nested_absmax"
	suffixNestMap = ".nested_quant_map"
)

// Names of the tensors that belong to an 8-bit weight.
const (
	nameSCB    = "SCB"
	nameFormat = "weight_format"
)

// cutState splits the name of a state into the names of weight and scheme.
func cutState(name string) (weight, scheme string, ok bool) { return strings.Cut(name, statePrefix) }

// weightOf returns the weight that the tensor called name marks as quantised, and its scheme; "" if it marks none.
func (c *Checkpoint) weightOf(name string, q *model.Quantization) (weight, scheme string) {
	if q.Bits == 4 {
		weight, scheme, _ = cutState(name)
		if scheme == "" {
			return "", ""
		}
		return weight, scheme
	}
	if t, _ := c.src.Tensor(name); t.DType == weights.I8 && strings.HasSuffix(name, ".weight") {
		return name, "int8"
	}
	return "", ""
}

// isPart reports whether a name is that of a tensor belonging to a quantised weight.
func isPart(name string, q *model.Quantization) bool {
	if q.Bits == 8 {
		return strings.HasSuffix(name, "."+nameSCB) || strings.HasSuffix(name, "."+nameFormat)
	}
	return slices.ContainsFunc([]string{suffixAbsmax, suffixMap, suffixNested, suffixNestMap}, func(s string) bool {
		return strings.HasSuffix(name, ".weight"+s)
	})
}

// stateOf describes the state that a part lacks.
func stateOf(part string, q *model.Quantization) string {
	at := strings.LastIndexByte(part, '.')
	if q.Bits == 8 {
		return part[:at] + ".weight as I8"
	}
	return part[:at] + statePrefix + q.Type
}

// read reads the tensors of a quantised weight. own lists their names, bad what is wrong with them.
func (c *Checkpoint) read(weight, scheme string, q *model.Quantization) (p packed, own, bad []string) {
	r := &reader{Checkpoint: c, weight: weight, own: []string{weight}}
	p.Config = Scheme(q)
	if q.Bits == 8 {
		r.rows(&p)
	} else {
		r.blocks(&p, scheme, q)
	}
	return p, r.own, r.bad
}

// reader reads one quantised weight.
type reader struct {
	*Checkpoint
	weight   string
	own, bad []string
}

func (r *reader) fail(format string, args ...any) {
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

// tensor returns a required tensor of a type (0 = any) and a number of elements.
func (r *reader) tensor(name string, d weights.DType, elems int) weights.Tensor {
	t, ok := r.src.Tensor(name)
	r.own = append(r.own, name)
	switch {
	case !ok:
		r.fail("%s is missing: %s can't be dequantised without it", name, r.weight)
	case d != 0 && t.DType != d:
		r.fail("%s is %v, not %v", name, t.DType, d)
	case elems >= 0 && t.Len() != elems:
		r.fail("%s has %d elements, not %d", name, t.Len(), elems)
	}
	return t
}

// rows reads an 8-bit weight.
func (r *reader) rows(p *packed) {
	t, _ := r.src.Tensor(r.weight)
	if len(t.Shape) != 2 || t.Shape[0] == 0 || t.Shape[1] == 0 {
		r.fail("%s has the shape %v; a quantised weight is a matrix", r.weight, t.Shape)
		return
	}
	module := strings.TrimSuffix(r.weight, "weight")
	p.rows, p.cols, p.codes, p.dtype = t.Shape[0], t.Shape[1], t.Data, weights.F16
	p.absmax = r.tensor(module+nameSCB, weights.F32, p.rows)
	format := module + nameFormat // f.Name is the file's, which may be another (weights.Set.Rename)
	if f, ok := r.src.Tensor(format); ok {
		r.own = append(r.own, format)
		if f.DType != weights.U8 || f.Len() != 1 || f.Data[0] != 0 {
			r.fail("%s is not 0: only weights in rows are read", format)
		}
	}
}

// state is the JSON object of a 4-bit weight.
type state struct {
	Type      string  `json:"quant_type"`
	BlockSize int     `json:"blocksize"`
	DType     string  `json:"dtype"`
	Shape     []int   `json:"shape"`
	Nested    int     `json:"nested_blocksize"`
	NestedAs  string  `json:"nested_dtype"`
	Offset    float64 `json:"nested_offset"`
}

func parseState(raw []byte) (state, error) {
	var s state
	if err := jsonerr.Unmarshal(raw, &s); err != nil {
		return s, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return s, err
	}
	for _, key := range []string{"quant_type", "blocksize", "dtype", "shape"} {
		if keys[key] == nil {
			return s, fmt.Errorf("%s is missing", key)
		}
	}
	if len(s.Shape) != 2 || s.Shape[0] <= 0 || s.Shape[1] <= 0 || s.Shape[0] > 1<<40/s.Shape[1] {
		return s, fmt.Errorf("shape is %v; a quantised weight is a matrix", s.Shape)
	}
	return s, nil
}

// dtypes maps the possible types of a weight before quantisation.
var dtypes = map[string]weights.DType{"float32": weights.F32, "float16": weights.F16, "bfloat16": weights.BF16}

// blocks reads a 4-bit weight.
func (r *reader) blocks(p *packed, scheme string, q *model.Quantization) {
	name := r.weight + statePrefix + scheme
	t := r.tensor(name, weights.U8, -1)
	s, err := parseState(t.Data)
	if err != nil {
		r.fail("%s: %v", name, err)
		return
	}
	p.rows, p.cols, p.dtype = s.Shape[0], s.Shape[1], dtypes[s.DType]
	switch {
	case s.Type != scheme || s.Type != q.Type:
		r.fail("%s has quant_type %q; config.json has bnb_4bit_quant_type %q", name, s.Type, q.Type)
	case p.dtype == 0:
		r.fail("%s has dtype %q; float32, float16 and bfloat16 are supported", name, s.DType)
	case s.BlockSize != p.BlockSize:
		r.fail("%s has blocks of %d weights; blocks of %d are supported", name, s.BlockSize, p.BlockSize)
	case q.DoubleQuant && s.Nested != quant.NestedBlock:
		r.fail("%s has scales in blocks of %d; config.json has bnb_4bit_use_double_quant, whose blocks have %d", name,
			s.Nested, quant.NestedBlock)
	case !q.DoubleQuant && s.Nested != 0:
		r.fail("%s has scales in 8 bits; config.json has bnb_4bit_use_double_quant false", name)
	}
	n := p.rows * p.cols
	blocks := (n + max(s.BlockSize, 1) - 1) / max(s.BlockSize, 1)
	// With bnb_4bit_quant_storage the codes are stored as another type.
	codes := r.tensor(r.weight, 0, -1)
	p.codes = codes.Data
	if len(p.codes) != (n+1)/2 && codes.Name != "" {
		r.fail("%s has %d bytes of codes, not %d for the shape %v", r.weight, len(p.codes), (n+1)/2, s.Shape)
	}
	table := quant.Schemes[p.Type].(quant.Tabled).Table()
	if m := r.floats(r.tensor(r.weight+suffixMap, 0, len(table))); m != nil && !same(m, table) {
		r.fail("%s is not the table of %s", r.weight+suffixMap, p.Type)
	}
	if !q.DoubleQuant {
		p.absmax = r.tensor(r.weight+suffixAbsmax, weights.F32, blocks)
		return
	}
	p.absmax = r.tensor(r.weight+suffixAbsmax, weights.U8, blocks)
	p.absmax2 = r.tensor(r.weight+suffixNested, weights.F32, (blocks+quant.NestedBlock-1)/quant.NestedBlock)
	p.offset = float32(s.Offset)
	if math.IsInf(float64(p.offset), 0) {
		r.fail("%s has nested_offset %v, which is no float32", name, s.Offset)
	}
	p.table2 = r.floats(r.tensor(r.weight+suffixNestMap, 0, 256))
	switch {
	case p.table2 == nil:
	case slices.Equal(p.table2, quant.MapCPU.Table()):
		p.table2 = quant.MapCPU.Table()
	case slices.Equal(p.table2, quant.MapCUDA.Table()):
		p.Map, p.table2 = quant.MapCUDA, quant.MapCUDA.Table()
	default:
		p.DoubleQuant = false // a table of its own: the scales are kept dequantised
	}
}

// floats returns the numbers of a small tensor, or nil if it has none.
func (r *reader) floats(t weights.Tensor) []float32 {
	if t.Name == "" || t.Len() > 256 {
		return nil
	}
	v := make([]float32, t.Len())
	if err := weights.Float32s(t, v); err != nil {
		r.fail("%v", err)
		return nil
	}
	return v
}

// same reports whether two tables belong to one scheme: versions of bitsandbytes round the numbers differently.
func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) < 1e-4 })
}
