// Package quantised reads checkpoints whose linear layers' weights are stored quantised, as bitsandbytes and
// transformers write them: which tensors make up a weight, and what it is as package quant has it. Nothing is copied
// that the file holds as memory needs it.
package quantised

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// Checkpoint is a checkpoint's tensors by the names and shapes that the model knows: a quantised weight is one tensor
// without Data. It is a weights.Source.
type Checkpoint struct {
	src     weights.Source
	names   []string
	packed  map[string]packed
	experts map[string]experts // in MXFP4
}

// packed is a quantised weight.
type packed struct {
	quant.Config
	rows, cols int
	dtype      weights.DType // before it was quantised
	codes      []byte
	absmax     weights.Tensor // of 8 bits, SCB; nested, codes
	absmax2    weights.Tensor // nested
	table2     []float32      // nested
	offset     float32        // nested
}

// listed is how many problems an error lists.
const listed = 5

// Numbers is a checkpoint without quantised weights.
func Numbers(src weights.Source) *Checkpoint { return &Checkpoint{src: src, names: src.Names()} }

// Open finds the quantised weights of a checkpoint whose config.json says q, nil where it says nothing. The error lists
// what is missing or wrong, tensor by tensor.
func Open(src weights.Source, q *model.Quantization) (*Checkpoint, error) {
	c := &Checkpoint{src: src, packed: map[string]packed{}}
	names := src.Names()
	if q != nil && q.Method == model.MXFP4 {
		if err := c.openMXFP4(); err != nil {
			return nil, err
		}
		return c, nil
	}
	if q == nil || q.Method != model.BitsAndBytes {
		c.names = names
		for _, name := range names {
			if _, _, ok := cutState(name); ok && q == nil {
				return nil, fmt.Errorf("the tensor %s is bitsandbytes', but config.json has no quantization_config: "+
					"get config.json from where the "+
					"weights are from", name)
			}
			if q == nil && strings.HasSuffix(name, "_proj"+endBlocks) {
				return nil, fmt.Errorf("the tensor %s is in MXFP4, but config.json has no quantization_config: get "+
					"config.json from where the weights are from", name)
			}
		}
		return c, nil
	}
	var problems []string
	parts := map[string]bool{}
	for _, name := range names {
		weight, kind := c.weightOf(name, q)
		if weight == "" {
			continue
		}
		p, own, bad := c.read(weight, kind, q)
		problems = append(problems, bad...)
		for _, part := range own {
			parts[part] = true
		}
		c.packed[weight] = p
	}
	for _, name := range names {
		_, quantised := c.packed[name]
		switch t, _ := src.Tensor(name); {
		case quantised:
			c.names = append(c.names, name)
		case parts[name]:
		case isPart(name, q) && c.bytesOf(name, q): // which lack their state: said of them
		case isPart(name, q):
			problems = append(problems, fmt.Sprintf("%s belongs to no quantised weight: %s is missing", name,
				stateOf(name, q)))
		case q.Bits == 4 && strings.HasSuffix(name, ".weight") && t.DType == weights.U8:
			problems = append(problems, fmt.Sprintf("%s is quantised, but %s is missing", name,
				name+statePrefix+q.Type))
		default:
			c.names = append(c.names, name)
		}
	}
	if problems == nil && len(c.packed) == 0 {
		problems = []string{"no weight is quantised, though config.json has a quantization_config: the weights are " +
			"of another model, or were dequantised " +
			"(remove quantization_config from config.json then)"}
	}
	if problems != nil {
		return nil, fail(problems)
	}
	return c, nil
}

// bytesOf tells whether a part stands beside a weight of 4 bits whose bytes are there.
func (c *Checkpoint) bytesOf(part string, q *model.Quantization) bool {
	weight, _, _ := strings.Cut(part, ".weight.")
	t, ok := c.src.Tensor(weight + ".weight")
	return ok && q.Bits == 4 && t.DType == weights.U8
}

