//go:build !linux

package hardware

import "github.com/tierlora/tierlora/internal/atomicfile"

// machine reads what this system says of itself.
type machine struct{ dir string }

func newMachine(dir string) *machine { return &machine{dir} }

// host adds the free space of the disk, which is all that is read here.
func (m *machine) host(r Reading) {
	if free, ok := atomicfile.Free(m.dir); ok {
		r["disk_free_bytes"] = float64(free)
	}
}
