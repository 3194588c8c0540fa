//go:build ignore

// gen writes tile_amd64.s, the assembly of the tiles of every number of rows: float32 for AVX-512 (two or one vectors
// of 16 wide) and for AVX2 (two or one vectors of 8 wide), float64 for AVX2 (two or one vectors of 4 wide). A float64
// tile multiplies and adds in two roundings, as Go code does. Run it with go generate.
package main

import (
	"bytes"
	"fmt"
	"os"
)

// Offsets in struct tile of tile_amd64.go.
const (
	offA, offARS, offACS, offB, offBS, offC, offLDC, offK, offMask, offAlpha, offAdd,
	offAlpha64 = 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 76, 80
)

var out bytes.Buffer

func p(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

// isa is what differs between the instruction sets and number types.
type isa struct {
	name   string
	reg    string // vector register prefix
	width  int    // bytes
	rows   int    // of the largest tile
	masked bool
	zero   string
	float  string // suffix of the instructions for a number type: S for float32, D for float64
	fused  bool   // multiply and add in one instruction, with one rounding
	alpha  int    // offset of alpha in struct tile
}

var isas = []isa{
	{"512", "Z", 64, 12, true, "VPXORD", "S", true, offAlpha},
	{"256", "Y", 32, 6, false, "VXORPS", "S", true, offAlpha},
	{"Double", "Y", 32, 4, false, "VXORPD", "D", false, offAlpha64},
}

// bases hold the addresses of rows 0, 3, 6 and 9.
var bases = []string{"R8", "R12", "R13", "AX"}

// rowOf returns the address of A's row i at the current depth.
func rowOf(i int) string {
	index := []string{"", "(R9*1)", "(R9*2)"}[i%3]
	return "(" + bases[i/3] + ")" + index
}

func tile(s isa, rows, cols int) {
	acc := func(i, c int) string { return fmt.Sprintf("%s%d", s.reg, i*cols+c) }
	first := s.rows * 2 // registers after the accumulators of the largest tile
	b := func(c int) string { return fmt.Sprintf("%s%d", s.reg, first+c) }
	free := 32
	if !s.masked {
		free = 16
	}
	temps := free - first - 2
	if !s.fused {
		temps = 2
	}
	temp := func(i int) string { return fmt.Sprintf("%s%d", s.reg, first+2+i%temps) }
	// Products that wait for their addition, where the two are separate instructions.
	product := func(i int) string { return fmt.Sprintf("%s%d", s.reg, first+4+i%(free-first-4)) }
	p("\n// func tile%sx%dx%d(t *tile)", s.name, rows, cols)
	p("TEXT ·tile%sx%dx%d(SB), NOSPLIT, $0-8", s.name, rows, cols)
	p("\tMOVQ t+0(FP), DI")
	p("\tMOVQ %d(DI), R8", offA)
	p("\tMOVQ %d(DI), R9", offARS)
	p("\tMOVQ %d(DI), R10", offACS)
	p("\tMOVQ %d(DI), SI", offB)
	p("\tMOVQ %d(DI), R11", offBS)
	p("\tMOVQ %d(DI), DX", offC)
	p("\tMOVQ %d(DI), BX", offLDC)
	p("\tMOVQ %d(DI), CX", offK)
	if s.masked {
		for c := range cols {
			p("\tKMOVW %d(DI), K%d", offMask+2*c, c+1)
		}
	}
	// C is touched once, after the loop: fetch it meanwhile.
	p("\tMOVQ DX, AX")
	for i := range rows {
		for c := 0; c < cols*s.width; c += 64 {
			p("\tPREFETCHT0 %d(AX)", c)
		}
		if i+1 < rows {
			p("\tADDQ BX, AX")
		}
	}
	used := (rows + 2) / 3
	for g := 1; g < used; g++ {
		p("\tLEAQ (%s)(R9*2), %s", bases[g-1], bases[g])
		p("\tADDQ R9, %s", bases[g])
	}
	for i := range rows {
		for c := range cols {
			p("\t%s %s, %s, %s", s.zero, acc(i, c), acc(i, c), acc(i, c))
		}
	}
	p("\nloop:")
	for c := range cols {
		if s.masked {
			p("\tVMOVUP%s.Z %d(SI), K%d, %s", s.float, c*s.width, c+1, b(c))
		} else {
			p("\tVMOVUP%s %d(SI), %s", s.float, c*s.width, b(c))
		}
	}
	for i := range rows {
		p("\tVBROADCASTS%s %s, %s", s.float, rowOf(i), temp(i))
		for c := range cols {
			if s.fused {
				p("\tVFMADD231P%s %s, %s, %s", s.float, b(c), temp(i), acc(i, c))
				continue
			}
			p("\tVMULP%s %s, %s, %s", s.float, b(c), temp(i), product(i*cols+c))
			p("\tVADDP%s %s, %s, %s", s.float, product(i*cols+c), acc(i, c), acc(i, c))
		}
	}
	for g := range used {
		p("\tADDQ R10, %s", bases[g])
	}
	p("\tADDQ R11, SI")
	p("\tDECQ CX")
	p("\tJNZ loop")
	p("")
	p("\tVBROADCASTS%s %d(DI), %s", s.float, s.alpha, b(0))
	for i := range rows {
		for c := range cols {
			p("\tVMULP%s %s, %s, %s", s.float, b(0), acc(i, c), acc(i, c))
		}
	}
	p("\tCMPL %d(DI), $0", offAdd)
	p("\tJEQ  store")
	p("\tMOVQ DX, SI")
	for i := range rows {
		for c := range cols {
			if s.masked {
				p("\tVMOVUP%s.Z %d(SI), K%d, %s", s.float, c*s.width, c+1, b(1))
				p("\tVADDP%s %s, %s, %s", s.float, b(1), acc(i, c), acc(i, c))
			} else {
				p("\tVADDP%s %d(SI), %s, %s", s.float, c*s.width, acc(i, c), acc(i, c))
			}
		}
		if i+1 < rows {
			p("\tADDQ BX, SI")
		}
	}
	p("\nstore:")
	for i := range rows {
		for c := range cols {
			if s.masked {
				p("\tVMOVUP%s %s, K%d, %d(DX)", s.float, acc(i, c), c+1, c*s.width)
			} else {
				p("\tVMOVUP%s %s, %d(DX)", s.float, acc(i, c), c*s.width)
			}
		}
		if i+1 < rows {
			p("\tADDQ BX, DX")
		}
	}
	p("\tVZEROUPPER")
	p("\tRET")
}

func main() {
	p("// Written by gen.go (go generate); do not edit.")
	p("")
	p("#include \"textflag.h\"")
	for _, s := range isas {
		for cols := 2; cols >= 1; cols-- {
			for rows := 1; rows <= s.rows; rows++ {
				tile(s, rows, cols)
			}
		}
	}
	if err := os.WriteFile("tile_amd64.s", out.Bytes(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	out.Reset()
	p("// Written by gen.go (go generate); do not edit.")
	p("")
	p("package gemm")
	for _, s := range isas {
		p("\n// tile%s calls the tile of its size.", s.name)
		p("func tile%s(t *tile, rows, cols int) {", s.name)
		p("\tswitch rows*2 + cols {")
		for rows := 1; rows <= s.rows; rows++ {
			for cols := 1; cols <= 2; cols++ {
				p("\tcase %d*2 + %d:", rows, cols)
				p("\t\ttile%sx%dx%d(t)", s.name, rows, cols)
			}
		}
		p("\t}\n}")
		for rows := 1; rows <= s.rows; rows++ {
			for cols := 1; cols <= 2; cols++ {
				p("\n//go:noescape\nfunc tile%sx%dx%d(t *tile)", s.name, rows, cols)
			}
		}
	}
	if err := os.WriteFile("tiles_amd64.go", out.Bytes(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
