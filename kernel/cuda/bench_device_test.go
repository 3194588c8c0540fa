//go:build gpu && linux

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// measure returns the median device time of one call of f, from 5 groups of launches between two events.
func (r *harness) measure(f func() error) time.Duration {
	r.t.Helper()
	start, err := r.d.NewEvent()
	r.ok(err)
	end, err := r.d.NewEvent()
	r.ok(err)
	defer func() { r.ok(errors.Join(start.Close(), end.Close())) }()
	group := func(n int) time.Duration {
		r.ok(start.Record(r.s))
		for range n {
			r.ok(f())
		}
		r.ok(errors.Join(end.Record(r.s), end.Synchronize()))
		d, err := end.Since(start)
		r.ok(err)
		return d / time.Duration(n)
	}
	group(2)
	n := max(3, min(200, int(4*time.Millisecond/max(group(3), time.Microsecond))))
	var times []time.Duration
	for range 5 {
		times = append(times, group(n))
	}
	slices.Sort(times)
	return times[2]
}

// randomBF16 fills n bf16 values with pseudo-random numbers of magnitude 1/2 to 2 in both signs.
func (r *harness) randomBF16(name string, n int64) gpu.Ptr {
	p := r.out(name, 2*n)
	const chunk = 1 << 20
	v := make([]uint16, chunk)
	for i := range v {
		v[i] = bf16(float32(r.rnd.NormFloat64()))
	}
	m := min(n, chunk)
	r.ok(gpu.Upload(p, v[:m]))
	for at := m; at < n; at *= 2 {
		r.ok(r.s.Copy(p.Add(2*at), p, 2*min(at, n-at)))
	}
	return p
}

func (r *harness) floats(name string, n int64, v uint32) gpu.Ptr {
	p := r.out(name, 4*n)
	r.ok(r.s.Fill32(p, v, n))
	return p
}

