package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/train/objective"
)

// Format of a file of log-probabilities of a reference, with little-endian integers:
//
//	magic
//	key: 64 hexadecimal digits, of everything that decides the values
//	for each row: hash of the row u64, number of its values u32, values f32
//	SHA-256 of the bytes before
const referenceMagic = "tierlora reference 1\n"

// mostReferenceValues bounds the values of a row: two for each of the most sequences that a row may have.
const mostReferenceValues = 1 << 12

// referenceFile is an entry of the cache.
type referenceFile struct {
	path  string // "" = the values are not kept
	key   string
	found []byte // the rows of an entry that exists; nil = there is none
	// values are what the file is written from.
	values *objective.ReferenceValues
}

// bytes returns the file.
func (f *referenceFile) bytes() []byte {
	text := append([]byte(referenceMagic), f.key...)
	for key, values := range f.values.Rows() {
		text = appendReferenceRow(text, key, values)
	}
	sum := sha256.Sum256(text)
	return append(text, sum[:]...)
}

// parseReferenceFile returns the rows of a file with a key.
func parseReferenceFile(text []byte, key string) (rows []byte, err error) {
	body, sum := text, []byte(nil)
	if n := len(text) - sha256.Size; n >= 0 {
		body, sum = text[:n], text[n:]
	}
	if is := sha256.Sum256(body); !bytes.Equal(is[:], sum) {
		return nil, errors.New("its checksum is wrong")
	}
	rows, ok := bytes.CutPrefix(body, []byte(referenceMagic+key))
	if !ok {
		return nil, errors.New("it belongs to other values")
	}
	return rows, addReferenceRows(objective.NewReferenceValues(), rows)
}

// appendReferenceRow appends a row.
func appendReferenceRow(text []byte, key uint64, values []float32) []byte {
	text = binary.LittleEndian.AppendUint64(text, key)
	text = binary.LittleEndian.AppendUint32(text, uint32(len(values)))
	for _, x := range values {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(x))
	}
	return text
}

// addReferenceRows adds rows that appendReferenceRow wrote.
func addReferenceRows(to *objective.ReferenceValues, text []byte) error {
	for len(text) > 0 {
		if len(text) < 12 {
			return fmt.Errorf("a row has %d bytes, want at least 12", len(text))
		}
		key, n := binary.LittleEndian.Uint64(text), int(binary.LittleEndian.Uint32(text[8:]))
		if text = text[12:]; n > mostReferenceValues || len(text) < 4*n {
			return fmt.Errorf("a row has %d values, and %d bytes follow", n, len(text))
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(text[4*i:]))
		}
		to.Add(key, values)
		text = text[4*n:]
	}
	return nil
}
