package cuda

// SigmoidGateGrad is the geometry of sigmoid_gate_grad over M rows.
func SigmoidGateGrad(M int) Geometry { return warps("sigmoid_gate", "sigmoid_gate_grad", M, 8, 0) }
