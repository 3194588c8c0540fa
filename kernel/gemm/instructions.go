package gemm

// Instructions names the kernel that this processor's products use, such as avx512.
func Instructions() string { return chosen.name }
