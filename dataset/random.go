package dataset

import "math/bits"

// random is SplitMix64 (Steele, Lea, Flood 2014): a 64-bit counter stepped by the golden ratio and mixed. The package
// has its own generator because the order of a run must not change with a Go release.
type random struct{ state uint64 }

// Streams of the seed, so that the split and the orders of the epochs are independent.
const (
	streamSplit = 0x73706c6974 // "split"
	streamOrder = 0x6f72646572 // "order"

	streamWeight = 0x77656967687400 // "weight", plus the number of the source
)

// newRandom starts a stream that depends on the seed and all parts.
func newRandom(seed uint64, parts ...uint64) *random {
	r := random{seed}
	for _, p := range parts {
		r.state = r.next() ^ p
	}
	return &r
}

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a uniform number in [0,n): the high half of a 128-bit product, with the biased part rejected (Lemire
// 2019).
func (r *random) below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.next(), n)
	if lo < n {
		for least := -n % n; lo < least; {
			hi, lo = bits.Mul64(r.next(), n)
		}
	}
	return hi
}

// shuffle is a Fisher-Yates shuffle from the end.
func shuffle[E any](r *random, s []E) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.below(uint64(i + 1))
		s[i], s[j] = s[j], s[i]
	}
}
