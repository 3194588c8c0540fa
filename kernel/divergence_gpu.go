//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU computes a chunk's logits of the student, and of a dense teacher, then the rows' losses with the gradient for the
// student's logits and the gradient for its hidden states; and at the end the sums.
func (o LinearDivergence) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	in = commonTokens(o, in, func(t DeviceTensor) Type { return t.Type }, func(t DeviceTensor, as Type) DeviceTensor {
		t.Type = as
		return t
	})
	M := in[0].Shape[0]
	d := divergenceGPU{LinearDivergence: o, g: g, in: in, out: out, each: out[len(out)-4]}
	d.teacher = g.Scratch.Add(logitBytes(o.Chunk, in[0].Type, in[1].Type))
	d.rows[0] = d.teacher
	if o.Teacher == TeacherDense {
		d.rows[0] = d.teacher.Add(logitBytes(o.Chunk, in[4].Type, in[5].Type))
	}
	d.rows[1] = d.rows[0].Add(rowNumbers(M))
	d.rows[2] = d.rows[1].Add(rowNumbers(M))
	d.scratch = d.rows[2].Add(rowNumbers(M))
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		chunk, err := d.chunk(row, min(o.Chunk, M-row))
		if err != nil {
			return nil, err
		}
		work = append(work, chunk...)
	}
	sums := out[len(out)-3:]
	for _, s := range []struct{ to, of, scale gpu.Ptr }{
		{out[0].Ptr, d.each.Ptr, in[3].Ptr}, {sums[0].Ptr, d.rows[0], 0}, {sums[1].Ptr, d.rows[1], 0},
		{sums[2].Ptr, d.rows[2], 0},
	} {
		sum, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), s.to, s.of, int32(M), s.scale, int32(0))
		if err != nil {
			return nil, err
		}
		work = append(work, sum)
	}
	return inOrder(work...), nil
}

// divergenceGPU is a LinearDivergence that is being bound on a device.
type divergenceGPU struct {
	LinearDivergence
	g       *GPU
	in, out []DeviceTensor
	each    DeviceTensor
	teacher gpu.Ptr    // a chunk's logits of a dense teacher
	rows    [3]gpu.Ptr // [M] each: divergences, negative log-likelihoods and agreements
	scratch gpu.Ptr    // of the GEMMs
}

// chunk returns the work of some rows.
func (d *divergenceGPU) chunk(row, rows int) ([]func() error, error) {
	in, g := d.in, d.g
	rowBytes := int64(in[0].Shape[1]) * int64(in[0].DType.Size()) // of x and dx
	logits, back := headGEMMs(in[0].Type, in[1].Type, rows)
	forward, err := logits.bind(g, g.Scratch, in[0].Ptr.Add(int64(row)*rowBytes), in[1].Ptr, d.scratch)
	if err != nil {
		return nil, err
	}
	work := []func() error{forward}
	if d.Teacher == TeacherDense {
		ofTeacher, _ := headGEMMs(in[4].Type, in[5].Type, rows)
		from := in[4].Ptr.Add(int64(row) * int64(in[4].Shape[1]) * int64(in[4].DType.Size()))
		forward, err := ofTeacher.bind(g, d.teacher, from, in[5].Ptr, d.scratch)
		if err != nil {
			return nil, err
		}
		work = append(work, forward)
	}
	l, err := d.launch(row, rows)
	if err != nil {
		return nil, err
	}
	work = append(work, l)
	if !d.Grad {
		return work, nil
	}
	backward, err := back.bind(g, d.out[1].Ptr.Add(int64(row)*rowBytes), g.Scratch, in[1].Ptr, d.scratch)
	if err != nil {
		return nil, err
	}
	return append(work, backward), nil
}

// launch binds the launch over the logits of some rows.
func (d *divergenceGPU) launch(row, rows int) (func() error, error) {
	in, at, V := d.in, int64(row)*4, d.in[1].Shape[0]
	weights := gpu.Ptr(0)
	if d.Weighted {
		weights = in[6].Ptr.Add(at)
	}
	args := []any{d.each.Ptr.Add(at), d.rows[0].Add(at), d.rows[1].Add(at), d.rows[2].Add(at), d.g.Scratch}
	more := []any{in[2].Ptr.Add(at), weights, in[3].Ptr, scalingAt(d.Scaled, in), int32(V), int32(V)}
	entry, settings := "divergence_dense", []any{float32(d.Beta), float32(1 / d.Temperature), float32(d.Alpha),
		float32(d.CrossEntropy), float32(d.Cap)}
	if d.Teacher == TeacherDense {
		args = append(append(args, d.teacher), append(more, int32(V))...)
		settings = append(settings, float32(d.TeacherCap))
	} else {
		entry = "divergence_sparse"
		k := in[4].Shape[1]
		args = append(args, in[4].Ptr.Add(at*int64(k)), in[5].Ptr.Add(at*int64(k+1)))
		args = append(append(args, more...), int32(k), int32(d.Teacher))
	}
	if d.Grad {
		entry += "_gradient"
	} else {
		entry += "_loss"
	}
	return d.g.Launch(cuda.Divergence(entry, rows, V), append(args, settings...)...)
}
