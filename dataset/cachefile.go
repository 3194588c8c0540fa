package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
)

// An entry of the cache, integers little endian:
//
//	magic, header length u32, header (JSON)
//	a row: tokens u32, index u32, line u32, then a u32 a token: the id, its top bit set if the token is trained
//	SHA-256 of all before it
const cacheMagic = "tierlora tokens\n"

const trainedBit = 1 << 31

type cacheHeader struct {
	Key    string
	Report Report
}

func encodeEntry(key string, rows []Row, report *Report) []byte {
	header, err := json.Marshal(cacheHeader{key, *report})
	if err != nil {
		panic("dataset: a report is always JSON: " + err.Error())
	}
	size := len(cacheMagic) + 4 + len(header) + sha256.Size
	for _, r := range rows {
		size += 4 * (3 + len(r.IDs))
	}
	out := append(make([]byte, 0, size), cacheMagic...)
	put := func(n int) { out = binary.LittleEndian.AppendUint32(out, uint32(n)) }
	put(len(header))
	out = append(out, header...)
	for _, r := range rows {
		put(len(r.IDs))
		put(r.Index)
		put(r.Line)
		for t, id := range r.IDs {
			word := uint32(id)
			if r.Labels[t] != Ignore { // then it is the id itself
				word |= trainedBit
			}
			out = binary.LittleEndian.AppendUint32(out, word)
		}
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

var (
	errCacheShort = errors.New("too short")
	errCacheSum   = errors.New("wrong checksum")
	errCacheKey   = errors.New("made for something else")
	errCacheRows  = errors.New("rows that do not add up")
)

func decodeEntry(entry []byte, key, path string) ([]Row, *Report, error) {
	if len(entry) < len(cacheMagic)+4+sha256.Size {
		return nil, nil, errCacheShort
	}
	body, sum := entry[:len(entry)-sha256.Size], entry[len(entry)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, nil, errCacheSum
	}
	return decodeBody(body, key, path)
}

// decodeBody trusts no length in it: a checksum can be right over nonsense.
func decodeBody(body []byte, key, path string) ([]Row, *Report, error) {
	body, ok := bytes.CutPrefix(body, []byte(cacheMagic))
	if !ok || len(body) < 4 {
		return nil, nil, errCacheKey
	}
	n := binary.LittleEndian.Uint32(body)
	if body = body[4:]; uint64(n) > uint64(len(body)) {
		return nil, nil, errCacheShort
	}
	var header cacheHeader
	if err := json.Unmarshal(body[:n], &header); err != nil || header.Key != key || header.Report.Source != path {
		return nil, nil, errCacheKey
	}
	rows, err := decodeRows(body[n:], path)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) != header.Report.Kept || len(rows) == 0 {
		return nil, nil, errCacheRows
	}
	return rows, &header.Report, nil
}

func decodeRows(words []byte, path string) ([]Row, error) {
	if len(words)%4 != 0 {
		return nil, errCacheRows
	}
	next := func() uint32 {
		w := binary.LittleEndian.Uint32(words)
		words = words[4:]
		return w
	}
	var rows []Row
	for len(words) > 0 {
		if len(words) < 12 {
			return nil, errCacheRows
		}
		n, index, line := next(), next(), next()
		if n == 0 || uint64(n) > uint64(len(words)/4) || index > math.MaxInt32 || line > math.MaxInt32 {
			return nil, errCacheRows
		}
		row := Row{Index: int(index), Line: int(line), Source: path}
		row.IDs, row.Labels = newRow(int(n))
		for t := range row.IDs {
			w := next()
			row.IDs[t], row.Labels[t] = int32(w&^trainedBit), Ignore
			if w&trainedBit != 0 {
				row.Labels[t] = row.IDs[t]
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