// BenchmarkKernels prints a table: one line a kernel and shape, time, and the share of the ceiling measured in the same
// run. Run with -test.benchtime=1x.
func BenchmarkKernels(b *testing.B) {
	r := newHarness(b, 24<<30)
	b.ReportMetric(0, "ns/op")
	x, y := r.out("x", 4<<30), r.out("y", 4<<30)
	t := r.measure(func() error { return r.s.Copy(y, x, 4<<30) })
	copyRate := float64(8<<30) / t.Seconds()
	fmt.Printf("%s\n%-64s %10s %10s %8s\n", r.d.Properties, "kernel", "us", "GB/s", "% copy")
	fmt.Printf("%-64s %10.1f %10.0f %8s\n", "copy 4 GiB", t.Seconds()*1e6, copyRate/1e9, "100")
	moved := func(name string, bytes float64, g Geometry, args ...any) {
		l := r.launch(g, args...)
		defer l.Free()
		t := r.measure(func() error { return l.Run(r.s) })
		fmt.Printf("%-64s %10.1f %10.0f %8.1f\n", name, t.Seconds()*1e6, bytes/t.Seconds()/1e9,
			100*bytes/t.Seconds()/copyRate)
	}
	for _, c := range [][2]int{{8192, 4096}, {8192, 2048}, {16384, 576}, {512, 4096}} {
		M, C := c[0], c[1]
		r.reset()
		n := int64(M) * int64(C)
		X, Y, R, W, S := r.randomBF16("x", n), r.randomBF16("y", n), r.randomBF16("r", n), r.randomBF16("w", int64(C)),
			r.floats("rstd", int64(M), 0x3f800000)
		moved(fmt.Sprintf("rmsnorm_plusone_forward %dx%d", M, C), float64(4*n),
			RMSNorm("rmsnorm_plusone_forward", M, C), Y, S, X, gpu.Ptr(0), W, i32(C), float32(1e-5))
		low := r.randomBF16("low bits", n/2)
		moved(fmt.Sprintf("rmsnorm_forward %dx%d", M, C), float64(4*n), RMSNorm("rmsnorm_forward", M, C), Y, S, X,
			gpu.Ptr(0), W, i32(C), float32(1e-5))
		moved(fmt.Sprintf("rmsnorm_add_forward %dx%d", M, C), float64(10*n), RMSNorm("rmsnorm_add_forward", M, C), Y, X,
			low, S, X, low, R, W, i32(C), float32(1e-5))
		moved(fmt.Sprintf("rmsnorm_add_wide_forward %dx%d", M, C), float64(12*n),
			RMSNorm("rmsnorm_add_wide_forward", M, C), Y, X, low, S, X, low, r.randomBF16("r32", 2*n), W, i32(C),
			float32(1e-5))
		moved(fmt.Sprintf("elementwise_add_tail %dx%d", M, C), float64(8*n), Elementwise("elementwise_add_tail", n), X,
			low, X, low, R, n)
		moved(fmt.Sprintf("elementwise_add %dx%d", M, C), float64(6*n), Elementwise("elementwise_add", n), Y, X, R, n)
		moved(fmt.Sprintf("dropout_apply %dx%d", M, C), float64(4*n), Flat("dropout", "dropout_apply", (n+7)/8), Y, X,
			in(r, "counter", []int32{1, 2}), int64(3), uint32(1<<28), float32(1.1), n, int64(0))
		moved(fmt.Sprintf("bias_add %dx%d", M, C), float64(4*n), Flat("bias", "bias_add", (n+7)/8), Y, X, W, i32(M),
			i32(C))
		moved(fmt.Sprintf("rmsnorm_backward with add %dx%d", M, C), float64(8*n), RMSNorm("rmsnorm_backward", M, C), Y,
			R, X, W, S, r.randomBF16("add", n), i32(C))
	}
	// beside the same bytes as long rows
	for _, c := range [][3]int{{8192, 32, 128}, {8192, 8, 128}, {512, 32, 128}, {8192, 32, 64}} {
		M, H, D := c[0], c[1], c[2]
		r.reset()
		n := int64(M * H * D)
		X, Y, W, S := r.randomBF16("x", n), r.randomBF16("y", n), r.randomBF16("w", int64(H*D)),
			r.floats("rstd", int64(M*H), 0x3f800000)
		DY, DX := r.randomBF16("dy", n), r.randomBF16("dx", n)
		forward, lanes := RMSNormHeads("rmsnorm_heads_forward", M*H, D)
		backward, _ := RMSNormHeads("rmsnorm_heads_backward", M*H, D)
		moved(fmt.Sprintf("rmsnorm_heads_forward %v", c), float64(4*n), forward, Y, S, X, W, int64(M*H), i32(D),
			i32(lanes), float32(1e-5))
		moved(fmt.Sprintf("rmsnorm_forward %dx%d", M, H*D), float64(4*n), RMSNorm("rmsnorm_forward", M, H*D), Y, S, X,
			gpu.Ptr(0), W, i32(H*D), float32(1e-5))
		moved(fmt.Sprintf("rmsnorm_heads_backward %v", c), float64(6*n), backward, DX, DY, X, W, S, gpu.Ptr(0),
			int64(M*H), i32(D), i32(lanes))
		moved(fmt.Sprintf("rmsnorm_backward %dx%d", M, H*D), float64(6*n), RMSNorm("rmsnorm_backward", M, H*D), DX, DY,
			X, W, S, gpu.Ptr(0), i32(H*D))
		table, pos := r.floats("table", 2048*int64(D), 0x3f000000), make([]int32, M)
		for i := range pos {
			pos[i] = int32(i % 2048)
		}
		AT := in(r, "pos", pos)
		rope, _ := RMSNormHeads("rmsnorm_heads_rope_forward", M*H, D)
		back, _ := RMSNormHeads("rmsnorm_heads_rope_backward", M*H, D)
		moved(fmt.Sprintf("rmsnorm_heads_rope_forward %v", c), float64(4*n), rope, Y, S, X, W, AT, table, int64(M*H),
			i32(D), i32(lanes), i32(H), float32(1e-5))
		moved(fmt.Sprintf("rmsnorm_heads_rope_backward %v", c), float64(6*n), back, DX, DY, X, W, S, AT, table,
			int64(M*H), i32(D), i32(lanes), i32(H))
		moved(fmt.Sprintf("elementwise_scale %dx%d", M, H*D), float64(4*n), Elementwise("elementwise_scale", n), Y, X,
			float32(0.22), n)
	}
	for _, c := range [][4]int{{8192, 32, 32, 128}, {8192, 32, 4, 64}, {16384, 9, 3, 64}} {
		M, H, K, D := c[0], c[1], c[2], c[3]
		r.reset()
		ld := (H + 2*K) * D
		X := r.randomBF16("qkv", int64(M)*int64(ld))
		cosT, sinT := r.floats("cos", 2048*int64(D)/2, 0x3f000000), r.floats("sin", 2048*int64(D)/2, 0x3f000000)
		pos := make([]int32, M)
		for i := range pos {
			pos[i] = int32(i % 2048)
		}
		moved(fmt.Sprintf("rope_apply %v", c), float64(4*M*(H+K)*D), Rope(M, H, K, D), X, X.Add(int64(2*H*D)),
			in(r, "pos", pos), cosT, sinT,
			i32(M), i32(H), i32(K), i32(D), i32(D), i32(ld), i32(ld), i32(D/2), float32(1))
	}
	for _, c := range [][2]int{{8192, 11008}, {8192, 5632}, {16384, 1536}} {
		M, F := c[0], c[1]
		r.reset()
		n := int64(M) * int64(F)
		H, E, G := r.randomBF16("h", n), r.randomBF16("e", n), r.randomBF16("g", n)
		moved(fmt.Sprintf("swiglu_forward %dx%d", M, F), float64(6*n), Swiglu("swiglu_forward", M, F), H, E, G, i32(M),
			i32(F), i32(F))
		moved(fmt.Sprintf("swiglu_grad %dx%d", M, F), float64(10*n), Flat("swiglu_grad", "swiglu_grad", (n+7)/8),
			r.out("de", 2*n), r.out("dg", 2*n), E, G, H, n)
		for _, form := range []string{"", "_erf"} {
			moved(fmt.Sprintf("geglu_forward%s %dx%d", form, M, F), float64(6*n),
				Flat("geglu", "geglu_forward"+form, (n+7)/8), H, E, G, i32(M), i32(F), i32(F))
			moved(fmt.Sprintf("geglu_grad%s %dx%d", form, M, F), float64(10*n),
				Flat("geglu_grad", "geglu_grad"+form, (n+7)/8), r.out("de"+form, 2*n), r.out("dg"+form, 2*n), E, G, H,
				n)
		}
		r.reset()
		gate, dgate, Y, DY := r.randomBF16("gate up", 2*n), r.out("dgate dup", 4*n), r.out("y", 2*n),
			r.randomBF16("dy", n)
		up, dup := gate.Add(int64(2*F)), dgate.Add(int64(2*F))
		moved(fmt.Sprintf("swiglu_forward %dx%d, halves of rows", M, F), float64(6*n), Swiglu("swiglu_forward", M, F),
			Y, gate, up, i32(M), i32(F), i32(2*F))
		moved(fmt.Sprintf("swiglu_grad_rows %dx%d, halves of rows", M, F), float64(10*n), SwigluGradRows(M, F), dgate,
			dup, gate, up, DY, i32(F), i32(2*F))
	}
	for _, c := range [][2]int{{8192, 8192}, {8192, 6144}, {512, 8192}} {
		M, C := c[0], c[1]
		const K = 4
		r.reset()
		n := int64(M) * int64(C)
		Y, X, DY, W, CU := r.out("y", 2*n), r.randomBF16("x", n), r.randomBF16("dy", n), r.randomBF16("w", int64(C*K)),
			in(r, "cu", []int32{0, i32(M / 3), i32(M / 2), i32(M)})
		forward, rows := CausalConv(M, C, K, false)
		moved(fmt.Sprintf("causal_conv %dx%d, %d taps", M, C, K), float64(4*n), forward, Y, X, W, CU, i32(M), i32(C),
			i32(3), i32(rows), i32(K))
		backward, rows := CausalConv(M, C, K, true)
		moved(fmt.Sprintf("causal_conv_grad %dx%d, %d taps", M, C, K), float64(6*n), backward, Y, X, W, CU, DY, i32(M),
			i32(C), i32(3), i32(rows), i32(K))
	}
	for _, c := range [][3]int{{8192, 16, 256}, {8192, 8, 256}, {512, 16, 256}} {
		M, H, D := c[0], c[1], c[2]
		r.reset()
		heads, n := int64(M*H), int64(M*H*D)
		Y, X, DY, B, DB := r.out("y", 2*n), r.randomBF16("x", n), r.randomBF16("dy", n), r.randomBF16("both", 2*n),
			r.out("dboth", 4*n)
		moved(fmt.Sprintf("head_gate_forward %v", c), float64(6*n), HeadGate("head_gate_forward", heads, D), Y, X, B,
			uint32(heads), i32(D))
		moved(fmt.Sprintf("head_gate_grad %v", c), float64(12*n), HeadGate("head_gate_grad", heads, D), Y, DB, X, B, DY,
			uint32(heads), i32(D))
		take, unit := HeadColumns("head_columns_take", heads, 2*D, 0, D)
		moved(fmt.Sprintf("head_columns_take %v", c), float64(4*n), take, Y, B, uint32(heads), i32(2*D), i32(0), i32(D),
			i32(unit))
		spread, unit := HeadColumns("head_columns_spread", heads, 2*D, 0, D)
		moved(fmt.Sprintf("head_columns_spread %v", c), float64(6*n), spread, DB, X, uint32(heads), i32(2*D), i32(0),
			i32(D), i32(unit))
	}
	{
		r.reset()
		const M, V, C = 8192, 32000, 4096
		ids := make([]int32, M)
		for i := range ids {
			ids[i] = int32((i * 7919) % V)
		}
		moved("embedding_gather 8192 of 32000x4096", 4*M*C, Embedding(M, C), r.out("y", 2*M*C),
			r.randomBF16("table", V*C), in(r, "ids", ids), i32(V), i32(C))
	}
	for _, c := range [][2]int64{{4096, 11008}, {4096, 4096}, {2048, 5632}} {
		r.reset()
		n := c[0] * c[1]
		w, packed := r.randomBF16("w", n), r.randomBF16("packed", n/4)
		code, m, scale2, off, absmax := r.floats("code", 16, 0x3f000000), r.floats("map", 256, 0x3f000000),
			r.floats("scale2", n/16384+1, 0x3f000000), r.floats("offset", 1, 0), r.floats("absmax", n/64, 0x3f000000)
		moved(fmt.Sprintf("nf4_dequantise_nested %v", c), 2.52*float64(n), NF4Dequantise("nf4_dequantise_nested", n), w,
			packed, code, r.out("scale8", n/64), m, scale2, off, n)
		moved(fmt.Sprintf("nf4_dequantise %v", c), 2.5625*float64(n), NF4Dequantise("nf4_dequantise", n), w, packed,
			code, absmax, n)
		moved(fmt.Sprintf("int8_dequantise %v", c), 3*float64(n), Int8Dequantise(int(c[0]), int(c[1])), w,
			r.randomBF16("codes", n/2), absmax, int32(c[1]))
		moved(fmt.Sprintf("expert_nf4_dequantise %v", c), 2.5625*float64(n), ExpertNF4("expert_nf4_dequantise", n, 1),
			w, packed, code, absmax, n)
		moved(fmt.Sprintf("expert_mxfp4_dequantise %v", c), 2.53125*float64(n), ExpertMXFP4(n), w, packed,
			r.out("e8m0", n/32), n)
		w = r.randomBF16("w2", n)
		moved(fmt.Sprintf("nf4_quantise_bf16 %v", c), 2.5625*float64(n), NF4Quantise("nf4_quantise_bf16", n), packed,
			absmax, w, n)
	}
	for _, c := range [][2]int{{2048, 32000}, {1024, 128256}, {2048, 49152}, {512, 256000}} {
		M, V := c[0], c[1]
		r.reset()
		labels := make([]int32, M)
		for i := range labels {
			labels[i] = int32(i)
		}
		moved(fmt.Sprintf("crossentropy_gradient %dx%d", M, V), float64(4*M)*float64(V),
			CrossEntropy("crossentropy_gradient", M, V), r.floats("loss", int64(M), 0),
			r.randomBF16("logits", int64(M)*int64(V)), in(r, "labels", labels), r.floats("scale", 1, 0x3f800000),
			gpu.Ptr(0), i32(V), i32(V))
		moved(fmt.Sprintf("crossentropy_gradient_capped %dx%d", M, V), float64(4*M)*float64(V),
			CrossEntropy("crossentropy_gradient_capped", M, V), r.floats("loss", int64(M), 0),
			r.randomBF16("logits", int64(M)*int64(V)), in(r, "labels", labels), r.floats("scale", 1, 0x3f800000),
			gpu.Ptr(0), i32(V), i32(V), float32(30))
	}
	{
		r.reset()
		const n = 40_000_000
		p, m, v, g := r.floats("p", n, 0x3f000000), r.floats("m", n, 0x3f000000), r.floats("v", n, 0x3f000000),
			r.floats("g", n, 0x3f000000)
		moved("adamw_step 40M", 30*n, AdamW(n), p, m, v, r.out("copy", 2*n), g, r.floats("lr", 1, 0x3a000000),
			r.floats("step", 1, 3), r.floats("clip", 1, 0x3f800000), gpu.Ptr(0),
			int64(n), float32(.9), float32(.999), float32(1e-8), float32(.01))
		const blocks = n / 256
		table := make([]uint32, 0, 2*blocks)
		for at := range uint32(blocks) {
			table = append(table, 256*at, 256)
		}
		moved("adamw_8bit_step 40M", 18*n+24*blocks, AdamW8Bit(blocks), p, r.out("copy", 2*n), g, r.out("codes1", n),
			r.out("codes2", n), r.floats("absmax1", blocks, 0x3f000000),
			r.floats("absmax2", blocks, 0x3f000000), gpu.Ptr(0), gpu.Ptr(0), in(r, "blocks", table),
			r.floats("lr", 1, 0x3a000000), r.floats("step", 1, 3), r.floats("clip", 1, 0x3f800000),
			gpu.Ptr(0), i32(blocks), i32(blocks), float32(.9), float32(.999), float32(1e-8), float32(.01))
		moved("norm_partial 40M", 4*n, Norm(), r.out("partial", 4*NormBlocks), g, int64(n))
	}
}

