package kernel

// Cost is the least work of a call, whatever body performs it.
type Cost struct {
	Bytes int64 // inputs read and outputs written, each once, as stored; an input that is overwritten counts twice
	FLOPs int64 // floating-point operations: a multiply-add is two; an exponential, a root or another function is one
}

// Content describes a batch's contents, which decide the work of some calls beside their shapes.
type Content struct {
	Starts   []int32 // the first token of each sequence, then the end; nil = sequences of equal length
	Prefixes []int32 // the sequence that each sequence continues, as Attention has it; nil = none continues another
	Trained  int     // rows with a label; 0 = all of them
}

// Costed is a kernel that returns the cost of a call. Types are as stored. Work that depends on the batch is counted by
// content; the choice of experts, which only the run decides, counts as if every row had one expert.
type Costed interface {
	Cost(in, out []Type, content Content) Cost
}

// moved returns the bytes of values.
func moved(lists ...[]Type) int64 {
	var n int64
	for _, types := range lists {
		for _, t := range types {
			n += t.Bytes()
		}
	}
	return n
}

// pointwise returns the cost of a kernel that reads its inputs and writes its outputs once, with so many operations for
// each of some elements.
func pointwise(in, out []Type, elements Type, flops int) Cost {
	return Cost{moved(in, out), int64(elements.Elems()) * int64(flops)}
}

// gemmCost returns the cost of a GEMM of rows [m,k] and a matrix [k,n].
func gemmCost(in, out []Type, m, n, k int) Cost {
	return Cost{moved(in, out), 2 * int64(m) * int64(n) * int64(k)}
}

// attentionWindow is the number of last keys that a query of causal attention sees, its own included; 0 = all of them.
// It counts the work of a call, which depends on nothing else of Attention.
type attentionWindow int

// pairs returns the number of keys that all queries of one head see together.
func (w attentionWindow) pairs(queries, keys, sequences int, c Content) int64 {
	if c.Starts == nil || queries != keys {
		n := max(sequences, 1)
		return int64(n) * w.pairsOf(queries/n, keys/n)
	}
	var all int64
	for i := 1; i < len(c.Starts); i++ {
		n, prefix := int(c.Starts[i]-c.Starts[i-1]), 0
		if s := i - 1; s < len(c.Prefixes) && c.Prefixes[s] >= 0 && int(c.Prefixes[s]) < s {
			prefix = int(c.Starts[c.Prefixes[s]+1] - c.Starts[c.Prefixes[s]])
		}
		all += w.pairsOf(n, prefix+n)
	}
	return all
}

// pairsOf returns pairs of a sequence: the last query sees all keys, the one before it all but the last.
func (w attentionWindow) pairsOf(queries, keys int) int64 {
	window := keys
	if w > 0 {
		window = min(window, int(w))
	}
	var n int64
	for i := range queries {
		n += int64(max(0, min(keys-queries+i+1, window)))
	}
	return n
}

// flops returns the operations of attention without prefixes where it takes none.
func (o Attention) flops(q Type, keys, sequences, gemms int, c Content) int64 {
	if !o.Prefixes {
		c.Prefixes = nil
	}
	return attentionWindow(o.Window).flops(q, keys, sequences, gemms, c)
}

// flops returns the operations of GEMMs over every visible pair of query and key, by the usual count: two GEMMs forward
// and five backward, of 2 D operations a pair each; the softmax is not counted.
func (w attentionWindow) flops(q Type, keys, sequences, gemms int, c Content) int64 {
	return 2 * int64(gemms) * w.pairs(q.Shape[0], keys, sequences, c) * int64(q.Shape[1])
}
