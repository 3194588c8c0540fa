// Package cuda holds the CUDA C++ sources of the GPU kernels, one file an operation, and under the tag gpu their compiled
// form. scripts/kernels.py compiles them; each file's header states its contract.
package cuda

import (
	"fmt"
	"slices"
	"strings"
)

// Entries lists the kernels of every source file by its stem. A test holds it against the sources.
var Entries = map[string][]string{
	"adamw":              {"adamw_step"},
	"attention_backward": perHeadSize([]string{"attention_combine"}, "attention_backward_kv_", "attention_backward_q_"),
	"attention_cached":   {"attention_cached_8", "attention_cached_16", "attention_cached_32", "attention_cached_64", "attention_cached_128", "attention_cached_256"},
	"attention_delta":    {"attention_delta"},
	"attention_forward":  perHeadSize([]string{"attention_order"}, "attention_forward_"),
	"attention_hopper_backward": {"attention_hopper_backward_kv_64", "attention_hopper_backward_kv_128", "attention_hopper_backward_q_64",
		"attention_hopper_backward_q_128"},
	"attention_hopper_forward":  {"attention_hopper_forward_64", "attention_hopper_forward_128"},
	"attention_single_backward": perHeadSize(nil, "attention_single_backward_kv_", "attention_single_backward_q_"),
	"attention_single_forward":  perHeadSize(nil, "attention_single_forward_"),
	"bias":                      {"bias_add"},
	"convert":                   {"convert_f32_to_bf16", "convert_f16_to_bf16", "convert_f32_to_f16", "convert_bf16_to_f16", "convert_bf16_to_f32", "convert_f16_to_f32"},
	"crossentropy":              {"crossentropy_gradient", "crossentropy_loss"},
	"dropout":                   {"dropout_apply"},
	"elementwise":               {"elementwise_add", "elementwise_add_tail", "elementwise_add_wide_tail", "elementwise_axpy", "elementwise_axpy_f32"},
	"embedding":                 {"embedding_gather"},
	"gemm": {"gemm_nn_wide", "gemm_nt_wide", "gemm_tn_wide", "gemm_nn_large", "gemm_nt_large", "gemm_tn_large", "gemm_nn_small", "gemm_nt_small", "gemm_tn_small",
		"gemm_nn_thin", "gemm_nt_thin", "gemm_tn_thin"},
	"gemm_hopper": {"gemm_hopper_nn_256", "gemm_hopper_nt_256", "gemm_hopper_tn_256", "gemm_hopper_nn_192", "gemm_hopper_nt_192", "gemm_hopper_tn_192", "gemm_hopper_nn_128", "gemm_hopper_nt_128", "gemm_hopper_tn_128",
		"gemm_hopper_nn_64", "gemm_hopper_nt_64", "gemm_hopper_tn_64"},
	"gemm_single": {"gemm_single_nn", "gemm_single_nt", "gemm_single_tn"},
	"kvappend":    {"kvappend_rows"},
	"lowrank":     lowRankEntries(),
	"nf4": {"nf4_dequantise", "nf4_dequantise_nested", "nf4_dequantise_f32", "nf4_dequantise_nested_f32",
		"nf4_quantise_bf16", "nf4_quantise_f16", "nf4_quantise_f32", "nf4_offset", "nf4_nest"},
	"nf4_gemm":    {"nf4_gemm_8", "nf4_gemm_nested_8", "nf4_gemm_32", "nf4_gemm_nested_32"},
	"lossscale":   {"lossscale_update"},
	"norm":        {"norm_partial", "norm_finish"},
	"reduce":      {"reduce_sum", "reduce_splits", "reduce_splits_narrow"},
	"rmsnorm":     {"rmsnorm_forward", "rmsnorm_add_forward", "rmsnorm_add_wide_forward", "rmsnorm_backward"},
	"rope":        {"rope_apply"},
	"swiglu":      {"swiglu_forward"},
	"swiglu_grad": {"swiglu_grad"},
}

// Elements lists, by stem, the element types that a source is compiled for: what elem.cuh calls elem. The kernels of any other
// source read and write none. A test holds it against the sources.
var Elements = map[string][]string{
	"adamw": everyType, "attention_backward": tensorCoreTypes, "attention_cached": everyType, "attention_delta": everyType, "attention_forward": tensorCoreTypes,
	"attention_hopper_backward": tensorCoreTypes, "attention_hopper_forward": tensorCoreTypes, "bias": everyType, "crossentropy": everyType,
	"dropout": everyType, "elementwise": everyType, "embedding": everyType, "gemm": tensorCoreTypes, "gemm_hopper": tensorCoreTypes,
	"lowrank": tensorCoreTypes, "kvappend": everyType, "nf4": everyType, "nf4_gemm": tensorCoreTypes, "reduce": everyType, "rmsnorm": everyType, "rope": everyType,
	"swiglu": everyType, "swiglu_grad": everyType,
}

var everyType, tensorCoreTypes = []string{"bf16", "f16", "f32"}, []string{"bf16", "f16"}

// Form is the name of the compiled form of a source for an element type, or an error naming the types it has.
func Form(stem, elem string) (string, error) {
	types, ok := Elements[stem]
	switch {
	case !ok || elem == "bf16" && slices.Contains(types, elem):
		return stem, nil
	case slices.Contains(types, elem):
		return stem + "_" + elem, nil
	}
	return "", fmt.Errorf("kernels of %s.cu: there is no form for %s, only for %s", stem, elem, strings.Join(types, " and "))
}

func perHeadSize(names []string, stems ...string) []string {
	for _, s := range stems {
		for _, d := range []string{"32", "64", "80", "96", "128", "256"} {
			names = append(names, s+d)
		}
	}
	return names
}

func lowRankEntries() (names []string) {
	for _, n := range lowRankTiles {
		names = append(names, fmt.Sprintf("lowrank_grad_%d", n))
		for _, l := range []GemmLayout{NN, NT} {
			names = append(names, fmt.Sprintf("lowrank_down_%s_1_%d", l, n), fmt.Sprintf("lowrank_down_%s_2_%d", l, n), fmt.Sprintf("lowrank_up_%s_%d", l, n))
		}
	}
	return names
}
