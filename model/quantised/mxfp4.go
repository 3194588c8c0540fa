package quantised

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// Suffixes of the tensors in which MXFP4 stores a stack of experts' weights [experts,in,out]: codes
// U8[experts,out,in/32,16] and scales U8[experts,out,in/32]. Blocks extend along the inputs, so each expert's matrix is
// stored transposed.
const (
	endBlocks = "_blocks"
	endScales = "_scales"
)

// mxfp4Bytes is the bytes of codes per block.
const mxfp4Bytes = quant.MXFP4Block / 2

// experts is a stack of experts' weights in MXFP4.
type experts struct {
	count, in, out int
	codes, scales  weights.Tensor
}

func (x experts) shape() []int { return []int{x.count, x.in, x.out} }

// openMXFP4 finds the stacks of a checkpoint.
func (c *Checkpoint) openMXFP4() error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	c.experts = map[string]experts{}
	for _, name := range c.src.Names() {
		weight, ok := strings.CutSuffix(name, endScales)
		if _, has := c.src.Tensor(weight + endBlocks); ok && has {
			continue
		} else if ok {
			bad("%s is missing, the codes that %s scales", weight+endBlocks, name)
			continue
		}
		if weight, ok = strings.CutSuffix(name, endBlocks); !ok {
			c.names = append(c.names, name)
			continue
		}
		codes, _ := c.src.Tensor(name)
		scales, ok := c.src.Tensor(weight + endScales)
		_, twice := c.src.Tensor(weight)
		s := codes.Shape
		switch {
		case twice:
			bad("%s is stored in numbers and in MXFP4: delete one of the two", weight)
		case codes.DType != weights.U8:
			bad("%s is %v, not U8", name, codes.DType)
		case len(s) != 4 || slices.Contains(s, 0):
			bad("%s has the shape %v, not [experts out in/%d %d]", name, s, quant.MXFP4Block, mxfp4Bytes)
		case s[3] != mxfp4Bytes:
			bad("%s has the shape %v: its blocks have %d weights, MXFP4's have %d", name, s, 2*s[3], quant.MXFP4Block)
		case !ok:
			bad("%s is missing: %s can't be dequantised without it", weight+endScales, weight)
		case scales.DType != weights.U8:
			bad("%s is %v, not U8", scales.Name, scales.DType)
		case !slices.Equal(scales.Shape, s[:3]):
			bad("%s has the shape %v, not %v, a scale for each block", scales.Name, scales.Shape, s[:3])
		default:
			c.experts[weight] = experts{s[0], s[2] * quant.MXFP4Block, s[1], codes, scales}
			c.names = append(c.names, weight)
		}
	}
	slices.Sort(c.names)
	if problems == nil && len(c.experts) == 0 {
		return errors.New("quantised weights: no expert is in MXFP4, though config.json has quant_method mxfp4: the " +
			"weights are of another model, or were " +
			"dequantised (remove quantization_config from config.json then)")
	}
	if problems != nil {
		return fail(problems)
	}
	return nil
}

// MXFP4 returns the experts' matrices of a stack, one below the other, each [out,in]: the transpose of Tensor's. They
// alias the file's memory, and their scales are not checked.
func (c *Checkpoint) MXFP4(name string) (quant.MXFP4, bool) {
	x, ok := c.experts[name]
	return quant.MXFP4{Rows: x.count * x.out, Cols: x.in, Codes: x.codes.Data, Scales: x.scales.Data}, ok
}

// float32s reads elements [from, from+len(dst)) of the stack [experts,in,out], row-major.
func (x experts) float32s(name string, from int, dst []float32) error {
	size := x.in * x.out
	if from < 0 || from > x.count*size || len(dst) > x.count*size-from {
		return fmt.Errorf("dequantise %q: elements %d to %d of %d", name, from, from+len(dst), x.count*size)
	}
	m := quant.MXFP4{Rows: x.count * x.out, Cols: x.in, Codes: x.codes.Data, Scales: x.scales.Data}
	var row [quant.MXFP4Block]float32
	for at := from; at < from+len(dst); {
		// Up to the next block of inputs of one expert: a block of each output yields all its numbers.
		expert, in := at/size, at%size/x.out
		first := in / quant.MXFP4Block * quant.MXFP4Block
		begin := expert*size + first*x.out
		end := min(begin+quant.MXFP4Block*x.out, from+len(dst))
		for o := range x.out {
			r := expert*x.out + o
			if err := quant.CheckMXFP4(m.Scales[(r*x.in+first)/quant.MXFP4Block:][:1],
				(r*x.in+first)/quant.MXFP4Block); err != nil {
				return fmt.Errorf("dequantise %q: %w", name, err)
			}
			m.DequantiseRange(row[:], r*x.in+first, r*x.in+first+quant.MXFP4Block)
			for i, v := range row {
				if k := begin + i*x.out + o; k >= at && k < end {
					dst[k-from] = v
				}
			}
		}
		at = end
	}
	return nil
}

// Declared returns the tensors that a checkpoint of a configuration has for the tensors that its model reads: those
// stored as numbers and those stored as bytes.
func Declared(specs []weights.Spec, q *model.Quantization) (numbers, codes []weights.Spec, err error) {
	if q == nil || q.Method != model.MXFP4 {
		return specs, nil, nil
	}
	for _, s := range specs {
		if len(s.Shape) != 3 {
			numbers = append(numbers, s)
			continue
		}
		if s.Shape[1]%quant.MXFP4Block != 0 {
			return nil, nil, fmt.Errorf("%s has %d inputs: in MXFP4 they must be a multiple of %d", s.Name, s.Shape[1],
				quant.MXFP4Block)
		}
		scales := []int{s.Shape[0], s.Shape[2], s.Shape[1] / quant.MXFP4Block}
		codes = append(codes, weights.Spec{Name: s.Name + endBlocks, Shape: append(slices.Clone(scales), mxfp4Bytes)},
			weights.Spec{Name: s.Name + endScales, Shape: scales})
	}
	return numbers, codes, nil
}
