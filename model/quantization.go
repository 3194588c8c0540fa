package model

import (
	"encoding/json"
	"slices"
	"strings"
)

// Quantization describes the quantization_config of a checkpoint whose linear layers are stored quantised.
type Quantization struct {
	Method      string // value of quant_method, such as "bitsandbytes", "mxfp4", "fp8" or "gptq"
	Bits        int    // 4 or 8
	Type        string // for 4 bits: "nf4", "fp4" or "mxfp4"
	DoubleQuant bool   // for bitsandbytes' 4 bits: the scales are stored in 8 bits
	// for bitsandbytes' 8 bits: inputs above it are multiplied separately; it does not change a weight
	Threshold float64
	// Skip lists bitsandbytes' modules that are not quantised. Compute is the type in which it multiplies 4-bit
	// weights, "float32" if the file names none. The tensors of a folder show the same; for a folder without weights
	// only these keys do.
	Skip    []string
	Compute string

	Released Released // for methods whose weights are dequantised while they are read
}

// Skips reports whether bitsandbytes leaves a module's weight unquantised, by transformers' matching of Skip. In the
// checkpoint of a model with images, the language model's names may differ from the network's.
func (q *Quantization) Skips(weight string) bool {
	module := strings.TrimSuffix(weight, ".weight")
	inner := strings.TrimPrefix(module, "model.language_model.")
	for _, name := range []string{module, "language_model.model." + inner, "model." + inner} {
		if slices.ContainsFunc(q.Skip, func(skip string) bool {
			return skip == name || strings.Contains(name, skip+".")
		}) {
			return true
		}
	}
	return false
}

// The quantisation methods that can be read.
const (
	BitsAndBytes = "bitsandbytes"
	MXFP4        = "mxfp4"
)

// otherMethods maps values of quant_method whose weights can't be read to their usual names.
var otherMethods = map[string]string{
	"hqq": "HQQ", "aqlm": "AQLM", "vptq": "VPTQ", "quanto": "Quanto", "eetq": "EETQ", "higgs": "HIGGS",
	"torchao": "torchao", "bitnet": "BitNet", "spqr": "SpQR", "quark": "Quark", "fp_quant": "FP-Quant",
	"auto-round": "AutoRound",
}

const (
	quantizationKey = "quantization_config"
	useOriginal     = "use the model that they were made from, in 16 bits (its name is this one's without the " +
		"method): adapter: qlora quantises it " +
		"to 4 bits while it loads"
)

// readQuantization reads quantization_config. For an unsupported method it reports what to use instead.
func (c *Config) readQuantization(k *Keys, d Dialect) {
	var raw json.RawMessage
	if !k.take(quantizationKey, "a JSON object", &raw) {
		return
	}
	fields, err := object(raw)
	if err != nil {
		k.Fail(quantizationKey, "= %s: %v", shown(raw), err)
		return
	}
	if len(fields) == 0 {
		return
	}
	q := &Quantization{}
	of := &Keys{raw: fields, bad: k.bad, scope: quantizationKey + "."}
	of.Text("quant_method", &q.Method)
	if q.Method == "" && (of.Has("load_in_4bit") || of.Has("load_in_8bit")) {
		q.Method = BitsAndBytes // transformers before 4.35 wrote no quant_method
	}
	name, other := otherMethods[q.Method]
	released, ok := releasedMethods[q.Method]
	switch {
	case ok:
		of.Drop("quant_method")
		released(q, of)
	case q.Method == BitsAndBytes:
		q.readBitsAndBytes(of)
	case q.Method == MXFP4 && d.MXFP4:
		q.Bits, q.Type = 4, MXFP4
		of.Drop("modules_to_not_convert") // the tensors themselves show it
		of.Drop("dequantize")
		of.unknown()
	case q.Method == MXFP4:
		k.Fail(quantizationKey, "= %s: MXFP4 is read of gpt_oss' experts alone; %s", shown(raw), useOriginal)
	case other:
		k.Fail(quantizationKey, "= %s: weights that %s has quantised are not supported; %s", shown(raw),
			name, useOriginal)
	case q.Method == "":
		k.Fail(quantizationKey+".quant_method", "is missing; bitsandbytes is the method whose weights are read")
	default:
		k.Fail(quantizationKey, "= %s: quant_method %q is not known; %s", shown(raw), q.Method, useOriginal)
	}
	c.Quantization = q
}

func (q *Quantization) readBitsAndBytes(k *Keys) {
	var four, eight, again bool
	storage := "uint8"
	k.Bool("load_in_4bit", &four)
	k.Bool("load_in_8bit", &eight)
	k.Bool("_load_in_4bit", &again) // repeats load_in_4bit
	k.Bool("_load_in_8bit", &again)
	q.Type, q.Threshold = "fp4", 6 // transformers' defaults
	k.Text("bnb_4bit_quant_type", &q.Type)
	k.Bool("bnb_4bit_use_double_quant", &q.DoubleQuant)
	k.Float("llm_int8_threshold", &q.Threshold)
	k.Text("bnb_4bit_quant_storage", &storage)
	q.Skip = k.Texts("llm_int8_skip_modules")
	q.Compute = "float32"
	k.Text("bnb_4bit_compute_dtype", &q.Compute)
	q.Compute = strings.TrimPrefix(q.Compute, "torch.")
	k.Drop("llm_int8_enable_fp32_cpu_offload")
	var floats bool
	if k.Bool("llm_int8_has_fp16_weight", &floats); floats {
		k.Fail("llm_int8_has_fp16_weight", "= true: weights that bitsandbytes quantises anew in each step are not "+
			"supported; remove quantization_config "+
			"and write adapter: qlora")
	}
	switch {
	case four == eight:
		k.Fail("load_in_4bit", "and load_in_8bit are both %v: one must be true", four)
	case eight:
		q.Bits, q.Type, q.DoubleQuant, q.Compute = 8, "", false, ""
	default:
		q.Bits = 4
		if q.Type != "nf4" && q.Type != "fp4" {
			k.Fail("bnb_4bit_quant_type", "= %q: supported are nf4 and fp4", q.Type)
		}
	}
	if known := []string{"uint8", "int8", "float16", "bfloat16", "float32", "float64"}; !slices.Contains(known,
		strings.TrimPrefix(storage, "torch.")) {
		k.Fail("bnb_4bit_quant_storage", "= %q: supported are %s", storage, strings.Join(known, ", "))
	}
	k.Drop("quant_method")
	k.unknown()
}

// unknown reports the keys that nothing has read.
func (k *Keys) unknown() {
	for key, raw := range k.raw {
		k.Fail(key, "= %s: unknown key; tierlora does not know whether it changes the weights", shown(raw))
	}
}
