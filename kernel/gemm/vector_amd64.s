#include "textflag.h"

// func transpose8(dst unsafe.Pointer, dstStride uintptr, src unsafe.Pointer, srcStride uintptr, blocks int)
// Eight rows of src, 8*blocks values each, become columns of dst. Strides are bytes.
TEXT ·transpose8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ dstStride+8(FP), R10
	MOVQ src+16(FP), R8
	MOVQ srcStride+24(FP), R9
	MOVQ blocks+32(FP), CX
	LEAQ (R8)(R9*2), R12
	ADDQ R9, R12           // row 3
	LEAQ (R12)(R9*2), R13
	ADDQ R9, R13           // row 6
	LEAQ (DI)(R10*2), R11
	ADDQ R10, R11          // dst row 3
	LEAQ (R11)(R10*2), BX
	ADDQ R10, BX           // dst row 6
	MOVQ R10, DX
	SHLQ $3, DX

loop:
	VMOVUPS (R8), X0
	VMOVUPS (R8)(R9*1), X1
	VMOVUPS (R8)(R9*2), X2
	VMOVUPS (R12), X3
	VINSERTF128 $1, (R12)(R9*1), Y0, Y0
	VINSERTF128 $1, (R12)(R9*2), Y1, Y1
	VINSERTF128 $1, (R13), Y2, Y2
	VINSERTF128 $1, (R13)(R9*1), Y3, Y3
	VMOVUPS 16(R8), X8
	VMOVUPS 16(R8)(R9*1), X9
	VMOVUPS 16(R8)(R9*2), X10
	VMOVUPS 16(R12), X11
	VINSERTF128 $1, 16(R12)(R9*1), Y8, Y8
	VINSERTF128 $1, 16(R12)(R9*2), Y9, Y9
	VINSERTF128 $1, 16(R13), Y10, Y10
	VINSERTF128 $1, 16(R13)(R9*1), Y11, Y11
	VUNPCKLPS Y1, Y0, Y4
	VUNPCKHPS Y1, Y0, Y5
	VUNPCKLPS Y3, Y2, Y6
	VUNPCKHPS Y3, Y2, Y7
	VUNPCKLPD Y6, Y4, Y0
	VUNPCKHPD Y6, Y4, Y1
	VUNPCKLPD Y7, Y5, Y2
	VUNPCKHPD Y7, Y5, Y3
	VUNPCKLPS Y9, Y8, Y12
	VUNPCKHPS Y9, Y8, Y13
	VUNPCKLPS Y11, Y10, Y14
	VUNPCKHPS Y11, Y10, Y15
	VUNPCKLPD Y14, Y12, Y8
	VUNPCKHPD Y14, Y12, Y9
	VUNPCKLPD Y15, Y13, Y10
	VUNPCKHPD Y15, Y13, Y11
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R10*1)
	VMOVUPS Y2, (DI)(R10*2)
	VMOVUPS Y3, (R11)
	VMOVUPS Y8, (R11)(R10*1)
	VMOVUPS Y9, (R11)(R10*2)
	VMOVUPS Y10, (BX)
	VMOVUPS Y11, (BX)(R10*1)
	ADDQ $32, R8
	ADDQ $32, R12
	ADDQ $32, R13
	ADDQ DX, DI
	ADDQ DX, R11
	ADDQ DX, BX
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// func copyRows(dst unsafe.Pointer, src unsafe.Pointer, srcStride uintptr, vectors, rows int)
// Rows of vectors*8 values, one after another at dst.
TEXT ·copyRows(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), R8
	MOVQ srcStride+16(FP), R9
	MOVQ vectors+24(FP), DX
	MOVQ rows+32(FP), CX

row:
	MOVQ R8, SI
	MOVQ DX, BX

vector:
	VMOVUPS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ BX
	JNZ  vector
	ADDQ R9, R8
	DECQ CX
	JNZ  row
	VZEROUPPER
	RET

// func dot256(x, y unsafe.Pointer, n int) float32
// Four chains of eight, then one of eight, then the rest one by one.
TEXT ·dot256(SB), NOSPLIT, $0-28
	MOVQ x+0(FP), SI
	MOVQ y+8(FP), DI
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	SUBQ $32, CX
	JLT  rest

