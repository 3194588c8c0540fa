//go:build gpu

package cuda

import (
	"embed"
	"fmt"
)

//go:embed build/*.fatbin
var images embed.FS

// Image returns the compiled kernels of a source file by its stem, for every supported architecture and, where the source
// has such, in the form for an element type: bf16, f16 or f32.
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
