package nn

import (
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Rewriter reads elements [from, from+len(dst)) of a weight as they should be in memory, before quantisation. r is the
// checkpoint's reader. Several goroutines call it concurrently, for pieces of any length and in any order.
type Rewriter func(r Reader, from int, dst []float32) error

// rewriting is a checkpoint's reader in which some weights are rewritten. Those are read as float32, however the
// checkpoint stores them.
type rewriting struct {
	Reader
	rewrite func(name string) Rewriter
}

func (r rewriting) Float32s(name string, from int, dst []float32) error {
	if f := r.rewrite(name); f != nil {
		return f(r.Reader, from, dst)
	}
	return r.Reader.Float32s(name, from, dst)
}

func (r rewriting) Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool) {
	if s, is := r.Reader.(StoredReader); is && r.rewrite(name) == nil {
		return s.Stored(name)
	}
	return 0, nil, false
}

func (r rewriting) Packed(name string) (quant.Packed, bool) {
	if r.rewrite(name) != nil {
		return quant.Packed{}, false
	}
	return packedIn(r.Reader, name)
}

func (r rewriting) MXFP4(name string) (quant.MXFP4, bool) {
	if p, ok := r.Reader.(MXFP4Reader); ok {
		return p.MXFP4(name)
	}
	return quant.MXFP4{}, false
}