loop:
	VMOVUPS (SI), Y4
	VMOVUPS 32(SI), Y5
	VMOVUPS 64(SI), Y6
	VMOVUPS 96(SI), Y7
	VFMADD231PS (DI), Y4, Y0
	VFMADD231PS 32(DI), Y5, Y1
	VFMADD231PS 64(DI), Y6, Y2
	VFMADD231PS 96(DI), Y7, Y3
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $32, CX
	JGE  loop

rest:
	ADDQ $32, CX
	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y2, Y0, Y0

eight:
	SUBQ $8, CX
	JLT  sum
	VMOVUPS (SI), Y4
	VFMADD231PS (DI), Y4, Y0
	ADDQ $32, SI
	ADDQ $32, DI
	JMP  eight

sum:
	ADDQ $8, CX
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VHADDPS X0, X0, X0
	VHADDPS X0, X0, X0

one:
	DECQ CX
	JLT  done
	VMOVSS (SI), X4
	VFMADD231SS (DI), X4, X0
	ADDQ $4, SI
	ADDQ $4, DI
	JMP  one

done:
	VZEROUPPER
	MOVSS X0, ret+24(FP)
	RET

// func sum256(acc unsafe.Pointer, vectors int, coef unsafe.Pointer, rows int, b unsafe.Pointer, stride uintptr)
// For each 32 columns: acc plus the rows of b times their coefficients.
TEXT ·sum256(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), DI
	MOVQ vectors+8(FP), CX
	MOVQ coef+16(FP), R8
	MOVQ rows+24(FP), R9
	MOVQ b+32(FP), SI
	MOVQ stride+40(FP), R10

column:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	MOVQ SI, DX
	XORQ BX, BX

row:
	VBROADCASTSS (R8)(BX*4), Y4
	VFMADD231PS (DX), Y4, Y0
	VFMADD231PS 32(DX), Y4, Y1
	VFMADD231PS 64(DX), Y4, Y2
	VFMADD231PS 96(DX), Y4, Y3
	ADDQ R10, DX
	INCQ BX
	CMPQ BX, R9
	JLT  row
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ $128, DI
	ADDQ $128, SI
	DECQ CX
	JNZ  column
	VZEROUPPER
	RET

// ROWS begins the dot products with four rows of y, R9 bytes apart: three from R8 on, the last at R10. The next four begin at R11.
#define ROWS \
	LEAQ (R8)(R9*2), R10; \
	ADDQ R9, R10; \
	LEAQ (R8)(R9*4), R11; \
	LEAQ (R11)(R9*2), R12; \
	VXORPS Y0, Y0, Y0; \
	VXORPS Y1, Y1, Y1; \
	VXORPS Y2, Y2, Y2; \
	VXORPS Y3, Y3, Y3; \
	VXORPS Y4, Y4, Y4; \
	VXORPS Y5, Y5, Y5; \
	VXORPS Y6, Y6, Y6; \
	VXORPS Y7, Y7, Y7

// NEXT takes the next 16 elements of x and prefetches what lies there in the next four rows: short rows are none that the
// processor would fetch ahead itself.
#define NEXT \
	PREFETCHT0 (R11); \
	PREFETCHT0 (R11)(R9*1); \
	PREFETCHT0 (R12); \
	PREFETCHT0 (R12)(R9*1); \
	VMOVUPS (SI), Y8; \
	VMOVUPS 32(SI), Y9

// STEP goes on by 16 elements, which are so many bytes of a row.
#define STEP(bytes) \
	ADDQ $64, SI; \
	ADDQ $bytes, R8; \
	ADDQ $bytes, R10; \
	ADDQ $bytes, R11; \
	ADDQ $bytes, R12; \
	SUBQ $16, CX

// SUMS stores the four sums.
#define SUMS \
	VADDPS Y1, Y0, Y0; \
	VADDPS Y3, Y2, Y2; \
	VADDPS Y5, Y4, Y4; \
	VADDPS Y7, Y6, Y6; \
	VHADDPS Y2, Y0, Y0; \
	VHADDPS Y6, Y4, Y4; \
	VHADDPS Y4, Y0, Y0; \
	VEXTRACTF128 $1, Y0, X1; \
	VADDPS X1, X0, X0; \
	VMOVUPS X0, (DI); \
	VZEROUPPER; \
	RET

