package quant

func nf4Decode(dst []float32, codes []byte, absmax float32) { nf4DecodeGo(dst, codes, absmax) }
