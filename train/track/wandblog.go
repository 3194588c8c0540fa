package track

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
)

// Constants of the wandb package's data store: LevelDB's log format (doc/log_format.md of google/leveldb) with a header
// of its own and plain CRC-32.
const (
	wandbBlock = 32 << 10
	wandbFrame = 4 + 2 + 1 // checksum, length, kind
)

// The kinds of frames: a whole record, or the first, middle and last parts of one.
const (
	frameWhole = 1 + iota
	frameFirst
	frameMiddle
	frameLast
)

var wandbHead = []byte{':', 'W', '&', 'B', 0xe1, 0xbe, 0}

// wandbLog appends records to such a file.
type wandbLog struct {
	file *os.File
	size int64
}

// frame returns a record as it is written to a file that has size bytes. No frame crosses a block boundary.
func frame(size int64, record []byte) []byte {
	var b []byte
	room := func() int { return wandbBlock - int((size+int64(len(b)))%wandbBlock) }
	if n := room(); n < wandbFrame {
		b = append(b, make([]byte, n)...)
	}
	for first := true; first || len(record) > 0; first = false {
		n := min(room()-wandbFrame, len(record))
		kind := byte(frameMiddle)
		switch last := n == len(record); {
		case first && last:
			kind = frameWhole
		case first:
			kind = frameFirst
		case last:
			kind = frameLast
		}
		sum := crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, record[:n])
		b = binary.LittleEndian.AppendUint32(b, sum)
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		b = append(append(b, kind), record[:n]...)
		record = record[n:]
	}
	return b
}

// append writes records in one call. If the write fails, it truncates the file again, so that readers find only whole
// records.
func (l *wandbLog) append(records []message) error {
	var b []byte
	if l.size == 0 {
		b = append(b, wandbHead...)
	}
	for _, r := range records {
		b = append(b, frame(l.size+int64(len(b)), r)...)
	}
	if _, err := l.file.Write(b); err != nil {
		l.file.Truncate(l.size) // the error of the write is the one to report
		return fmt.Errorf("write the run's log: %w", err)
	}
	l.size += int64(len(b))
	return nil
}
