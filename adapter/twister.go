package adapter

// twister is the Mersenne Twister with a period of 2^19937 - 1 (Matsumoto and Nishimura 1998), torch's generator on a CPU.
type twister struct {
	state [624]uint32
	next  int
}

// newTwister returns the generator of a seed.
func newTwister(seed uint32) *twister {
	t := &twister{next: len(twister{}.state)}
	t.state[0] = seed
	for i := 1; i < len(t.state); i++ {
		t.state[i] = 1812433253*(t.state[i-1]^t.state[i-1]>>30) + uint32(i)
	}
	return t
}

// uint32 returns the next number.
func (t *twister) uint32() uint32 {
	const shift = 397
	n := len(t.state)
	if t.next == n {
		for i := range t.state {
			y := t.state[i]&(1<<31) | t.state[(i+1)%n]&(1<<31-1)
			t.state[i] = t.state[(i+shift)%n] ^ y>>1 ^ y&1*0x9908b0df
		}
		t.next = 0
	}
	y := t.state[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float32 returns the next number in [0,1), of 24 bits, as torch's uniform distribution draws it.
func (t *twister) float32() float32 { return float32(t.uint32()&(1<<24-1)) / (1 << 24) }
