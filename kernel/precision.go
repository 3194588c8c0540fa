package kernel

import "fmt"

// Precision says how a device stores activations and operands of GEMMs, and how it multiplies them. Sums, statistics,
// parameters, gradients of parameters and moments are fp32 in every precision. A CPU computes in the graph's own type.
type Precision uint8

// The precisions. TF32 stores fp32 and multiplies with 10 bits of mantissa where tensor cores do it.
const (
	PrecisionBF16 Precision = iota + 1
	PrecisionFP16
	PrecisionTF32
	PrecisionFP32
	PrecisionFP8 // bf16, but large GEMMs with 4-bit frozen weights multiply 8-bit floats (e4m3); see MatMulFP8
)

var precisions = [...]struct {
	name    string
	compute DType
}{PrecisionBF16: {"bf16", BF16}, PrecisionFP16: {"fp16", F16}, PrecisionTF32: {"tf32", F32},
	PrecisionFP32: {"fp32", F32}, PrecisionFP8: {"bf16+fp8", BF16}}

// String returns the name in configurations and reports, such as "bf16".
func (p Precision) String() string {
	if int(p) < len(precisions) && precisions[p].name != "" {
		return precisions[p].name
	}
	return fmt.Sprintf("precision(%d)", uint8(p))
}

// PrecisionNamed returns the precision of that name, as String writes it.
func PrecisionNamed(name string) (Precision, bool) {
	for p := PrecisionBF16; int(p) < len(precisions); p++ {
		if precisions[p].name == name {
			return p, true
		}
	}
	return 0, false
}

// PrecisionOf returns the precision that suits a device of compute capability sm, 10 major + minor: bf16 from 8.0 on,
// which has it in hardware, fp16 before.
func PrecisionOf(sm int) Precision {
	if sm >= 80 {
		return PrecisionBF16
	}
	return PrecisionFP16
}

// Scaled reports whether the loss must be scaled because small gradients underflow in the type of activations.
func (p Precision) Scaled() bool { return p == PrecisionFP16 }

// SM90 is the compute capability that the GEMMs of 8-bit floats were run on, 10 major + minor.
const SM90 = 90

// CheckDevice refuses a precision that a device of compute capability sm does not compute in.
func (p Precision) CheckDevice(sm int) error {
	if p.FrozenFP8() && sm != SM90 {
		return fmt.Errorf("training.frozen_gemm: fp8 needs compute capability 9.0 (H100, H200), this GPU has %d.%d: "+
			"use bf16", sm/10, sm%10)
	}
	return nil
}

// Activations returns the precision of everything but frozen GEMMs.
func (p Precision) Activations() Precision {
	if p == PrecisionFP8 {
		return PrecisionBF16
	}
	return p
}

// FrozenFP8 reports whether large GEMMs with frozen weights multiply 8-bit floats.
func (p Precision) FrozenFP8() bool { return p == PrecisionFP8 }

// Stored returns the element type that a kernel's ComputeType stands for; any other type is itself.
func (p Precision) Stored(d DType) DType {
	if d == ComputeType {
		return precisions[p].compute
	}
	return d
}
