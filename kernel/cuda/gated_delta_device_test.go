//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// deltaRows are inputs of the gated delta rule over rows, and a gradient of what it gives.
type deltaRows struct {
	K, V, D, E         int
	qkv, b, a, dy      []uint16
	logA, dt           []float32
	cu                 []int32
	width, values, all int // of rows of qkv and of o; rows
}

func newDeltaRows(r *harness, K, V, D, E, rows int, cu ...int32) deltaRows {
	d := deltaRows{K: K, V: V, D: D, E: E, cu: cu, width: 2*K*D + V*E, values: V * E, all: rows}
	d.qkv, _ = r.random(rows*d.width, 1)
	d.b, _ = r.random(rows*V, 1)
	d.a, _ = r.random(rows*V, 1)
	d.dy, _ = r.random(rows*d.values, 1)
	for v := range V {
		d.logA, d.dt = append(d.logA, float32(v)/8-1), append(d.dt, float32(v)/4-0.5)
	}
	return d
}

// part returns rows from..to as one sequence.
func (d deltaRows) part(from, to int) deltaRows {
	d.qkv, d.b, d.a, d.dy = d.qkv[from*d.width:to*d.width], d.b[from*d.V:to*d.V], d.a[from*d.V:to*d.V],
		d.dy[from*d.values:to*d.values]
	d.cu, d.all = []int32{0, int32(to - from)}, to-from
	return d
}

func (d deltaRows) inputs(r *harness) []any {
	return []any{in(r, "qkv", d.qkv), in(r, "b", d.b), in(r, "a", d.a), in(r, "log A", d.logA), in(r, "dt", d.dt),
		in(r, "cu", d.cu)}
}

func (d deltaRows) sizes() []any {
	return []any{i32(d.all), i32(len(d.cu) - 1), i32(d.K), i32(d.V), i32(d.D), i32(d.E)}
}

// run gives o, and the gradients of qkv, b and a, whose backward pass goes over so many rows at a time.
func (d deltaRows) run(r *harness, window int) [][]byte {
	S, args := len(d.cu)-1, append(d.inputs(r), d.sizes()...)
	o, dqkv, db, da := r.out("o", int64(2*d.all*d.values)), r.out("dqkv", int64(2*d.all*d.width)),
		r.out("db", int64(2*d.all*d.V)), r.out("da", int64(2*d.all*d.V))
	size, edge := deltaKept("bf16", window, d.V, d.D, d.E), int64(4*d.values*d.D)
	states, grads, borders, edges := r.out("states", size), r.out("grads", size),
		r.out("borders", edge*int64(ceil(d.all, window)+1)), r.out("edges", 2*edge)
	prepared, dy := r.out("prepared", int64(min(d.all, window+deltaChunk-1)*d.V*deltaPrepared)), in(r, "dy", d.dy)
	with := func(g Geometry, first ...any) { r.run(g, append(first, args...)...) }
	border := func(row int) gpu.Ptr { return borders.Add(int64(row/window) * edge) }
	for from := 0; from < d.all; from += window {
		to, turn := min(from+window, d.all), int64(from/window%2)
		with(GatedDeltaPrepare(to-from, d.K), prepared, o, i32(from), i32(to))
		with(GatedDelta(S, d.V, d.E), o, edges.Add(turn*edge), edges.Add((1-turn)*edge), prepared, i32(from), i32(to))
		with(GatedDeltaStates(S, d.V, d.E), gpu.Ptr(0), border(from), border(from+window), prepared, i32(from), i32(to))
	}
	for from := (d.all - 1) / window * window; from >= 0; from -= window {
		to, turn := min(from+window, d.all), int64(from/window%2)
		with(GatedDeltaPrepare(to-from, d.K), prepared, gpu.Ptr(0), i32(from), i32(to))
		with(GatedDeltaStates(S, d.V, d.E), states, border(from), gpu.Ptr(0), prepared, i32(from), i32(to))
		with(GatedDeltaCarry(S, d.V, d.E), dqkv, grads, edges.Add((1-turn)*edge), edges.Add(turn*edge), prepared, dy,
			i32(from), i32(to))
		with(GatedDeltaGradients(to-from, d.K), dqkv, db, da, dy, states, grads, prepared, i32(from))
	}
	return [][]byte{get[byte](r, o, 2*d.all*d.values), get[byte](r, dqkv, 2*d.all*d.width),
		get[byte](r, db, 2*d.all*d.V), get[byte](r, da, 2*d.all*d.V)}
}

