package ranks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// frame is a message between processes: a header of 20 bytes (little endian), a purpose, and a payload.
//
//	kind 1 | 0 | length of the purpose 2 | rank 4 | sequence 8 | length of the payload 4
type frame struct {
	kind kind
	rank int
	seq  uint64
	what string
	data []byte
}

type kind byte

const (
	kindHello     kind = iota + 1 // process to coordinator: hello, as JSON
	kindChallenge                 // coordinator to process: its nonce
	kindProof                     // process to coordinator: proof that it knows the key
	kindWelcome                   // coordinator to process: proof that it knows the key too
	kindRefuse                    // coordinator to process: refusal, as JSON
	kindStart                     // coordinator to process: number of ranks of each process, as JSON
	kindBeat                      // both ways: status of the sender's ranks
	kindPart                      // process to coordinator: a rank's part of a gather
	kindResult                    // coordinator to process: the parts of all ranks
	kindLost                      // coordinator to process: a LostError, as JSON
	kindLeave                     // both ways: a rank ends, with a LostError as JSON, or successfully
	kindStalled                   // coordinator to process: the devices wait for one another
	kinds
)

const (
	headerBytes = 20
	maxWhat     = 256
	maxGreeting = 4 << 10  // payloads of the handshake, which strangers can send
	maxPart     = 1 << 30  // payload of one rank
	maxTold     = 1 << 20  // statuses and faults of a process
	maxAtOnce   = 64 << 20 // memory allocated for a payload before its bytes have arrived
)

// limit bounds the payload of a kind of frame.
func (k kind) limit() int64 {
	switch k {
	case kindHello, kindChallenge, kindProof, kindWelcome, kindRefuse:
		return maxGreeting
	case kindPart:
		return maxPart
	case kindResult:
		return 1<<32 - 1
	}
	return maxTold
}

var (
	errTooLong  = errors.New("a message is longer than it may be")
	errTooShort = errors.New("a message is shorter than it says")
)

// header encodes a frame's header and purpose.
func (f frame) header() ([]byte, error) {
	if len(f.what) > maxWhat || int64(len(f.data)) > 1<<32-1 {
		return nil, errTooLong
	}
	b := make([]byte, headerBytes, headerBytes+len(f.what))
	b[0] = byte(f.kind)
	binary.LittleEndian.PutUint16(b[2:], uint16(len(f.what)))
	binary.LittleEndian.PutUint32(b[4:], uint32(f.rank))
	binary.LittleEndian.PutUint64(b[8:], f.seq)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(f.data)))
	return append(b, f.what...), nil
}

// readFrame reads one frame of a kind from first to last. Its memory is bounded by the bytes that have arrived.
func readFrame(r io.Reader, first, last kind) (frame, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: kind(b[0]), rank: int(binary.LittleEndian.Uint32(b[4:])), seq: binary.LittleEndian.Uint64(b[8:])}
	n, named := int64(binary.LittleEndian.Uint32(b[16:])), int(binary.LittleEndian.Uint16(b[2:]))
	switch {
	case f.kind < first || f.kind > last || b[1] != 0:
		return frame{}, fmt.Errorf("a message of kind %d is not expected", b[0])
	case f.rank < 0 || f.rank >= MaxWorld:
		return frame{}, fmt.Errorf("a message of rank %d", f.rank)
	case named > maxWhat || n > f.kind.limit():
		return frame{}, errTooLong
	}
	what := make([]byte, named)
	if _, err := io.ReadFull(r, what); err != nil {
		return frame{}, unexpected(err)
	}
	f.what = string(what)
	f.data = make([]byte, 0, min(n, maxAtOnce))
	for int64(len(f.data)) < n {
		if len(f.data) == cap(f.data) {
			bigger := make([]byte, len(f.data), min(n, 2*int64(cap(f.data))))
			copy(bigger, f.data)
			f.data = bigger
		}
		got, err := io.ReadFull(r, f.data[len(f.data):cap(f.data)])
		f.data = f.data[:len(f.data)+got]
		if err != nil {
			return frame{}, unexpected(err)
		}
	}
	return f, nil
}

// unexpected converts io.EOF inside a frame to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// packParts concatenates the ranks' parts, each after its length.
func packParts(parts [][]byte) ([]byte, error) {
	total := int64(0)
	for _, p := range parts {
		total += 4 + int64(len(p))
	}
	if total > kindResult.limit() {
		return nil, fmt.Errorf("%d ranks gave %d bytes together: %w", len(parts), total, errTooLong)
	}
	b := make([]byte, 0, total)
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b, nil
}

// unpackParts is the inverse of packParts; the parts share the memory of b.
func unpackParts(b []byte, world int) ([][]byte, error) {
	parts := make([][]byte, world)
	for i := range parts {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return nil, errTooShort
		}
		n := int(binary.LittleEndian.Uint32(b))
		parts[i], b = b[4:4+n:4+n], b[4+n:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%d bytes are left behind the last rank's", len(b))
	}
	return parts, nil
}

// status is what a rank last reported about itself.
type status struct {
	count uint64 // number of its calls of At, which shows progress
	step  int
	doing string
	// slowest is the longest step that the rank has finished, not counting the first step of its process; 0 = none yet.
	slowest time.Duration
}

// statusBytes is the size of a packed status without its text.
const statusBytes = 22

func packStatus(all []status) []byte {
	var b []byte
	for _, s := range all {
		b = binary.LittleEndian.AppendUint64(b, s.count)
		b = binary.LittleEndian.AppendUint32(b, uint32(s.step))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.slowest))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s.doing)))
		b = append(b, s.doing...)
	}
	return b
}

func unpackStatus(b []byte) ([]status, error) {
	var all []status
	for len(b) > 0 {
		if len(b) < statusBytes {
			return nil, errTooShort
		}
		named := int(binary.LittleEndian.Uint16(b[20:]))
		if named > maxWhat || len(b) < statusBytes+named {
			return nil, errTooShort
		}
		all = append(all, status{
			count: binary.LittleEndian.Uint64(b), step: int(binary.LittleEndian.Uint32(b[8:])),
			doing:   plain(string(b[statusBytes:statusBytes+named]), maxWhat),
			slowest: max(time.Duration(binary.LittleEndian.Uint64(b[12:])), 0),
		})
		b = b[statusBytes+named:]
	}
	return all, nil
}

// plain makes foreign text safe for a line on a terminal: without control characters, at most `most` bytes.
func plain(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
