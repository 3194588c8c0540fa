package graph

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestDependencies compares with all pairs of calls that access the same memory, at least one writing: a call must come
// after the other by the dependencies, directly or not, exactly where it does by the pairs; and no dependency
// may follow from the others.
func TestDependencies(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		calls := make([][]access, 2+r.IntN(70))
		for i := range calls {
			for range r.IntN(5) {
				from := r.Uint64N(60)
				calls[i] = append(calls[i], access{from, from + r.Uint64N(12), r.IntN(3) == 0})
			}
		}
		met := func(a, b []access) bool {
			for _, x := range a {
				for _, y := range b {
					if (x.write || y.write) && max(x.from, y.from) < min(x.to, y.to) {
						return true
					}
				}
			}
			return false
		}
		after := func(needs func(i, j int) bool) [][]bool { // closure
			all := make([][]bool, len(calls))
			for i := range calls {
				all[i] = make([]bool, len(calls))
				for j := i - 1; j >= 0; j-- {
					if needs(i, j) {
						all[i][j] = true
						for k, x := range all[j] {
							all[i][k] = all[i][k] || x
						}
					}
				}
			}
			return all
		}
		needs := dependencies(calls)
		direct := make([]map[int]bool, len(calls))
		for i, n := range needs {
			direct[i] = map[int]bool{}
			for _, j := range n {
				direct[i][j] = true
			}
		}
		want := after(func(i, j int) bool { return met(calls[i], calls[j]) })
		got := after(func(i, j int) bool { return direct[i][j] })
		for i := range calls {
			for j := range i {
				if got[i][j] != want[i][j] {
					t.Fatalf("seed %d: call %d after call %d: %v, by their memory %v", seed, i, j, got[i][j],
						want[i][j])
				}
			}
			for j := range direct[i] {
				for k := range direct[i] {
					if k != j && got[k][j] {
						t.Fatalf("seed %d: call %d waits for %d, which call %d, waited for too, does already", seed, i,
							j, k)
					}
				}
			}
		}
	}
}

// TestDependenciesAreEnough runs plans in random orders that the dependencies of their calls allow: the same
// bytes as in the plan's order.
func TestDependenciesAreEnough(t *testing.T) {
	moved := 0
	for seed := range uint64(100) {
		b, outputs := randomGraph(3000+seed, 10+int(seed)%60)
		b.Overlap(int(seed) % 3 * 4)
		p := mustCompile(t, b, outputs...)
		run := func(order func(needs [][]int) []int) [][]byte {
			m, r := mustBind(t, p)
			for _, name := range m.Names() {
				x, _ := m.Tensor(name)
				fillRandom(seed)(name, x)
			}
			accesses := make([][]access, len(p.calls))
			for i, c := range p.calls {
				touch := func(mem []byte, write bool) {
					if len(mem) > 0 {
						at := uint64(uintptr(unsafe.Pointer(&mem[0])))
						accesses[i] = append(accesses[i], access{at, at + uint64(len(mem)), write})
					}
				}
				for _, v := range c.in {
					touch(r.values[v].Bytes(), false)
				}
				for _, v := range c.out {
					touch(r.values[v].Bytes(), true)
				}
				if s, ok := p.scratch[c]; ok {
					touch(m.arena[s.offset:s.offset+s.size], true)
				}
			}
			for _, i := range order(dependencies(accesses)) {
				r.segments["main"][i]()
			}
			var got [][]byte
			for _, v := range append(outputs, p.inputs...) {
				got = append(got, bytes.Clone(r.Tensor(v).Bytes()))
			}
			return got
		}
		want := run(func(needs [][]int) []int {
			order := make([]int, len(needs))
			for i := range order {
				order[i] = i
			}
			return order
		})
		r := rand.New(rand.NewPCG(seed, 2))
		got := run(func(needs [][]int) []int {
			var order []int
			done := make([]bool, len(needs))
			for len(order) < len(needs) {
				var ready []int
				for i, n := range needs {
					free := !done[i]
					for _, j := range n {
						free = free && done[j]
					}
					if free {
						ready = append(ready, i)
					}
				}
				next := ready[r.IntN(len(ready))]
				if next != len(order) {
					moved++
				}
				order, done[next] = append(order, next), true
			}
			return order
		})
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: result %d differs from the run in order\n%v", seed, i, p)
			}
		}
	}
	if moved < 1000 {
		t.Errorf("%d calls ran out of turn: the test tests nothing", moved)
	}
}
