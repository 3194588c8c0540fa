//go:build gpu

package cuda

import (
	"embed"
	"fmt"
)

//go:embed build/*.fatbin
var images embed.FS

// Image returns the compiled kernels of a source file by its stem, for every supported architecture.
func Image(stem string) ([]byte, error) {
	b, err := images.ReadFile("build/" + stem + ".fatbin")
	if err != nil {
		return nil, fmt.Errorf("compiled kernels %s: not in this binary; run make kernels and build again", stem)
	}
	return b, nil
}
