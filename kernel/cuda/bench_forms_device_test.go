//go:build gpu && linux

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// forms times kernels' forms beside plain ones, and knows what the device can do.
type forms struct {
	*harness
	blas               *gpu.BLAS
	copyRate, gemmRate float64 // bytes and FLOPs a second
}

// timed is a form's time and the least that its bytes and FLOPs take, both in seconds.
type timed struct {
	name        string
	took, least float64
}

func (t timed) share() float64 { return 100 * t.least / t.took }

// row prints a form beside a plain one; the last number is how much longer it takes than the plain one's share of the
// ceiling lets expect.
func (f *forms) row(form, plain timed) {
	fmt.Printf("%-58s %9.1f %6.1f   %-40s %9.1f %6.1f %7.2f\n", form.name, 1e6*form.took, form.share(), plain.name,
		1e6*plain.took, plain.share(), plain.share()/form.share())
}

func (f *forms) bytes(n float64) float64 { return n / f.copyRate }

// floor returns the least time of a kernel that moves bytes while it multiplies.
func (f *forms) floor(bytes, flops float64) float64 {
	return max(bytes/f.copyRate, flops/f.gemmRate)
}

func (f *forms) time(work ...*gpu.Launch) float64 {
	f.t.Helper()
	t := f.measure(func() error {
		for _, l := range work {
			if err := l.Run(f.s); err != nil {
				return err
			}
		}
		return nil
	})
	for _, l := range work {
		l.Free()
	}
	return t.Seconds()
}

// copied returns a copy of as many bytes, read and written together.
func (f *forms) copied(bytes float64) timed {
	f.t.Helper()
	n := int64(bytes/2) / 256 * 256
	x, y := f.out("from", n), f.out("to", n)
	return timed{"copy", f.measure(func() error { return f.s.Copy(y, x, n) }).Seconds(), f.bytes(bytes)}
}

// moved times a kernel that is bound by its bytes beside a copy of as many.
func (f *forms) moved(name string, bytes float64, g Geometry, args ...any) {
	f.t.Helper()
	t := timed{name, f.time(f.launch(g, args...)), f.bytes(bytes)}
	f.row(t, f.copied(bytes))
}

// BenchmarkForms prints a table of the families' forms of kernels, each beside its plain form in the same run: time,
// and the share of the ceiling: a copy's bytes or a GEMM's FLOPs a second, both measured first. Run with
// -test.benchtime=1x.
func BenchmarkForms(b *testing.B) {
	f := newForms(b)
	f.attentionForms()
	f.normForms()
	f.skinnyForms()
}

// BenchmarkFormsOfExperts times mixtures' kernels, beside dense GEMMs and copies.
func BenchmarkFormsOfExperts(b *testing.B) {
	f := newForms(b)
	for _, tokens := range []int{8192, 512} {
		f.expertForms(tokens)
		f.routingForms(tokens)
	}
}

// newForms measures what the device can do, and prints the head of the table.
func newForms(b *testing.B) *forms {
	f := &forms{harness: newHarness(b, 12<<30)}
	b.ReportMetric(0, "ns/op")
	var err error
	f.blas, err = gpu.OpenBLAS("")
	f.ok(err)
	x, y := f.out("x", 2<<30), f.out("y", 2<<30)
	f.copyRate = float64(4<<30) / f.measure(func() error { return f.s.Copy(y, x, 2<<30) }).Seconds()
	f.reset()
	f.gemmRate = 1
	f.gemmRate = 1 / f.dense(8192, 11008, 4096).took * 2 * 8192 * 11008 * 4096
	fmt.Printf("%s, cuBLASLt %s: copy %.0f GB/s, GEMM %.0f TFLOP/s\n%-58s %9s %6s   %-40s %9s %6s %7s\n",
		f.d.Properties, f.blas.Version, f.copyRate/1e9, f.gemmRate/1e12,
		"form", "us", "%", "plain form", "us", "%", "times")
	return f
}

// attentionForm is one attention to time.
type attentionForm struct {
	B, T, H, K, D, window int
	cap                   float32
	sinks                 bool
}

