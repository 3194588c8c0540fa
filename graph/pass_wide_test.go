package graph

import (
	"bytes"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// slicesOfProjection records layers that each take a slice of one projection's columns, as Gemma 4's do, and the
// projection's gradient.
func slicesOfProjection(t *testing.T, layers int, without ...string) (*Plan, []byte) {
	t.Helper()
	const rows, width = 32, 8
	b := NewBuilder(kernel.F32)
	x, w := b.Batch("x", floats(rows, width)), b.Param("params", "w", floats(layers*width, width))
	all := b.Apply(kernel.MatMul{TransB: true}, x, w) // [rows,layers*width]
	h := x
	for i := range layers {
		part := b.Apply(kernel.HeadColumns{Heads: 1, Of: layers * width, From: i * width, Width: width}, all)
		h = b.Apply(kernel.Add{}, h, b.Apply(kernel.SwiGLU{}, h, part))
	}
	loss := b.Apply(kernel.LinearCrossEntropy{Chunk: 8, Grad: true}, h, b.Frozen("W", floats(9, width)),
		b.Batch("labels", kernel.T(kernel.I32, rows)), b.Batch("scale", floats(1)))
	grad := b.Grad(loss, w)[0]
	b.Without(without...)
	p := mustCompile(t, b, grad)
	m, err := NewMemory(p)
	if err != nil {
		t.Fatal(err)
	}
	run, err := p.Bind(m, kernel.NewCPU(2))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"x", "w", "W", "scale"} {
		v, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for j := range v.F32() {
			v.F32()[j] = float32((i*31+j*17)%23-11) / 20
		}
	}
	if err := run.Run("main"); err != nil {
		t.Fatal(err)
	}
	return p, bytes.Clone(run.Tensor(grad).Bytes())
}

// TestWideGradientsAreMadeLate: the gradients of slices are spread over all columns where they are summed, so that few
// are in memory at a time; no bit changes.
func TestWideGradientsAreMadeLate(t *testing.T) {
	const layers = 24
	late, got := slicesOfProjection(t, layers)
	early, want := slicesOfProjection(t, layers, "sink wide values")
	if !bytes.Equal(got, want) || len(bytes.Trim(got, "\x00")) == 0 {
		t.Error("the gradients differ, or are zero")
	}
	spread := int64(32 * layers * 8 * 4)
	if late.arena > early.arena/2 || late.arena > 8*spread {
		t.Errorf("%d bytes, %d where they are spread at once; one takes %d", late.arena, early.arena, spread)
	}
}
