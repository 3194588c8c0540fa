package model

import (
	"encoding/json"
	"slices"
	"strings"
)

// Released describes quantised weights as models are released with them: 8-bit floats, packed integers, 4-bit floats.
// Such weights are dequantised while they are read; after that they are ordinary weights in 16 bits. Names and types of
// the tensors show how each weight is packed. The zero value stands for weights that are not stored so.
type Released struct {
	Layout Layout
	// Bits lists the widths of compressed-tensors' groups of layers, or the one width of GPTQ and AWQ.
	Bits []int
	// BlockRows and BlockCols are the rows and columns of a weight that share a scale; 0 = the scales' shape tells.
	BlockRows, BlockCols int
}

// Layout is the convention by which released weights are named, packed and rounded.
type Layout string

// The layouts of released weights.
const (
	FineGrainedFP8    Layout = "fp8"                // transformers' and FBGEMM's 8-bit floats; numbers are bf16
	CompressedTensors Layout = "compressed-tensors" // numbers have the type of the scales
	ModelOpt          Layout = "modelopt"           // 8-bit and 4-bit floats; numbers are bf16
	GPTQ              Layout = "gptq"               // zero points are stored less one; numbers have the scales' type
	GPTQv2            Layout = "gptq_v2"            // zero points are stored as they are
	AWQ               Layout = "awq"                // AutoAWQ's gemm order; numbers have the scales' type
)

// Dequantised reports whether the weights become ordinary numbers when they are read.
func (q *Quantization) Dequantised() bool { return q != nil && q.Released.Layout != "" }

// releasedMethods reads quantization_config by its quant_method.
var releasedMethods = map[string]func(q *Quantization, k *Keys){
	"fp8":                readFP8,
	"fbgemm_fp8":         readFBGEMM,
	"compressed-tensors": readCompressedTensors,
	"gptq":               readGPTQ,
	"awq":                readAWQ,
	"modelopt":           readModelOpt,
}

// dropAll marks keys as read that don't change a weight.
func (k *Keys) dropAll(keys ...string) {
	for _, key := range keys {
		k.Drop(key)
	}
}

func readFP8(q *Quantization, k *Keys) {
	q.Released.Layout = FineGrainedFP8
	format := "e4m3"
	if k.Text("fmt", &format); format != "e4m3" && format != "float8_e4m3fn" {
		k.Fail("fmt", "= %q: 8-bit floats in e4m3 are read", format)
	}
	var block []int
	if k.take("weight_block_size", "a list of two numbers", &block) && block != nil {
		if len(block) != 2 || block[0] < 1 || block[1] < 1 {
			k.Fail("weight_block_size", "= %v: it is a list of two positive numbers, rows and columns", block)
			return
		}
		q.Released.BlockRows, q.Released.BlockCols = block[0], block[1]
	}
	k.dropAll("activation_scheme", "modules_to_not_convert", "modules_to_convert", "ignored_layers", "scale_fmt",
		"dequantize", "kv_cache_scheme")
	k.unknown()
}

func readFBGEMM(q *Quantization, k *Keys) {
	q.Released.Layout = FineGrainedFP8
	k.dropAll("activation_scale_ub", "modules_to_not_convert")
	k.unknown()
}

func readModelOpt(q *Quantization, k *Keys) {
	algorithm := ""
	q.Released.Layout = ModelOpt
	k.Text("quant_algo", &algorithm)
	if !slices.Contains([]string{"FP8", "NVFP4", "MIXED_PRECISION"}, algorithm) {
		k.Fail("quant_algo", "= %q: FP8, NVFP4 and MIXED_PRECISION are read; %s", algorithm, useOriginal)
	}
	k.dropAll("ignore", "exclude_modules", "producer", "kv_cache_scheme", "kv_cache_quant_algo", "config_groups",
		"group_size", "quantized_layers")
	k.unknown()
}

func readGPTQ(q *Quantization, k *Keys) {
	bits, format := 4, ""
	k.Int("bits", &bits)
	k.Text("checkpoint_format", &format)
	other := ""
	if k.Text("format", &other); format == "" {
		format = other
	}
	q.Released.Bits = []int{bits}
	switch format {
	case "", "gptq":
		q.Released.Layout = GPTQ
	case "gptq_v2":
		q.Released.Layout = GPTQv2
	default:
		k.Fail("checkpoint_format", "= %q: gptq and gptq_v2 are read; %s", format, useOriginal)
	}
	if bits != 2 && bits != 4 && bits != 8 {
		k.Fail("bits", "= %d: GPTQ weights of 2, 4 and 8 bits are read; %s", bits, useOriginal)
	}
	if raw := k.raw["rotation"]; raw != nil && string(raw) != "null" && string(raw) != `""` {
		k.Fail("rotation", "= %s: weights whose inputs are rotated are not read; %s", shown(raw), useOriginal)
	}
	k.raw = nil // the tensors hold group sizes and orders, and no other key changes a weight
}

func readAWQ(q *Quantization, k *Keys) {
	bits, version := 4, "gemm"
	k.Int("bits", &bits)
	k.Int("w_bit", &bits) // as AutoAWQ's own files have it
	k.Text("version", &version)
	q.Released.Layout, q.Released.Bits = AWQ, []int{bits}
	if bits != 4 {
		k.Fail("bits", "= %d: AWQ weights have 4", bits)
	}
	if !strings.EqualFold(version, "gemm") {
		k.Fail("version", "= %q: AWQ's gemm layout is read; %s", version, useOriginal)
	}
	k.raw = nil // the tensors hold group sizes and zero points, and no other key changes a weight
}

// compressedFormats are the names of compressed-tensors' packings that can be read.
var compressedFormats = []string{"dense", "float-quantized", "int-quantized", "mixed-precision", "mxfp4-pack-quantized",
	"mxfp8-quantized", "naive-quantized", "nvfp4-pack-quantized", "pack-quantized"}

func readCompressedTensors(q *Quantization, k *Keys) {
	type group struct {
		Weights *struct {
			Bits  int   `json:"num_bits"`
			Block []int `json:"block_structure"`
		} `json:"weights"`
	}
	format, groups := "mixed-precision", map[string]group{}
	k.Text("format", &format)
	q.Released.Layout = CompressedTensors
	if !slices.Contains(compressedFormats, format) {
		k.Fail("format", "= %q: compressed-tensors' %s are read; %s", format, strings.Join(compressedFormats, ", "),
			useOriginal)
	}
	if k.take("config_groups", "a JSON object of groups", &groups) {
		for _, g := range groups {
			w := g.Weights
			if w == nil {
				continue
			}
			if w.Bits > 0 && !slices.Contains(q.Released.Bits, w.Bits) {
				q.Released.Bits = append(q.Released.Bits, w.Bits)
			}
			if len(w.Block) == 2 {
				q.Released.BlockRows, q.Released.BlockCols = max(w.Block[0], 0), max(w.Block[1], 0)
			}
		}
		slices.Sort(q.Released.Bits)
	}
	for _, key := range []string{"sparsity_config", "transform_config"} {
		var fields map[string]json.RawMessage
		raw := k.raw[key]
		k.Drop(key)
		if json.Unmarshal(raw, &fields) != nil || len(fields) == 0 || string(fields["format"]) == `"dense"` {
			continue
		}
		if groups, ok := fields["config_groups"]; ok && string(groups) == "{}" {
			continue
		}
		k.Fail(key, "= %s: sparse and rotated weights are not read; %s", shown(raw), useOriginal)
	}
	k.dropAll("ignore", "kv_cache_scheme", "quantization_status", "global_compression_ratio", "version",
		"run_compressed")
	k.unknown()
}