func (c attentionForm) String() string {
	s := fmt.Sprintf("%dx%d H %d K %d D %d", c.B, c.T, c.H, c.K, c.D)
	if c.window > 0 {
		s += fmt.Sprintf(" window %d", c.window)
	}
	if c.cap > 0 {
		s += " capped"
	}
	if c.sinks {
		s += " sinks"
	}
	return s
}

// pairs returns the visible pairs of query and key of all heads.
func (c attentionForm) pairs() float64 {
	n := float64(c.T) * float64(c.T+1) / 2
	if w := float64(c.window); c.window > 0 && c.window < c.T {
		n = w*(w+1)/2 + (float64(c.T)-w)*w
	}
	return n * float64(c.B*c.H)
}

func (f *forms) attentionForms() {
	plain := map[attentionForm][2]timed{}
	of := func(c attentionForm) [2]timed {
		if _, ok := plain[c]; !ok {
			plain[c] = f.attended(c)
		}
		return plain[c]
	}
	for _, c := range []attentionForm{ // Gemma 2's heads, and gpt-oss's
		{4, 2048, 16, 8, 256, 0, 50, false}, {1, 512, 16, 8, 256, 0, 50, false}, {4, 2048, 32, 16, 128, 0, 50, false},
		{1, 512, 32, 16, 128, 0, 50, false},
		{4, 2048, 16, 8, 256, 512, 50, false},
		{4, 2048, 64, 8, 64, 0, 0, true}, {4, 2048, 64, 8, 64, 128, 0, true}, {1, 512, 64, 8, 64, 0, 0, true},
		{1, 512, 64, 8, 64, 128, 0, true},
		{4, 2048, 64, 8, 64, 128, 0, false},
	} {
		base := c
		base.cap, base.sinks = 0, false
		if base == c { // a window alone beside none
			base.window = 0
		}
		form, other := of(c), of(base)
		for i := range form {
			if i == 1 && c.sinks {
				continue // the backward pass has no form of its own
			}
			f.row(form[i], other[i])
		}
	}
}

// attended times the forward and the backward pass.
func (f *forms) attended(c attentionForm) [2]timed {
	f.t.Helper()
	f.reset()
	M, ldq, ldk := c.B*c.T, c.H*c.D, c.K*c.D
	family, err := AttentionFamily("bf16", f.d.SM(), c.D)
	f.ok(err)
	a, err := NewAttention(family, M, c.H, c.K, c.D)
	f.ok(err)
	if c.cap > 0 {
		a = a.Capped()
	}
	cu := make([]int32, c.B+1)
	for i := range cu {
		cu[i] = int32(i * c.T)
	}
	q, k, v, do := f.randomBF16("q", int64(M*ldq)), f.randomBF16("k", int64(M*ldk)), f.randomBF16("v", int64(M*ldk)),
		f.randomBF16("do", int64(M*ldq))
	o, lse, delta := f.out("o", int64(2*M*ldq)), f.out("lse", int64(4*c.H*M)), f.out("delta", int64(4*c.H*M))
	dq, dk, dv := f.out("dq", int64(2*M*ldq)), f.out("dk", int64(2*M*ldk)), f.out("dv", int64(2*M*ldk))
	part := gpu.Ptr(0)
	if a.Splits > 1 {
		part = f.out("part", a.Part)
	}
	scale := float32(1) / float32(c.D)
	forward, backward := f.attention(a, attentionBuffers{q, k, v, do, o, lse, delta, dq, dk, dv, part,
		in(f.harness, "cu", cu), M, c.B, c.H, c.K, c.D, ldq, ldk, ldq, c.window, scale, c.cap})
	multiply := c.pairs() * float64(c.D)
	least := f.floor(float64(4*M*(ldq+ldk)), 4*multiply)
	work := []*gpu.Launch{forward}
	if c.sinks {
		work = append(work, f.launch(AttentionSinks(M, c.H), o, lse, f.randomBF16("sinks", int64(c.H)), i32(M),
			i32(c.H), i32(c.D)))
		least += f.bytes(float64(4*M*ldq + 8*M*c.H))
	}
	first := timed{c.String() + " forward", f.time(work...), least}
	return [2]timed{first, {c.String() + " backward", f.time(backward...),
		f.floor(float64(8*M*(ldq+ldk)), 10*multiply)}}
}

