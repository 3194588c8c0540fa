package gemm

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func TestParallelCallsEachOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(t, workers)
		for _, n := range []int{0, 1, 2, 7, 1000} {
			count := make([]int, n)
			p.Parallel(n, func(i int) { count[i]++ })
			for i, c := range count {
				if c != 1 {
					t.Fatalf("%d workers: %d was called %d times", workers, i, c)
				}
			}
		}
	}
}

// A caller that sleeps for the last call, and workers that slept before the next.
func TestSleepersWake(t *testing.T) {
	p := newPool(t, 3)
	for round := range 60 {
		count := make([]int, 5)
		p.Parallel(len(count), func(i int) {
			if i == round%5 {
				time.Sleep(callerPatience * time.Duration(round%4))
			}
			count[i]++
		})
		for i, c := range count {
			if c != 1 {
				t.Fatalf("round %d: %d was called %d times", round, i, c)
			}
		}
		if round%3 == 0 {
			time.Sleep(2 * workerPatience)
		}
	}
}

func TestPanicReachesTheCaller(t *testing.T) {
	p := newPool(t, 3)
	for range 10 {
		func() {
			defer func() {
				if v := recover(); v != "seven" {
					t.Errorf("recovered %v", v)
				}
			}()
			p.Parallel(100, func(i int) {
				if i == 7 {
					panic("seven")
				}
			})
		}()
	}
	sum := make([]int, 10)
	p.Parallel(10, func(i int) { sum[i] = 1 })
	for _, v := range sum {
		if v != 1 {
			t.Fatal("the pool did not survive")
		}
	}
}

// GEMMs inside of parallel work, and several callers at once.
func TestNestedAndConcurrentUse(t *testing.T) {
	p := newPool(t, 3)
	r := rand.New(rand.NewPCG(1, 2))
	a, b := fill[float32](40*50, r), fill[float32](50*60, r)
	want := make([]float32, 40*60)
	Gemm(p, false, false, 40, 60, 50, 1, a, 50, b, 60, 0, want, 60)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			out := make([]float32, 8*40*60)
			p.ParallelOn(8, func(own *Pool, i int) {
				Gemm(own, false, false, 40, 60, 50, 1, a, 50, b, 60, 0, out[i*40*60:], 60)
			})
			for i := range 8 {
				sameBits(t, "nested", out[i*40*60:][:40*60], want)
			}
		})
	}
	all.Wait()
}