// BenchmarkAttention measures forward and backward over packed sequences; FLOPs are counted as peers do: 4 and 10 D for
// every visible pair.
func BenchmarkAttention(b *testing.B) {
	r := newHarness(b, 8<<30)
	b.ReportMetric(0, "ns/op")
	side, err := r.d.NewStream()
	r.ok(err)
	fork, err := r.d.NewEvent()
	r.ok(err)
	join, err := r.d.NewEvent()
	r.ok(err)
	defer func() { r.ok(errors.Join(side.Close(), fork.Close(), join.Close())) }()
	fmt.Printf("%-44s %10s %10s %10s %10s\n", "attention, causal", "fwd us", "fwd TF", "bwd us", "bwd TF")
	// batch, length, query heads, key heads, head size, family (-1 = the table's), soft cap (0 = none)
	for _, c := range [][7]int{
		{4, 2048, 32, 32, 128, -1}, {4, 2048, 32, 8, 128, -1}, {4, 2048, 32, 4, 64, -1}, {8, 2048, 9, 3, 64, -1},
		{1, 512, 32, 32, 128, -1}, {1, 512, 32, 4, 64, -1},
		{1, 512, 9, 3, 64, -1}, {4, 2048, 8, 4, 256, -1}, {4, 2048, 16, 2, 512, -1}, {4, 2048, 16, 1, 512, -1},
		{4, 2048, 32, 4, 256, -1}, {4, 2048, 32, 32, 96, -1}, {4, 2048, 32, 32, 80, -1}, {4, 2048, 32, 32, 32, -1},
		{4, 2048, 32, 32, 128, 0}, {4, 2048, 32, 4, 64, 0}, {1, 512, 32, 32, 128, 0}, {1, 512, 9, 3, 64, 0},
		{4, 2048, 32, 32, 96, 0}, {4, 2048, 32, 32, 80, 0},
		{4, 2048, 8, 4, 256, -1, 50}, {1, 512, 8, 4, 256, -1, 50}, {4, 2048, 32, 16, 128, -1, 50},
		{4, 2048, 32, 16, 128, 0, 50}, {4, 2048, 32, 4, 64, -1, 50}, {4, 2048, 32, 4, 64, 0, 50},
	} {
		B, T, H, K, D := c[0], c[1], c[2], c[3], c[4]
		r.reset()
		M, ldq, ldk, ldo := B*T, H*D, K*D, H*D
		family, err := AttentionFamily("bf16", r.d.SM(), D)
		r.ok(err)
		if c[5] >= 0 {
			family = Family(c[5])
		}
		a, err := NewAttention(family, M, H, K, D)
		r.ok(err)
		cap := float32(c[6])
		if cap > 0 {
			a = a.Capped()
		}
		cu := make([]int32, B+1)
		for i := range cu {
			cu[i] = int32(i * T)
		}
		Q, Kp, V, DO := r.randomBF16("q", int64(M*ldq)), r.randomBF16("k", int64(M*ldk)),
			r.randomBF16("v", int64(M*ldk)), r.randomBF16("do", int64(M*ldo))
		O, LSE, DELTA := r.out("o", int64(2*M*ldo)), r.out("lse", int64(4*H*M)), r.out("delta", int64(4*H*M))
		DQ, DK, DV := r.out("dq", int64(2*M*ldq)), r.out("dk", int64(2*M*ldk)), r.out("dv", int64(2*M*ldk))
		part := gpu.Ptr(0)
		if a.Splits > 1 {
			part = r.out("part", a.Part)
		}
		f, back := r.attention(a, attentionBuffers{Q, Kp, V, DO, O, LSE, DELTA, DQ, DK, DV, part, in(r, "cu", cu), M, B,
			H, K, D, ldq, ldk, ldo, 0, .1, cap})
		t1 := r.measure(func() error { return f.Run(r.s) })
		tk, tq := r.measure(func() error { return back[1].Run(r.s) }),
			r.measure(func() error { return back[len(back)-1].Run(r.s) })
		t2 := r.measure(func() error {
			for _, l := range back {
				if err := l.Run(r.s); err != nil {
					return err
				}
			}
			return nil
		})
		graph := func(work func() error) float64 { // in microseconds, of one of ten in a replayed graph
			g, err := gpu.Capture(r.s, func() error {
				for range 10 {
					if err := work(); err != nil {
						return err
					}
				}
				return nil
			})
			r.ok(err)
			t := r.measure(func() error { return g.Replay(r.s) })
			r.ok(g.Close())
			return t.Seconds() * 1e5
		}
		g1 := graph(func() error { return f.Run(r.s) })
		g2 := graph(func() error {
			for _, l := range back {
				if err := l.Run(r.s); err != nil {
					return err
				}
			}
			return nil
		})
		g3 := graph(func() error { // queries' pass on a branch of its own
			err := errors.Join(back[0].Run(r.s), fork.Record(r.s), side.Wait(fork), back[len(back)-1].Run(side))
			for _, l := range back[1 : len(back)-1] {
				err = errors.Join(err, l.Run(r.s))
			}
			return errors.Join(err, join.Record(side), r.s.Wait(join))
		})
		pairs := float64(B) * float64(T) * float64(T) / 2 * float64(H) * float64(D) / 1e12
		fmt.Printf("%-44s %10.1f %10.1f %10.1f %10.1f   kv %.1f q %.1f splits %d %v; in a graph %.1f, %.1f, branched %.1f\n", fmt.Sprintf("%dx%d H %d K %d D %d cap %v", B, T, H, K, D, cap), t1.Seconds()*1e6, 4*pairs/t1.Seconds(),
			t2.Seconds()*1e6, 10*pairs/t2.Seconds(), tk.Seconds()*1e6, tq.Seconds()*1e6, a.Splits, family, g1, g2, g3)
		for _, l := range append(back, f) {
			l.Free()
		}
	}
}
