//go:build gpu

package graph

import "errors"

// copyRates copies inside the device and between it and page-locked host memory.
func (g *GPU) copyRates(to *Ceilings) (err error) {
	const up = copyBytes / 4
	d, s := g.gpu.Device, g.gpu.Stream
	arena, err := d.NewArena("a measured copy", 2*copyBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, arena.Free()) }()
	host, err := d.NewPinned(up)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Free()) }()
	to.CopyOf = "inside the device"
	for _, m := range []struct {
		rate  *float64
		bytes float64
		run   func() error
	}{
		{&to.Copy, 2 * copyBytes, func() error { return s.Copy(arena.Base.Add(copyBytes), arena.Base, copyBytes) }},
		{&to.Upload, up, func() error { return s.CopyIn(arena.Base, host, 0, up) }},
		{&to.Download, up, func() error { return s.CopyOut(host, 0, arena.Base, up) }},
	} {
		took, err := fastest(m.run, s.Synchronize)
		if err != nil {
			return err
		}
		*m.rate = m.bytes / took.Seconds()
	}
	return nil
}
