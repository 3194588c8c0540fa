//go:build gpu && linux

package cuda

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestDrawRows checks drawn places and log-probabilities against running sums in float64, at shares from 0 to nearly 1,
// for peaked and flat rows, and rows that are not finite.
func TestDrawRows(t *testing.T) {
	r := newHarness(t, 256<<20)
	for _, c := range [][2]int{{1, 32000}, {64, 33}, {5, 128256}, {3, 1}, {8, 4099}, {16, 512}} {
		M, N := c[0], c[1]
		var x, draws []float32
		out := r.repeat(func() [][]byte {
			x, draws = make([]float32, M*N), nil
			for m := range M {
				for i := range N {
					x[m*N+i] = float32(r.rnd.NormFloat64() * []float64{0.1, 3, 30}[m%3])
				}
				if m%7 == 6 {
					x[m*N+r.rnd.IntN(N)] = float32(math.NaN())
				}
				share := float32(r.rnd.Uint64()>>40) / (1 << 24)
				if m%5 == 4 {
					share = []float32{0, 1 - 1./(1<<24)}[m/5%2]
				}
				draws = append(draws, share, []float32{1, 1.5, 0.5, 1e30}[m%4])
			}
			place, logp := r.out("place", int64(4*M)), r.out("logp", int64(4*M))
			r.run(Draw(M), place, logp, in(r, "x", x), in(r, "draws", draws), i32(N))
			return [][]byte{get[byte](r, place, 4*M), get[byte](r, logp, 4*M)}
		})
		for m := range M {
			row, by := x[m*N:][:N], float64(draws[2*m+1])
			got := int(int32(binary.LittleEndian.Uint32(out[0][4*m:])))
			top, sum, broken := math.Inf(-1), 0.0, -1
			for i, v := range row {
				if v != v && broken < 0 {
					broken = i
				}
				top = math.Max(top, float64(v))
			}
			if broken >= 0 {
				if got != -1-broken {
					t.Errorf("%v: row %d: place %d, want %d", c, m, got, -1-broken)
				}
				continue
			}
			weight := func(i int) float64 { return math.Exp((float64(row[i]) - top) * by) }
			for i := range row {
				sum += weight(i)
			}
			if got < 0 || got >= N || weight(got) == 0 {
				t.Errorf("%v: row %d: place %d, which has no weight", c, m, got)
				continue
			}
			before := 0.0
			for i := range got {
				before += weight(i)
			}
			want, slack := float64(draws[2*m])*sum, 1e-12*sum
			if before > want+slack || before+weight(got) < want-slack {
				t.Errorf("%v: row %d: place %d holds shares from %v to %v, wanted %v of %v", c, m, got, before,
					before+weight(got), want, sum)
			}
			l := float64(math.Float32frombits(binary.LittleEndian.Uint32(out[1][4*m:])))
			if p := (float64(row[got])-top)*by - math.Log(sum); math.Abs(l-p) > 2e-7*math.Max(1, math.Abs(p)) {
				t.Errorf("%v: row %d: log-probability %v, want %v", c, m, l, p)
			}
		}
	}
}
