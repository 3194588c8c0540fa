package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// ScratchGPU is what the split form leaves between its two launches.
func (o Attention) ScratchGPU(in, _ []Type, _ int) int64 {
	a, ok, err := cuda.NewAttentionSplit(in[0].Shape[0], o.Heads, in[0].Shape[1]/o.Heads, o.Longest, o.Cap > 0)
	if !ok || err != nil {
		return 0
	}
	return a.PartBytes + a.Stat
}