// TestGatedDeltaOfPackedRows demands that a sequence's numbers are the same, bit for bit, wherever it lies, whatever
// lies beside it and whatever windows its rows are gone through in, and zeros in rows of no sequence. selfcheck
// compares them with float64.
func TestGatedDeltaOfPackedRows(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, c := range [][4]int{{1, 1, 8, 12}, {1, 2, 64, 100}, {2, 4, 128, 128}} {
		r.reset()
		d := newDeltaRows(r, c[0], c[1], c[2], c[3], 190, 3, 4, 37, 37, 101, 187)
		all := r.repeat(func() [][]byte { return d.run(r, 8192) })
		for _, window := range []int{32, 64, 96} {
			r.reset()
			d = newDeltaRows(r, c[0], c[1], c[2], c[3], 190, 3, 4, 37, 37, 101, 187)
			for out, windows := range d.run(r, window) {
				if !bytes.Equal(windows, all[out]) {
					t.Errorf("%v: output %d is another in windows of %d rows", c, out, window)
				}
			}
		}
		rows := func(out int) int { return len(all[out]) / d.all }
		for out := range all {
			rest := append(slices.Clone(all[out][:3*rows(out)]), all[out][187*rows(out):]...)
			if slices.ContainsFunc(rest, func(b byte) bool { return b != 0 }) {
				t.Errorf("%v: output %d has other numbers than zeros in rows of no sequence", c, out)
			}
		}
		for s := range len(d.cu) - 1 {
			from, to := int(d.cu[s]), int(d.cu[s+1])
			if from == to {
				continue
			}
			r.reset()
			for out, alone := range d.part(from, to).run(r, 8192) {
				if !bytes.Equal(alone, all[out][from*rows(out):to*rows(out)]) {
					t.Errorf("%v: output %d of rows %d to %d differs from that of the sequence alone", c, out, from, to)
				}
			}
		}
	}
}

// TestGatedDeltaCached demands that a text in pieces gives what it gives whole, to the bit, near what the form in
// chunks gives, and that slots without a row stay as they are.
func TestGatedDeltaCached(t *testing.T) {
	r := newHarness(t, 256<<20)
	const tokens, slots = 128, 3
	for _, c := range [][4]int{{1, 1, 8, 12}, {1, 2, 64, 100}, {2, 4, 128, 128}} {
		r.reset()
		whole := newDeltaRows(r, c[0], c[1], c[2], c[3], 77, 0, 77)
		size := slots * whole.V * whole.D * whole.E
		goOn := func(d deltaRows, state gpu.Ptr, before int) []byte { // in the last slot
			o := r.out("o", int64(2*d.all*d.values))
			cuK := in(r, "cu_k", []int32{(slots - 1) * tokens, int32((slots-1)*tokens + before + d.all)})
			args := append([]any{o, state}, d.inputs(r)...)
			args = append(append(append(args, cuK), d.sizes()...), i32(slots), i32(tokens))
			r.run(GatedDeltaCached(1, d.V, d.E), args...)
			return get[byte](r, o, 2*d.all*d.values)
		}
		chunked := whole.run(r, 8192)[0]
		runs := r.repeat(func() [][]byte {
			state := r.floats("state", int64(size), 0x7fc00000) // NaN: nothing of it is to be read
			all := goOn(whole, state, 0)
			kept := get[byte](r, state, 4*size)
			state = r.floats("state of pieces", int64(size), 0x7fc00000)
			var pieces []byte
			for at, n := 0, 0; at < whole.all; at += n {
				n = min([]int{1, 40, 5, 17, 1}[min(at, 4)], whole.all-at)
				pieces = append(pieces, goOn(whole.part(at, at+n), state, at)...)
			}
			return [][]byte{all, kept, pieces, get[byte](r, state, 4*size)}
		})
		if !bytes.Equal(runs[0], runs[2]) || !bytes.Equal(runs[1], runs[3]) {
			t.Errorf("%v: a text in pieces differs from the whole", c)
		}
		for i, x := range f32Floats(runs[1]) {
			if within := i >= size*(slots-1)/slots; within != (x == x) {
				t.Fatalf("%v: number %d of the slots is %v", c, i, x)
			}
		}
		if d := distance(bfFloats(runs[0]), bfFloats(chunked)); !(d < 2.0/256) {
			t.Errorf("%v: token by token is %.2g from chunks", c, d)
		}
	}
}

