// Package quantised reads checkpoints whose linear layers are stored quantised, as bitsandbytes and transformers write
// them. It finds the tensors of each weight and presents them in package quant's form, without copying what the file
// already stores in memory's layout.
package quantised

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// Checkpoint holds a checkpoint's tensors by the names and shapes that the model knows: a quantised weight is one
// tensor without Data. It is a weights.Source.
type Checkpoint struct {
	src     weights.Source
	names   []string
	packed  map[string]packed
	experts map[string]experts // stacks in MXFP4
	decoded map[string]*decoded
}

// packed is a quantised weight.
type packed struct {
	quant.Config
	rows, cols int
	dtype      weights.DType // type before quantisation
	codes      []byte
	absmax     weights.Tensor // 8-bit: SCB; nested: codes
	absmax2    weights.Tensor // nested
	table2     []float32      // nested
	offset     float32        // nested
}

// listed is the number of problems that an error lists.
const listed = 5

// Numbers returns a checkpoint without quantised weights.
func Numbers(src weights.Source) *Checkpoint { return &Checkpoint{src: src, names: src.Names()} }

// Open finds the quantised weights of a checkpoint whose config.json contains q; nil = no quantization_config. The
// error lists missing and wrong tensors.
func Open(src weights.Source, q *model.Quantization) (*Checkpoint, error) {
	c := &Checkpoint{src: src, packed: map[string]packed{}}
	names := src.Names()
	if q != nil && q.Method == model.MXFP4 {
		if err := c.openMXFP4(); err != nil {
			return nil, err
		}
		return c, nil
	}
	if q.Dequantised() {
		if err := c.openReleased(q); err != nil {
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
		case isPart(name, q) && c.bytesOf(name, q): // the error for their missing state covers these
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

// bytesOf reports whether a part belongs to a 4-bit weight whose codes are present.
func (c *Checkpoint) bytesOf(part string, q *model.Quantization) bool {
	weight, _, _ := strings.Cut(part, ".weight.")
	t, ok := c.src.Tensor(weight + ".weight")
	return ok && q.Bits == 4 && t.DType == weights.U8
}

// Declare returns a checkpoint that has only config.json: linear layers are stored as q describes, except those that q
// skips.
func Declare(src weights.Source, q *model.Quantization, linear []string) *Checkpoint {
	c := &Checkpoint{src: src, names: src.Names(), packed: map[string]packed{}}
	for _, name := range linear {
		if t, ok := src.Tensor(name); ok && len(t.Shape) == 2 && !q.Skips(name) {
			c.packed[name] = packed{Config: Scheme(q), rows: t.Shape[0], cols: t.Shape[1], dtype: t.DType}
		}
	}
	return c
}

// Size returns the stored bytes of a tensor.
func (c *Checkpoint) Size(name string) int64 {
	if p, ok := c.packed[name]; ok {
		return p.Config.Size(p.rows, p.cols)
	}
	if d := c.decoded[name]; d != nil {
		return d.stored
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

// Names returns the names of the tensors, sorted; the tensors of a quantised weight count as the weight.
func (c *Checkpoint) Names() []string { return c.names }

// Tensor returns the tensor called name. For a quantised weight it has the shape, the type before quantisation and no
// Data: use Float32s to read it.
func (c *Checkpoint) Tensor(name string) (weights.Tensor, bool) {
	if p, ok := c.packed[name]; ok {
		return weights.Tensor{Name: name, DType: p.dtype, Shape: []int{p.rows, p.cols}}, true
	}
	if x, ok := c.experts[name]; ok {
		return weights.Tensor{Name: name, DType: weights.BF16, Shape: x.shape()}, true
	}
	if d := c.decoded[name]; d != nil {
		return weights.Tensor{Name: d.name, DType: d.dtype, Shape: []int{d.rows, d.cols}}, true
	}
	return c.src.Tensor(name)
}

// Dequantised returns the number of weights that are stored quantised and become ordinary numbers when they are read.
func (c *Checkpoint) Dequantised() int { return len(c.decoded) }

// IsDequantised reports whether a weight is stored quantised and becomes ordinary numbers when it is read.
func (c *Checkpoint) IsDequantised(name string) bool { return c.decoded[name] != nil }

// Quantised returns the number of weights that are stored quantised and stay so in memory.
func (c *Checkpoint) Quantised() int { return len(c.packed) + len(c.experts) }

// Config returns how a weight is quantised; nil = it is not.
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

// Packed returns a quantised weight. It aliases the file's memory if that is aligned.
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

// Float32s reads elements [from, from+len(dst)) of a tensor, row-major, and dequantises a quantised weight.
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
	if d := c.decoded[name]; d != nil {
		return d.float32s(from, dst)
	}
	t, ok := c.src.Tensor(name)
	if !ok {
		return fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	return weights.Float32Range(t, from, from+len(dst), dst)
}

// Scheme returns how a checkpoint's weights are quantised, in the terms of a run's configuration.
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