// dense returns cuBLASLt's GEMM [M,N] = [M,K] [N,K]ᵀ.
func (f *forms) dense(M, N, K int) timed {
	f.t.Helper()
	a, b, d, w := f.randomBF16("a", int64(M*K)), f.randomBF16("b", int64(N*K)), f.out("d", int64(2*M*N)),
		f.out("w", 64<<20)
	t := f.vendor(f.blas, gemmShape{NT, M, N, K, false}, a, b, d, w, 0)
	return timed{fmt.Sprintf("cuBLASLt %dx%dx%d", M, N, K), t,
		f.floor(2*float64(M*K+N*K+M*N), 2*float64(M)*float64(N)*float64(K))}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// qwen3Experts are Qwen3-30B-A3B's: experts, choices of a token, width, and width inside an expert.
var qwen3Experts = struct{ E, K, C, F int }{128, 8, 2048, 768}

// routed sends tokens by random logits: the experts' first rows, each slot's row and each row's slot.
func (f *forms) routed(tokens int) (logits, weights, experts, counts, starts, rows, source gpu.Ptr) {
	f.t.Helper()
	x := qwen3Experts
	S := tokens * x.K
	logits = f.randomBF16("logits", int64(tokens*x.E))
	weights, experts, counts = f.out("weights", int64(4*S)), f.out("experts", int64(4*S)),
		f.out("counts", int64(4*MoEPieces(S)*x.E))
	starts, rows, source = f.out("starts", int64(4*(x.E+1))), f.out("rows", int64(4*S)), f.out("source", int64(4*S))
	f.run(MoERoute(tokens, x.E), weights, experts, logits, i32(tokens), i32(x.E), i32(x.K), int32(1))
	f.run(MoECount(S, x.E), counts, experts, gpu.Ptr(0), i32(S), i32(x.E), i32(x.K))
	f.run(MoEOffsets(), starts, counts, i32(MoEPieces(S)), i32(x.E))
	f.run(MoEPlace(S, x.E), rows, source, experts, gpu.Ptr(0), counts, starts, i32(S), i32(x.E), i32(x.K))
	return
}

// again times a launch that is kept, in seconds.
func (f *forms) again(l *gpu.Launch) float64 {
	f.t.Helper()
	return f.measure(func() error { return l.Run(f.s) }).Seconds()
}

// inTurns prints a form and a plain one, of which it runs one after the other: a card at its power limit runs at a
// clock that depends on what has just run. least are the times that the bytes and FLOPs of each allow.
func (f *forms) inTurns(form string, l *gpu.Launch, least float64, plain string, run func() float64,
	leastPlain float64) {
	f.t.Helper()
	defer l.Free()
	var own, other []float64
	for range 5 {
		own = append(own, f.again(l))
		other = append(other, run())
	}
	f.row(timed{form, median(own), least}, timed{plain, median(other), leastPlain})
}

// expertForms are the grouped GEMMs over S sorted rows, beside one GEMM of as many FLOPs and of the same layout,
// without an update, added to what is there where the form is.
func (f *forms) expertForms(tokens int) {
	e := qwen3Experts
	S := tokens * e.K
	for _, p := range []struct {
		what   string
		N, K   int // columns and depth of the result
		transB bool
	}{{"gate, up", e.F, e.C, true}, {"down", e.C, e.F, true}, {"gradient of gate, up", e.C, e.F, false},
		{"gradient of down", e.F, e.C, false},
		{"A of gate", 16, e.C, true}, {"A of down", 16, e.F, true}, {"onto rank, gate's gradient", 16, e.F, false},
		{"onto rank, down's gradient", 16, e.C, false},
		{"A of gate", 64, e.C, true}, {"onto rank, down's gradient", 64, e.C, false},
		{"B of gate", e.F, 16, true}, {"B of down", e.C, 16, true},
		{"onto the gradient of gate's input", e.C, 16, false},
		{"onto the gradient of down's input", e.F, 16, false},
		{"B of gate", e.F, 64, true}, {"onto the gradient of gate's input", e.C, 64, false}} {
		f.reset()
		_, _, _, _, starts, _, _ := f.routed(tokens)
		layout := NN
		if p.transB {
			layout = NT
		}
		x, y, w, work := f.randomBF16("x", int64(S*p.K)), f.out("y", int64(2*S*p.N)),
			f.randomBF16("w", int64(e.E*p.N*p.K)), f.out("work", 64<<20)
		beside := func(what string, l *gpu.Launch, rank int, beta float32) {
			least := func(matrices, depth int) float64 {
				return f.floor(2*(float64(S*depth)+float64(S*p.N)*float64(1+beta)+float64(matrices*p.N*depth)),
					2*float64(S)*float64(p.N)*float64(depth))
			}
			f.inTurns(fmt.Sprintf("%d rows, %d experts: %s %dx%d%s", S, e.E, p.what, p.N, p.K, what), l,
				least(e.E, p.K+rank),
				fmt.Sprintf("cuBLASLt %dx%dx%d", S, p.N, p.K),
				func() float64 {
					return f.vendor(f.blas, gemmShape{layout, S, p.N, p.K, false}, x, w, y, work,
						beta)
				}, least(1, p.K))
		}
		if p.K > 64 {
			beside("", f.launch(ExpertGemm(p.transB, S, p.N, e.E), y, x, w, starts, i32(S), i32(e.E), i32(p.N),
				i32(p.K), float32(1), float32(0)), 0, 0)
		}
		if f.d.SM() == 90 && p.N > 64 && p.K > 64 {
			plain, rank := f.expertHopper(p.transB, S, p.N, p.K, e.E, 0, x, w), 16
			with := f.expertHopper(p.transB, S, p.N, p.K, e.E, rank, x, w)
			low := f.expertHopper(p.transB, S, p.N, rank, e.E, rank, f.randomBF16("u", int64(S*rank)),
				f.randomBF16("v", int64(e.E*p.N*rank)))
			equal := make([]int32, e.E+1) // no tile is cut
			for i := range equal {
				equal[i] = int32(i * S / e.E)
			}
			beside(", wgmma, equal rows", f.launch(plain.Geometry, y, plain.a, plain.b, in(f.harness, "equal", equal),
				i32(S), i32(e.E), i32(p.N), i32(p.K), float32(1), float32(0)), 0, 0)
			for beta, onto := range []string{"", " onto"} {
				beside(", wgmma"+onto, f.launch(plain.Geometry, y, plain.a, plain.b, starts, i32(S), i32(e.E), i32(p.N),
					i32(p.K), float32(1), float32(beta)), 0, float32(beta))
				beside(", wgmma"+onto+" with rank 16", f.launch(with.Geometry, y, with.a, with.b, starts, i32(S),
					i32(e.E), i32(p.N), i32(p.K), float32(2), float32(beta), low.a, low.b, i32(rank)), rank,
					float32(beta))
			}
		}
		if p.K <= 64 {
			for beta, onto := range []string{"", ", onto"} {
				beside(onto, f.launch(ExpertUp(p.transB, S, p.N, p.K, e.E), y, x, w, starts, i32(S), i32(e.E), i32(p.N),
					i32(p.K), float32(1), float32(beta)), 0, float32(beta))
			}
		}
	}
	f.expertGradients(tokens)
	f.expertsNF4()
}

// expertGradients are the gradients of experts' LoRA matrices, in fp32, beside one dense GEMM's.
func (f *forms) expertGradients(tokens int) {
	e := qwen3Experts
	S := tokens * e.K
	for _, p := range []struct {
		what string
		N, K int
	}{{"gradient of A of gate", 16, e.C}, {"gradient of A of down", 16, e.F}, {"gradient of B of gate", e.F, 16},
		{"gradient of B of down", e.C, 16}} {
		f.reset()
		_, _, _, _, starts, _, source := f.routed(tokens)
		a, b, dw, work := f.randomBF16("a", int64(S*p.N)), f.randomBF16("b", int64(S*p.K)),
			f.out("dw", int64(4*e.E*p.N*p.K)), f.out("work", 64<<20)
		least := func(matrices int) float64 {
			return f.floor(2*float64(S*p.K+S*p.N)+4*float64(matrices*p.N*p.K), 2*float64(S)*float64(p.N)*float64(p.K))
		}
		beside := func(what string, l *gpu.Launch) {
			f.inTurns(fmt.Sprintf("%d rows, %d experts: %s %dx%d%s", S, e.E, p.what, p.N, p.K, what), l, least(e.E),
				fmt.Sprintf("cuBLASLt %dx%dx%d", p.N, p.K, S),
				func() float64 { return f.vendor(f.blas, gemmShape{TN, p.N, p.K, S, true}, a, b, dw, work, 0) },
				least(1))
		}
		beside("", f.launch(ExpertWeight(p.N, p.K, e.E), dw, a, b, starts, i32(p.N), i32(p.K), float32(1), float32(0)))
		if p.K == e.C {
			beside(", of gathered rows", f.launch(ExpertWeightGathered(p.N, p.K, e.E, false), dw, a, b, source, starts,
				i32(p.N), i32(p.K), i32(e.K), i32(tokens), float32(1), float32(0)))
		}
	}
}

// expertsNF4 dequantises the matrices of all experts, beside as many values of one.
func (f *forms) expertsNF4() {
	f.reset()
	e := qwen3Experts
	n := int64(e.F * e.C)
	all := int64(e.E) * n
	w, packed, code := f.out("w", 2*all), f.out("packed", all/2), f.floats("code", 16, 0x3f000000)
	scale8, table, scale2, offset := f.out("scale8", all/64), f.floats("map", 256, 0x3f000000),
		f.floats("scale2", all/16384, 0x3f000000), f.floats("offset", int64(e.E), 0)
	plain := f.launch(NF4Dequantise("nf4_dequantise_nested", all), w, packed, code, scale8, table, scale2, offset, all)
	defer plain.Free()
	f.inTurns(fmt.Sprintf("%d experts: NF4 dequantised %dx%d", e.E, e.F, e.C),
		f.launch(ExpertNF4("expert_nf4_dequantise_nested", n, e.E), w, packed, code, scale8, table, scale2, offset, n),
		f.bytes(2.52*float64(all)), "nf4_dequantise_nested of as many", func() float64 { return f.again(plain) },
		f.bytes(2.52*float64(all)))
}

// routingForms are what moves tokens to experts and back, beside copies of as many bytes.
func (f *forms) routingForms(tokens int) {
	f.reset()
	e := qwen3Experts
	S := tokens * e.K
	logits, weights, experts, counts, starts, rows, source := f.routed(tokens)
	x, wide, inner, other := f.randomBF16("x", int64(tokens*e.C)), f.randomBF16("sorted", int64(S*e.C)),
		f.randomBF16("inner", int64(S*e.F)), f.randomBF16("dy", int64(S*e.F))
	name := func(what string) string {
		return fmt.Sprintf("%d tokens, %d of %d experts: %s", tokens, e.K, e.E, what)
	}
	f.moved(name("route"), float64(2*tokens*e.E+8*S), MoERoute(tokens, e.E), weights, experts, logits, i32(tokens),
		i32(e.E), i32(e.K), int32(1))
	f.moved(name("gradient of route"), float64(4*tokens*e.E+8*S), MoERouteGrad(tokens, e.E),
		f.out("dlogits", int64(2*tokens*e.E)), logits, experts, weights, i32(tokens), i32(e.E), i32(e.K), int32(1))
	sorting := float64(16*S + 16*MoEPieces(S)*e.E)
	sort := timed{name("sort, three launches"), f.time(f.launch(MoECount(S, e.E), counts, experts, gpu.Ptr(0), i32(S),
		i32(e.E), i32(e.K)), f.launch(MoEOffsets(), starts, counts, i32(MoEPieces(S)), i32(e.E)),
		f.launch(MoEPlace(S, e.E), rows, source, experts, gpu.Ptr(0), counts, starts, i32(S), i32(e.E), i32(e.K))),
		f.bytes(sorting)}
	f.row(sort, f.copied(sorting))
	f.moved(name("gather"), float64(4*S*e.C), MoERows("moe_gather", S, e.C), wide, x, source, i32(S), i32(e.C),
		i32(e.K))
	values := int64(S * e.F)
	plain := f.launch(Elementwise("elementwise_scale", values), inner, other, float32(0.5), values)
	defer plain.Free()
	f.inTurns(name("scale"), f.launch(MoERows("moe_scale", S, e.F), inner, other, weights, source, i32(S), i32(e.F)),
		f.bytes(4*float64(values)),
		"scale by one number", func() float64 { return f.again(plain) }, f.bytes(4*float64(values)))
	f.moved(name("gradient of scale"), float64(4*S*e.F), MoEScaleGrad(S), weights, inner, other, rows, i32(S), i32(e.F))
	f.moved(name("sum"), float64(2*tokens*e.C+2*S*e.C), MoERows("moe_sum", tokens, e.C), x, wide, rows, i32(tokens),
		i32(e.C), i32(e.K))
}

// normForms are a norm of heads and the rotation in one kernel, beside the two of which it is made.
func (f *forms) normForms() {
	for _, c := range [][3]int{{8192, 32, 128}, {8192, 8, 128}, {8192, 16, 256}, {512, 32, 128}} {
		f.reset()
		M, H, D := c[0], c[1], c[2]
		n := int64(M * H * D)
		x, y, w, rstd, dy := f.randomBF16("x", n), f.randomBF16("y", n), f.randomBF16("w", int64(D)),
			f.floats("rstd", int64(M*H), 0x3f800000), f.randomBF16("dy", n)
		pos := make([]int32, M)
		for i := range pos {
			pos[i] = int32(i % 2048)
		}
		at, table := in(f.harness, "pos", pos), f.floats("table", 2048*int64(D), 0x3f000000)
		g := func(entry string) Geometry { g, _ := RMSNormHeads(entry, M*H, D); return g }
		_, lanes := RMSNormHeads("", M*H, D)
		rope := func(p gpu.Ptr, sign float32) *gpu.Launch {
			return f.launch(Rope(M, H, 0, D), p, gpu.Ptr(0), at, table, table.Add(int64(2*D)), i32(M), i32(H), i32(0),
				i32(D), i32(D), i32(H*D), i32(0), i32(D), sign)
		}
		f.row(timed{fmt.Sprintf("norm and rotation of heads %v forward", c),
			f.time(f.launch(g("rmsnorm_heads_rope_forward"), y, rstd, x, w, at, table, int64(M*H), i32(D), i32(lanes),
				i32(H), float32(1e-5))), f.bytes(float64(4 * n))},
			timed{"norm, then rotation", f.time(f.launch(g("rmsnorm_heads_forward"), y, rstd, x, w, int64(M*H), i32(D),
				i32(lanes), float32(1e-5)), rope(y, 1)), f.bytes(float64(8 * n))})
		f.row(timed{fmt.Sprintf("norm and rotation of heads %v backward", c),
			f.time(f.launch(g("rmsnorm_heads_rope_backward"), y, dy, x, w, rstd, at, table, int64(M*H), i32(D),
				i32(lanes), i32(H))), f.bytes(float64(6 * n))},
			timed{"rotation, then norm", f.time(rope(dy, -1),
				f.launch(g("rmsnorm_heads_backward"), y, dy, x, w, rstd, gpu.Ptr(0), int64(M*H), i32(D), i32(lanes))),
				f.bytes(float64(10 * n))})
		f.checkGuards()
	}
	f.ok(errors.Join(f.s.Synchronize()))
}