// BenchmarkGatedDelta prints a table as BenchmarkForms does.
func BenchmarkGatedDelta(b *testing.B) {
	f := newForms(b)
	for _, c := range [][2]int{{8192, 2048}, {512, 512}, {8192, 8192}, {16384, 16384}} {
		f.deltaForms(c[0], c[1])
	}
}

// deltaForms times the rule over Qwen3.5's heads, beside the GEMMs of such a layer's projections, forward and backward
// for the inputs.
func (f *forms) deltaForms(rows, length int) {
	const K, V, D, hidden = 16, 32, 128, 4096
	f.reset()
	cu := []int32{0}
	for at := length; at <= rows; at += length {
		cu = append(cu, int32(at))
	}
	S, width := len(cu)-1, int64(2*K*D+V*D)
	x := func(name string, n int64) gpu.Ptr { return f.randomBF16(name, n) }
	M := int64(rows)
	args := []any{x("qkv", M*width), x("b", M*V), x("a", M*V), f.floats("log A", V, 0), f.floats("dt", V, 0),
		in(f.harness, "cu", cu), i32(rows), i32(S), i32(K), i32(V), i32(D), i32(D)}
	o, dy, dqkv, db, da := x("o", M*V*D), x("dy", M*V*D), x("dqkv", M*width), x("db", M*V), x("da", M*V)
	size := deltaKept("bf16", rows, V, D, D)
	states, grads, prepared := f.out("states", size), f.out("grads", size), f.out("prepared", M*V*deltaPrepared)
	with := func(g Geometry, first ...any) *gpu.Launch { return f.launch(g, append(first, args...)...) }
	name := func(what string) string { return fmt.Sprintf("gated delta %s, %d rows of %d", what, rows, length) }
	flops := func(perToken float64) float64 { return 2 * float64(M) * V * perToken }
	least := func(n float64) float64 { return n / f.gemmRate }
	gemms := timed{fmt.Sprintf("its GEMMs of %d columns", hidden), 0,
		least(2 * float64(M) * hidden * float64(width+2*V*D))}
	gemms.took = gemms.least
	none := gpu.Ptr(0)
	for _, p := range []timed{
		{name("prepare"), f.time(with(GatedDeltaPrepare(rows, K), prepared, o, i32(0), i32(rows))),
			f.bytes(float64(M) * (2*2*K*D + V*deltaPrepared))},
		{name("forward"), f.time(with(GatedDelta(S, V, D), o, none, none, prepared, i32(0), i32(rows))),
			least(flops(3*D*D + 32*2*D))},
		{name("states"), f.time(with(GatedDeltaStates(S, V, D), states, none, none, prepared, i32(0), i32(rows))),
			least(flops(2*D*D + 32*D))},
		{name("carry"), f.time(with(GatedDeltaCarry(S, V, D), dqkv, grads, none, none, prepared, dy, i32(0),
			i32(rows))), least(flops(3*D*D + 32*2*D))},
		{name("gradients"), f.time(with(GatedDeltaGradients(rows, K), dqkv, db, da, dy, states, grads, prepared,
			i32(0))), least(flops(5*D*D + 32*5*D))},
	} {
		f.row(p, gemms)
	}
	cuK, state := in(f.harness, "cu_k", cu), f.floats("state", int64(S)*V*D*D, 0)
	step := append(append([]any{o, state}, args[:6]...), cuK)
	f.row(timed{name("cached"), f.time(f.launch(GatedDeltaCached(S, V, D),
		append(append(step, args[6:]...), i32(S), i32(length))...)), f.bytes(float64(8 * S * V * D * D))}, gemms)
}