// Declare is a checkpoint of which config.json alone is there: the linear layers' weights are stored as q says, but
// those that it skips.
func Declare(src weights.Source, q *model.Quantization, linear []string) *Checkpoint {
	c := &Checkpoint{src: src, names: src.Names(), packed: map[string]packed{}}
	for _, name := range linear {
		if t, ok := src.Tensor(name); ok && len(t.Shape) == 2 && !q.Skips(name) {
			c.packed[name] = packed{Config: Scheme(q), rows: t.Shape[0], cols: t.Shape[1], dtype: t.DType}
		}
	}
	return c
}

// Size is the bytes of a tensor as it is stored.
func (c *Checkpoint) Size(name string) int64 {
	if p, ok := c.packed[name]; ok {
		return p.Config.Size(p.rows, p.cols)
	}
	t, _ := c.Tensor(name)
	return int64(t.Len()) * int64(t.DType.Size())
}

func fail(problems []string) error {
	problems = slices.Compact(problems)
	if len(problems) == 1 {
		return fmt.Errorf("quantised weights: %s", problems[0])
	}
	more := ""
	if n := len(problems) - listed; n > 0 {
		more = fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Errorf("quantised weights: %d problems:\n  %s%s", len(problems),
		strings.Join(problems[:min(listed, len(problems))], "\n  "), more)
}

// Names lists the tensors, sorted; those that make up a quantised weight are the weight's.
func (c *Checkpoint) Names() []string { return c.names }

// Tensor is the tensor called name. Of a quantised weight it has the shape, the type from before it was quantised and
// no Data: Float32s reads it.
func (c *Checkpoint) Tensor(name string) (weights.Tensor, bool) {
	if p, ok := c.packed[name]; ok {
		return weights.Tensor{Name: name, DType: p.dtype, Shape: []int{p.rows, p.cols}}, true
	}
	if x, ok := c.experts[name]; ok {
		return weights.Tensor{Name: name, DType: weights.BF16, Shape: x.shape()}, true
	}
	return c.src.Tensor(name)
}

// Quantised counts the weights that are stored quantised.
func (c *Checkpoint) Quantised() int { return len(c.packed) + len(c.experts) }

// Config is how a weight is stored; nil = as numbers.
func (c *Checkpoint) Config(name string) *quant.Config {
	if p, ok := c.packed[name]; ok {
		return &p.Config
	}
	if _, ok := c.experts[name]; ok {
		stored := quant.StoredMXFP4()
		return &stored
	}
	return nil
}

// Packed is a weight that is stored quantised. It lies in the file's memory where that is aligned.
func (c *Checkpoint) Packed(name string) (quant.Packed, bool) {
	p, ok := c.packed[name]
	if !ok {
		return quant.Packed{}, false
	}
	w := quant.Packed{Scheme: quant.Schemes[p.Type], Rows: p.rows, Cols: p.cols, BlockSize: p.Block(p.cols),
		Codes: p.codes}
	if p.table2 == nil {
		w.Absmax = weights.ViewFloat32s(p.absmax)
		return w, true
	}
	w.AbsmaxU8, w.Absmax2, w.Table2, w.Offset = p.absmax.Data, weights.ViewFloat32s(p.absmax2), p.table2, p.offset
	return w, true
}

// Float32s reads elements [from, from+len(dst)) of a tensor, row-major; those of a quantised weight dequantised.
func (c *Checkpoint) Float32s(name string, from int, dst []float32) error {
	if p, ok := c.Packed(name); ok {
		if from < 0 || from > p.Len() || len(dst) > p.Len()-from {
			return fmt.Errorf("dequantise %q: elements %d to %d of %d", name, from, from+len(dst), p.Len())
		}
		p.DequantiseRange(dst, from, from+len(dst))
		return nil
	}
	if x, ok := c.experts[name]; ok {
		return x.float32s(name, from, dst)
	}
	t, ok := c.src.Tensor(name)
	if !ok {
		return fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	return weights.Float32Range(t, from, from+len(dst), dst)
}

// Scheme is how the quantised weights of a checkpoint are stored, as a run's configuration says it.
func Scheme(q *model.Quantization) quant.Config {
	if q.Method == model.MXFP4 {
		return quant.StoredMXFP4()
	}
	if q.Bits == 8 {
		return quant.DefaultOf("int8")
	}
	c := quant.DefaultOf(q.Type)
	c.DoubleQuant = q.DoubleQuant
	return c
}
