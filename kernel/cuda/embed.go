//go:build gpu

package cuda

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

//go:embed build/*.fatbin
var images embed.FS

// Image returns the compiled kernels of a source file by its stem, for every supported architecture and, where the
// source has such, in the form for an element type: bf16, f16 or f32.
func Image(stem, elem string) ([]byte, error) {
	form, err := Form(stem, elem)
	if err != nil {
		return nil, err
	}
	b, err := images.ReadFile("build/" + form + ".fatbin")
	if err != nil {
		return nil, fmt.Errorf("compiled kernels %s: not in this binary; run make kernels and build again", stem)
	}
	return b, nil
}

// Digest is the SHA-256 over names and bytes of all compiled kernels in this program, in hexadecimal.
var Digest = sync.OnceValue(func() string {
	h := sha256.New()
	files, _ := images.ReadDir("build") // sorted by name; embedded files can be read
	for _, f := range files {
		b, _ := images.ReadFile("build/" + f.Name())
		fmt.Fprintf(h, "%s %d\n", f.Name(), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
})

// CodeFor returns the form of this program's kernels that a device of compute capability sm runs: the worst of all
// images.
func CodeFor(sm int) (Code, error) {
	files, err := images.ReadDir("build")
	if err != nil || len(files) == 0 {
		return Code{}, errors.New("this program holds no compiled kernels: run make kernels and build again")
	}
	var worst Code
	for i, f := range files {
		b, err := images.ReadFile("build/" + f.Name())
		if err != nil {
			return Code{}, err
		}
		codes, err := Codes(b)
		if err != nil {
			return Code{}, fmt.Errorf("%s: %w", f.Name(), err)
		}
		c, ok := choose(codes, sm)
		if !ok {
			return Code{}, fmt.Errorf("%s holds no code for compute capability %d.%d, only %v: build with scripts/kernels.py --targets sm_%d,... and make gpu", f.Name(), sm/10, sm%10, codes, sm)
		}
		if i == 0 || c.PTX && !worst.PTX {
			worst = c
		}
	}
	return worst, nil
}
