package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// latentChecks returns the keys of multi-head latent attention.
func latentChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, s := range []struct{ of, own, shared int }{{5, 3, 2}, {16, 8, 8}, {256, 128, 64}} {
			k := kernel.LatentKeys{Heads: 3, Of: s.of, Own: s.own}
			name := fmt.Sprintf("3 heads, %d own columns of %d and %d shared ones, %d rows", s.own, s.of, s.shared, M)
			all = append(all, check{kernel: "latent_keys", name: name, build: one(k), bounds: []bound{exact},
				in: []checkInput{n.normal(1, M, 3*s.of), n.normal(1, M, s.shared)}},
				check{kernel: "latent_keys_grad", name: name, build: one(kernel.LatentKeysGrad(k)),
					bounds: []bound{exact, rounded}, in: []checkInput{n.normal(1, M, 3*(s.own+s.shared))}})
		}
	}
	return all
}
