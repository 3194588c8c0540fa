package dataset

import "testing"

// BenchmarkVerify is what the check of a row costs, and reading it, from a mapped cache file that was compared.
func BenchmarkVerify(b *testing.B) {
	cfg := workersConfig(b, 2, mixedRows(3000, false))
	mustLoad(b, cfg, bytesTokenizer{})
	set, _ := mustLoad(b, cfg, bytesTokenizer{})
	for name, f := range map[string]func(i int){
		"verify": func(i int) {
			if err := verify(set.Train, i); err != nil {
				b.Fatal(err)
			}
		},
		"row": func(i int) { set.Train.Row(i) },
	} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				f(i % set.Train.Len())
			}
		})
	}
}
