package llamacpp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/export/gguf"
)

// kind is a file type: the type that most matrices get, and its number in general.file_type.
type kind struct {
	most   gguf.Type
	number uint32
}

var kinds = map[string]kind{
	"f32": {gguf.F32, 0}, "f16": {gguf.F16, 1}, "bf16": {gguf.BF16, 32}, "q8_0": {gguf.Q8_0, 7}, "q4_0": {gguf.Q4_0, 2},
	"q4_k_m": {gguf.Q4_K, 15},
}

// DTypes are the names of the file types.
func DTypes() []string { return slices.Sorted(maps.Keys(kinds)) }

// fallbacks are the types for rows that are no whole number of blocks of 256; F16 where those don't fit either.
var fallbacks = map[gguf.Type]gguf.Type{gguf.Q4_K: gguf.Q5_0, gguf.Q5_K: gguf.Q5_1, gguf.Q6_K: gguf.Q8_0}

// Store says how each tensor is stored, as llama.cpp's quantiser does for a file type (llama-quant.cpp), and adds the
// file type. The notes tell which matrices got another type because of their rows.
func (p *Plan) Store(dtype string) ([]gguf.Tensor, error) {
	k, ok := kinds[dtype]
	if !ok {
		return nil, fmt.Errorf("%q is not one of %s", dtype, strings.Join(DTypes(), ", "))
	}
	p.add("general.file_type", k.number)
	if k.most.Block() > 1 {
		p.add("general.quantization_version", uint32(2))
	}
	tied := !slices.ContainsFunc(p.Tensors, func(t Tensor) bool { return t.Name == "output.weight" })
	fell := map[string]int{}
	stored := make([]gguf.Tensor, len(p.Tensors))
	for i, t := range p.Tensors {
		typ := gguf.F32
		if !t.Plain {
			typ = p.mix(k.most, t.Name, t.Shape[0], tied)
			if want := typ; t.Shape[0]%want.Block() != 0 {
				if typ, ok = fallbacks[want]; !ok || t.Shape[0]%typ.Block() != 0 {
					typ = gguf.F16
				}
				fell[fmt.Sprintf("%v, whose rows are blocks of %d, does not fit rows of %d: %v", want, want.Block(),
					t.Shape[0], typ)]++
			}
		}
		stored[i] = gguf.Tensor{Name: t.Name, Type: typ, Shape: t.Shape}
	}
	for _, text := range slices.Sorted(maps.Keys(fell)) {
		p.note("%s takes its place in %d tensors", text, fell[text])
	}
	return stored, nil
}

// mix is the type of a matrix: more bits for the head, for values, and in Q4_K_M for the layers at both ends and each
// third between.
func (p *Plan) mix(most gguf.Type, name string, width int, tied bool) gguf.Type {
	if most.Block() == 1 {
		return most
	}
	more := func() bool {
		var layer int
		fmt.Sscanf(name, "blk.%d.", &layer) //nolint:errcheck // every layer's tensor has one
		n := p.c.NumLayers
		return layer < n/8 || layer >= 7*n/8 || (layer-n/8)%3 == 2
	}
	eight := p.c.Experts == 8
	is := func(part string) bool { return strings.Contains(name, part) }
	switch {
	case name == "output.weight" || tied && name == "token_embd.weight":
		if most == gguf.Q8_0 || width%most.Block() != 0 {
			return gguf.Q8_0
		}
		return gguf.Q6_K
	case is("attn_v.weight") || is("attn_qkv.weight"):
		typ := most
		if most == gguf.Q4_K && more() {
			typ = gguf.Q6_K
		}
		if p.seventy() && typ == gguf.Q4_K {
			typ = gguf.Q5_K
		}
		if eight {
			typ = gguf.Q8_0
		}
		return typ
	case name == "per_layer_model_proj.weight": // one for all layers: llama.cpp's quantiser leaves it as it is
		return gguf.F16
	case is("attn_k.weight") && eight:
		return gguf.Q8_0
	case is("ffn_down") && most == gguf.Q4_K && more():
		return gguf.Q6_K
	case is("attn_output.weight") && most == gguf.Q4_K && eight:
		return gguf.Q5_K
	}
	return most
}

// seventy tells of the models of 70B, whose values are few.
func (p *Plan) seventy() bool {
	return p.c.NumLayers == 80 && (p.Architecture == "qwen2" || p.Architecture == "llama" &&
		p.c.NumHeads != p.c.NumKVHeads)
}
