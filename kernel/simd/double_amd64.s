#include "textflag.h"

// The inner loops of double_amd64.go: AVX2 and FMA, four float64 values in a register.

#define FOUR(name, bits) \
	DATA name<>+0(SB)/8, $bits; DATA name<>+8(SB)/8, $bits; DATA name<>+16(SB)/8, $bits; DATA name<>+24(SB)/8, $bits; \
	GLOBL name<>(SB), RODATA|NOPTR, $32

FOUR(dleast, -708.0) // e^x is a normal number from here
FOUR(dmost, 709.0)   // to here
FOUR(dlog2e, 1.4426950408889634073599246810018920)
FOUR(dln2high, 0.69314718055966295651160180568695068359375)
FOUR(dln2low, 0.28235290563031577122588448175013436025525412068e-12)
FOUR(dsixteenth, 0.0625)
FOUR(dc8, 2.4801587301587301587e-5) // 1/8!
FOUR(dc7, 1.9841269841269841270e-4)
FOUR(dc6, 1.3888888888888888889e-3)
FOUR(dc5, 8.3333333333333333333e-3)
FOUR(dc4, 4.1666666666666666667e-2)
FOUR(dc3, 1.6666666666666666667e-1)
FOUR(dhalf, 0.5)
FOUR(done1, 1.0)
FOUR(dtwo, 2.0)
FOUR(dbias, 0x3ff)

// DEXP turns Y0 into e^Y0 for values in [-708, 709], and spends X1, Y1, Y2, Y3. It is the Taylor series of e^(r/16) - 1
// to the eighth power of r/16, doubled four times by (1+y)^2 - 1 = y*(y+2), with the operations and roundings of
// math.Exp on a processor with FMA.
#define DEXP \
	VMULPD       dlog2e<>(SB), Y0, Y1; \
	VCVTPD2DQY   Y1, X3; \
	VCVTDQ2PD    X3, Y1; \
	VFNMADD231PD dln2high<>(SB), Y1, Y0; \
	VFNMADD231PD dln2low<>(SB), Y1, Y0; \
	VMULPD       dsixteenth<>(SB), Y0, Y0; \
	VMOVUPD      dc8<>(SB), Y1; \
	VFMADD213PD  dc7<>(SB), Y0, Y1; \
	VFMADD213PD  dc6<>(SB), Y0, Y1; \
	VFMADD213PD  dc5<>(SB), Y0, Y1; \
	VFMADD213PD  dc4<>(SB), Y0, Y1; \
	VFMADD213PD  dc3<>(SB), Y0, Y1; \
	VFMADD213PD  dhalf<>(SB), Y0, Y1; \
	VFMADD213PD  done1<>(SB), Y0, Y1; \
	VMULPD       Y1, Y0, Y0; \
	VADDPD       dtwo<>(SB), Y0, Y1; \
	VMULPD       Y1, Y0, Y0; \
	VADDPD       dtwo<>(SB), Y0, Y1; \
	VMULPD       Y1, Y0, Y0; \
	VADDPD       dtwo<>(SB), Y0, Y1; \
	VMULPD       Y1, Y0, Y0; \
	VADDPD       dtwo<>(SB), Y0, Y1; \
	VFMADD213PD  done1<>(SB), Y1, Y0; \
	VPMOVSXDQ    X3, Y2; \
	VPADDQ       dbias<>(SB), Y2, Y2; \
	VPSLLQ       $52, Y2, Y2; \
	VMULPD       Y2, Y0, Y0

// func expDoubleAVX2(dst, src *float64, n int, shift float64, sums *[8]float64) int
TEXT ·expDoubleAVX2(SB), NOSPLIT, $0-48
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSD shift+24(FP), Y15
	MOVQ         sums+32(FP), BX
	VMOVUPD      (BX), Y13
	VMOVUPD      32(BX), Y14
	VMOVUPD      dleast<>(SB), Y11
	VMOVUPD      dmost<>(SB), Y12
	XORQ         DX, DX
	SUBQ         $8, CX
	JLT          done
loop:
	VMOVUPD   (SI), Y0
	VSUBPD    Y15, Y0, Y0
	VMOVUPD   32(SI), Y4
	VSUBPD    Y15, Y4, Y4
	VCMPPD    $13, Y11, Y0, Y5 // at least -708; false for NaN
	VCMPPD    $2, Y12, Y0, Y6  // at most 709
	VANDPD    Y6, Y5, Y5
	VCMPPD    $13, Y11, Y4, Y6
	VANDPD    Y6, Y5, Y5
	VCMPPD    $2, Y12, Y4, Y6
	VANDPD    Y6, Y5, Y5
	VMOVMSKPD Y5, AX
	CMPL      AX, $15
	JNE       done
	DEXP
	VMOVUPD   Y0, (DI)
	VADDPD    Y0, Y13, Y13
	VMOVAPD   Y4, Y0
	DEXP
	VMOVUPD   Y0, 32(DI)
	VADDPD    Y0, Y14, Y14
	ADDQ      $64, SI
	ADDQ      $64, DI
	ADDQ      $8, DX
	SUBQ      $8, CX
	JGE       loop
done:
	VMOVUPD Y13, (BX)
	VMOVUPD Y14, 32(BX)
	MOVQ    DX, ret+40(FP)
	VZEROUPPER
	RET

// func scoreGradDoubleAVX2(ds, p, dp *float64, n int, delta float64)
TEXT ·scoreGradDoubleAVX2(SB), NOSPLIT, $0-40
	MOVQ         ds+0(FP), DI
	MOVQ         p+8(FP), SI
	MOVQ         dp+16(FP), DX
	MOVQ         n+24(FP), CX
	VBROADCASTSD delta+32(FP), Y15
loop:
	VMOVUPD (DX), Y0
	VSUBPD  Y15, Y0, Y0
	VMULPD  (SI), Y0, Y0
	VMOVUPD Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $4, CX
	JNE     loop
	VZEROUPPER
	RET

// func blendDoubleAVX2(dst *float64, s float64, x *float64, t float64, n int)
TEXT ·blendDoubleAVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	VBROADCASTSD s+8(FP), Y14
	MOVQ         x+16(FP), SI
	VBROADCASTSD t+24(FP), Y15
	MOVQ         n+32(FP), CX
loop:
	VMULPD  (DI), Y14, Y0
	VMULPD  (SI), Y15, Y1
	VADDPD  Y1, Y0, Y0
	VMOVUPD Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $4, CX
	JNE     loop
	VZEROUPPER
	RET
