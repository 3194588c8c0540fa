package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Code is one form of compiled kernels within an image.
type Code struct {
	SM       int  // compute capability that it is compiled for, 10 major + minor
	Specific bool // for that one alone (sm_90a), which no other chip runs
	PTX      bool // the driver compiles it on the machine
}

func (c Code) String() string {
	s := fmt.Sprintf("sm_%d", c.SM)
	if c.PTX {
		s = fmt.Sprintf("compute_%d", c.SM)
	}
	if c.Specific {
		s += "a"
	}
	return s
}

// runsOn tells whether a device of compute capability sm takes the form: machine code within its major number from
// its minor number on, PTX on everything later (CUDA C++ programming guide, "Application compatibility").
func (c Code) runsOn(sm int) bool {
	switch {
	case c.Specific:
		return sm == c.SM
	case c.PTX:
		return sm >= c.SM
	}
	return sm/10 == c.SM/10 && sm >= c.SM
}

// Codes lists the forms in a fatbin image.
func Codes(image []byte) ([]Code, error) {
	const magic, specific, ptx, cubin = 0xba55ed50, 1 << 20, 1, 2
	errDamaged := errors.New("damaged image of compiled kernels")
	le := binary.LittleEndian
	if len(image) < 16 || le.Uint32(image) != magic {
		return nil, errDamaged
	}
	at, size := uint64(le.Uint16(image[6:])), le.Uint64(image[8:])
	if size > uint64(len(image)) || at+size > uint64(len(image)) {
		return nil, errDamaged
	}
	image = image[:at+size]
	var codes []Code
	for at < uint64(len(image)) {
		e := image[at:]
		if len(e) < 48 {
			return nil, errDamaged
		}
		kind, header, payload := le.Uint16(e), uint64(le.Uint32(e[4:])), le.Uint64(e[8:])
		if header < 48 || payload > uint64(len(e)) || header+payload > uint64(len(e)) {
			return nil, errDamaged
		}
		if kind == ptx || kind == cubin {
			codes = append(codes, Code{SM: int(le.Uint32(e[28:])), Specific: le.Uint64(e[40:])&specific != 0,
				PTX: kind == ptx})
		}
		at += header + payload
	}
	return codes, nil
}

// choose returns the form that the driver takes on a device: machine code before PTX, the nearest of each.
func choose(codes []Code, sm int) (best Code, ok bool) {
	for _, c := range codes {
		if !c.runsOn(sm) {
			continue
		}
		if !ok || best.PTX && !c.PTX || best.PTX == c.PTX && (c.SM > best.SM || c.SM == best.SM && c.Specific) {
			best, ok = c, true
		}
	}
	return best, ok
}
