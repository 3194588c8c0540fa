package gpu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Algorithms remembers which algorithm the vendor's matrix library chose for each shape, so that a run repeats bit for
// bit and planning asks no heuristics twice. It holds for one GPU type and one library version: those name its file.
type Algorithms struct {
	GPU     string            `json:"gpu"`
	Library string            `json:"library"`
	Choice  map[string][]byte `json:"choice"` // Gemm.Key -> the library's opaque algorithm, which decides the bits
	// Fastest holds, by Gemm.Key, the fastest algorithm in trials of those that give Choice's bits. Which one it is
	// reaches no number.
	Fastest map[string][]byte `json:"fastest,omitempty"`
	path    string
	changed bool
	used    map[string]bool // keys that were asked for
}

// OpenAlgorithms reads the choices for a GPU and a library version from folder; a missing file is an empty table, a
// damaged one an error. With an empty folder nothing is kept.
func OpenAlgorithms(folder, gpuName, library string) (*Algorithms, error) {
	a := &Algorithms{GPU: gpuName, Library: library, Choice: map[string][]byte{}, Fastest: map[string][]byte{}}
	if folder == "" {
		return a, nil
	}
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' {
				return r
			}
			return '-'
		}, s)
	}
	a.path = filepath.Join(folder, "gemm-"+clean(gpuName)+"-"+clean(library)+".json")
	b, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read algorithm choices: %w", err)
	}
	var read Algorithms
	if err := json.Unmarshal(b, &read); err != nil {
		return nil, fmt.Errorf("read algorithm choices %s: %w; delete the file to choose anew", a.path, err)
	}
	if read.GPU == gpuName && read.Library == library && read.Choice != nil {
		a.Choice = read.Choice
		if read.Fastest != nil {
			a.Fastest = read.Fastest
		}
	}
	return a, nil
}

// Digest returns the SHA-256, in hexadecimal, over the shapes that were used so far and their algorithms.
func (a *Algorithms) Digest() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(a.used)) {
		fmt.Fprintf(h, "%s %x\n", key, a.Choice[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (a *Algorithms) set(key string, algo []byte) {
	a.Choice[key] = algo
	delete(a.Fastest, key) // it was compared with another choice
	a.changed = true
}

// Tried reports whether trials of a shape's algorithms have ended.
func (a *Algorithms) Tried(key string) bool { return a.Fastest[key] != nil }

// SetFastest notes the fastest algorithm of a shape's trials, which gives the same bits as Choice.
func (a *Algorithms) SetFastest(key string, algorithm []byte) {
	a.Fastest[key] = algorithm
	a.changed = true
}

// Save writes new choices, under a temporary name first.
func (a *Algorithms) Save() error {
	if a.path == "" || !a.changed {
		return nil
	}
	b, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		return fmt.Errorf("write algorithm choices: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil {
		return fmt.Errorf("write algorithm choices: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(a.path), "gemm-*.tmp")
	if err != nil {
		return fmt.Errorf("write algorithm choices: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), a.path)
	}
	if err != nil {
		return fmt.Errorf("write algorithm choices %s: %w", a.path, err)
	}
	a.changed = false
	return nil
}

// DType is the storage type of a matrix.
type DType int

// Storage types of a Gemm's matrices.
const (
	BF16 DType = iota
	F32
	F16
	E4M3 // 8-bit floats with a scale for each row of A and each row of B as stored; for operands alone
)

func (t DType) String() string { return [...]string{"bf16", "f32", "f16", "e4m3"}[t] }

// Gemm is D[M,N] = Alpha op(A)[M,K] op(B)[K,N] + Beta D, row-major, sums in fp32. op(X) is X, or X
// transposed: with TransA, A is stored as [K,M]; with TransB, B is stored as [N,K] (as checkpoints store weights).
type Gemm struct {
	M, N, K        int
	TransA, TransB bool
	LDA, LDB, LDD  int   // elements between rows as stored; 0 = packed
	In, Out        DType // of A and B; of D: In or F32, of E4M3 BF16 or F32
	TF32           bool  // with In F32: tensor cores may read A and B with 10 bits of mantissa
	Alpha, Beta    float32
	Align          int // bytes to which every address and row is aligned; 0 = 16
}

// Key names the shape: two Gemms of one key take the same algorithm.
func (g Gemm) Key(workspace int64) string {
	g = g.packed()
	t := func(b bool) string {
		if b {
			return "T"
		}
		return "N"
	}
	in := ""
	switch {
	case g.TF32:
		in = " of tf32"
	case g.In != BF16:
		in = " of " + g.In.String()
	}
	return fmt.Sprintf("%dx%dx%d %s%s ld %d,%d,%d %s beta %t align %d workspace %d%s", g.M, g.N, g.K, t(g.TransA),
		t(g.TransB),
		g.LDA, g.LDB, g.LDD, g.Out, g.Beta != 0, g.Align, workspace, in)
}

// packed fills in the defaults.
func (g Gemm) packed() Gemm {
	or := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if g.TransA {
		or(&g.LDA, g.M)
	} else {
		or(&g.LDA, g.K)
	}
	if g.TransB {
		or(&g.LDB, g.K)
	} else {
		or(&g.LDB, g.N)
	}
	or(&g.LDD, g.N)
	or(&g.Align, 16)
	return g
}

// check says what is wrong with a shape.
func (g Gemm) check() error {
	g = g.packed()
	rowA, rowB := g.K, g.N
	if g.TransA {
		rowA = g.M
	}
	if g.TransB {
		rowB = g.K
	}
	if g.M < 1 || g.N < 1 || g.K < 1 || g.LDA < rowA || g.LDB < rowB || g.LDD < g.N {
		return fmt.Errorf("gemm %s: sizes must be positive and rows fit their leading dimension", g.Key(0))
	}
	if g.In == E4M3 && (g.TransA || !g.TransB || g.Out == E4M3 || g.Out == F16 || g.N%16 != 0 || g.K%16 != 0) {
		return fmt.Errorf("gemm %dx%dx%d of e4m3: it takes A [M,K] and B [N,K], N and K multiples of 16, "+
			"to bf16 or f32", g.M, g.N, g.K)
	}
	if g.In < BF16 || g.In > E4M3 || g.In != E4M3 && g.Out != g.In && g.Out != F32 || g.TF32 && g.In != F32 {
		return fmt.Errorf("gemm %dx%dx%d: operand type %d, output type %d, TF32 %t", g.M, g.N, g.K, int(g.In),
			int(g.Out), g.TF32)
	}
	return nil
}
