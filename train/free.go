package train

import (
	"fmt"

	"github.com/tierlora/tierlora/session"
)

// free is what the machine has free for a plan, of several ranks what each of them has: ranks on one CPU share it.
func (p *prepared) free() (bytes int64, known bool, err error) {
	bytes, known, err = p.On.FreeMemory()
	t := p.env.team
	if err != nil {
		return bytes, known, err
	}
	if t == nil { // a plan
		if !p.On.Capabilities().SeparateHost {
			bytes /= int64(p.world())
		}
		return bytes, known, nil
	}
	if !p.On.Capabilities().SeparateHost {
		bytes /= int64(t.locals)
	}
	if !known {
		bytes = -1 << 62
	}
	bytes, err = t.least("the free memory", bytes)
	return bytes, known && bytes > -1<<62, err
}

// mayHold is the memory that the run may hold: vram, or what is free.
func (p *prepared) mayHold() (bytes int64, known bool, err error) {
	if p.spec.VRAM == "" {
		return p.free()
	}
	if bytes, err = session.ParseBytes(p.spec.VRAM); err != nil {
		err = fmt.Errorf("vram: %w", err)
	}
	return bytes, true, err
}