// func dot4(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)
// The dot products of x and four rows of y; n is a multiple of 16. Two chains
// of eight for each row.
TEXT ·dot4(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), SI
	MOVQ y+8(FP), R8
	MOVQ stride+16(FP), R9
	MOVQ n+24(FP), CX
	MOVQ out+32(FP), DI
	ROWS

loop:
	NEXT
	VFMADD231PS (R8), Y8, Y0
	VFMADD231PS 32(R8), Y9, Y1
	VFMADD231PS (R8)(R9*1), Y8, Y2
	VFMADD231PS 32(R8)(R9*1), Y9, Y3
	VFMADD231PS (R8)(R9*2), Y8, Y4
	VFMADD231PS 32(R8)(R9*2), Y9, Y5
	VFMADD231PS (R10), Y8, Y6
	VFMADD231PS 32(R10), Y9, Y7
	STEP(64)
	JGT  loop
	SUMS

// func dot4BF16(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)
// dot4 for rows of bf16, which become fp32 by a shift: the same chains, so the same bits.
TEXT ·dot4BF16(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), SI
	MOVQ y+8(FP), R8
	MOVQ stride+16(FP), R9
	MOVQ n+24(FP), CX
	MOVQ out+32(FP), DI
	ROWS

loop:
	NEXT
	VPMOVZXWD (R8), Y10
	VPSLLD $16, Y10, Y10
	VPMOVZXWD 16(R8), Y11
	VPSLLD $16, Y11, Y11
	VFMADD231PS Y10, Y8, Y0
	VFMADD231PS Y11, Y9, Y1
	VPMOVZXWD (R8)(R9*1), Y10
	VPSLLD $16, Y10, Y10
	VPMOVZXWD 16(R8)(R9*1), Y11
	VPSLLD $16, Y11, Y11
	VFMADD231PS Y10, Y8, Y2
	VFMADD231PS Y11, Y9, Y3
	VPMOVZXWD (R8)(R9*2), Y10
	VPSLLD $16, Y10, Y10
	VPMOVZXWD 16(R8)(R9*2), Y11
	VPSLLD $16, Y11, Y11
	VFMADD231PS Y10, Y8, Y4
	VFMADD231PS Y11, Y9, Y5
	VPMOVZXWD (R10), Y10
	VPSLLD $16, Y10, Y10
	VPMOVZXWD 16(R10), Y11
	VPSLLD $16, Y11, Y11
	VFMADD231PS Y10, Y8, Y6
	VFMADD231PS Y11, Y9, Y7
	STEP(32)
	JGT  loop
	SUMS

// func dot4F16(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)
// dot4 for rows of IEEE binary16.
TEXT ·dot4F16(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), SI
	MOVQ y+8(FP), R8
	MOVQ stride+16(FP), R9
	MOVQ n+24(FP), CX
	MOVQ out+32(FP), DI
	ROWS

loop:
	NEXT
	VCVTPH2PS (R8), Y10
	VCVTPH2PS 16(R8), Y11
	VFMADD231PS Y10, Y8, Y0
	VFMADD231PS Y11, Y9, Y1
	VCVTPH2PS (R8)(R9*1), Y10
	VCVTPH2PS 16(R8)(R9*1), Y11
	VFMADD231PS Y10, Y8, Y2
	VFMADD231PS Y11, Y9, Y3
	VCVTPH2PS (R8)(R9*2), Y10
	VCVTPH2PS 16(R8)(R9*2), Y11
	VFMADD231PS Y10, Y8, Y4
	VFMADD231PS Y11, Y9, Y5
	VCVTPH2PS (R10), Y10
	VCVTPH2PS 16(R10), Y11
	VFMADD231PS Y10, Y8, Y6
	VFMADD231PS Y11, Y9, Y7
	STEP(32)
	JGT  loop
	SUMS

// func pause()
// Tells the processor that a loop waits.
TEXT ·pause(SB), NOSPLIT, $0-0
	PAUSE
	RET
