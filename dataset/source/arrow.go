package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Arrow's IPC formats: consecutive messages, either alone (a stream, as the library datasets saves them) or between a
// magic word and a footer (a file).
const (
	arrowMagic        = "ARROW1\x00\x00"
	arrowContinuation = "\xff\xff\xff\xff"
	maxArrowMessages  = 1 << 20
	maxArrowUnpacked  = 512 << 20 // bytes of a batch's decompressed buffers
)

// Headers of Arrow's messages.
const (
	arrowSchema     = 1
	arrowDictionary = 2
	arrowBatch      = 3
)

// arrowMessage is the position in the file of a batch of rows or of a dictionary's values.
type arrowMessage struct {
	header         byte
	meta, metaSize int64
	body, bodySize int64
	rows           int64
}

// arrowRows returns the rows of an Arrow file, one batch after the other. Memory is bounded by the window of each
// buffer.
type arrowRows struct {
	file         io.ReaderAt
	size         int64
	limit        int
	fields       []*arrowField
	messages     []arrowMessage
	rows         int64 // rows of the file
	message      int   // next message to read
	columns      []*arrowColumn
	row, length  int64 // current row of the batch, and rows of the batch
	dictionaries map[int64][]*arrowColumn
	parts        int   // parts of all dictionaries
	unpacked     int64 // decompressed bytes in memory
	kept         int64 // decompressed bytes of dictionaries
	zstd         *zstd.Decoder
	data         []byte
	wrong        error // error of the current row, after which reading can continue
}

func arrowDamaged(format string, args ...any) error {
	return &FileError{0, "the Arrow file is damaged: " + fmt.Sprintf(format, args...)}
}

// isArrow reports whether a file that begins with head is an Arrow file: the metadata of its first message is short.
func isArrow(head []byte) bool {
	return len(head) >= 8 && (string(head[:8]) == arrowMagic || string(head[:4]) == arrowContinuation &&
		binary.LittleEndian.Uint32(head[4:]) <= maxFooter)
}

func openArrow(head []byte, o Options) (rows, error) {
	switch {
	case len(head) == 0:
		return nil, io.EOF
	case len(head) >= 4 && string(head[:4]) == "FEA1":
		return nil, &FileError{0, "the file is Feather of version 1: write it as Parquet or JSONL"}
	case !isArrow(head):
		return nil, &FileError{0, fmt.Sprintf("the file is named .arrow and begins with %q: it is no Arrow file",
			head[:min(8, len(head))])}
	case o.At == nil:
		return nil, &FileError{0, "the file is Arrow, which must be read from a plain file: it is given as a stream"}
	}
	r := &arrowRows{file: o.At, size: o.Size, limit: o.Limit, dictionaries: map[int64][]*arrowColumn{}}
	return r, r.readMessages()
}

// readMessages finds the schema and the positions of the batches, and counts the rows.
func (r *arrowRows) readMessages() error {
	pos := int64(0)
	var head [8]byte
	if r.size >= 8 {
		if err := r.read(head[:], 0); err != nil {
			return err
		}
		if string(head[:]) == arrowMagic {
			pos = 8
		}
	}
	for pos <= r.size-8 {
		if err := r.read(head[:], pos); err != nil {
			return err
		}
		if string(head[:4]) != arrowContinuation {
			return arrowDamaged("byte %d begins no message", pos+1)
		}
		m := arrowMessage{meta: pos + 8, metaSize: int64(binary.LittleEndian.Uint32(head[4:]))}
		switch {
		case m.metaSize == 0: // the end of the stream
			return r.checkMessages()
		case m.metaSize > maxFooter:
			return arrowDamaged("a message's metadata would have %d bytes", m.metaSize)
		case m.metaSize > r.size-m.meta:
			return r.cutOff()
		}
		table, err := r.metadata(m)
		if err != nil {
			return err
		}
		m.header, m.body, m.bodySize = table.u8(1, 0), m.meta+m.metaSize, table.i64(3)
		header := table.table(2)
		switch {
		case table.f.err != nil:
			return arrowDamaged("%v", table.f.err)
		case m.bodySize < 0:
			return arrowDamaged("a message would have %d bytes", m.bodySize)
		case m.bodySize > r.size-m.body:
			return r.cutOff()
		}
		if err := r.take(m, header); err != nil {
			return err
		}
		pos = m.body + m.bodySize
	}
	if pos < r.size {
		return r.cutOff()
	}
	return r.checkMessages()
}

// take records a message.
func (r *arrowRows) take(m arrowMessage, header flatTable) error {
	switch {
	case m.header == arrowSchema && r.fields == nil:
		return r.readSchema(header)
	case r.fields == nil:
		return arrowDamaged("it does not begin with a schema")
	case m.header == arrowBatch:
		m.rows = header.i64(0)
		if r.rows += m.rows; header.f.err != nil || m.rows < 0 || r.rows < 0 || r.rows > 1<<20+1000*r.size {
			return arrowDamaged("a batch would have %d rows", m.rows)
		}
	case m.header != arrowDictionary:
		return arrowDamaged("it has a message of kind %d, which is neither rows nor a dictionary", m.header)
	}
	if len(r.messages) == maxArrowMessages {
		return &FileError{0, fmt.Sprintf("the Arrow file has more than %d batches: write it in fewer",
			maxArrowMessages)}
	}
	r.messages = append(r.messages, m)
	return nil
}

func (r *arrowRows) checkMessages() error {
	if r.fields == nil {
		return arrowDamaged("it has no schema")
	}
	return nil
}

func (r *arrowRows) cutOff() error {
	return &FileError{0, "the Arrow file ends in the middle of a batch: it is cut off"}
}

// metadata reads a message's metadata.
func (r *arrowRows) metadata(m arrowMessage) (flatTable, error) {
	f := &flatbuffer{data: make([]byte, m.metaSize)}
	if err := r.read(f.data, m.meta); err != nil {
		return flatTable{}, err
	}
	return f.root(), nil
}

// read fills b from a place of the file.
func (r *arrowRows) read(b []byte, at int64) error {
	n, err := r.file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return r.cutOff()
	case err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Types of Arrow columns.
const (
	arrowNull       = 1
	arrowInt        = 2
	arrowFloat      = 3
	arrowBinary     = 4
	arrowText       = 5
	arrowBool       = 6
	arrowDecimal    = 7
	arrowDate       = 8
	arrowTime       = 9
	arrowTimestamp  = 10
	arrowList       = 12
	arrowStruct     = 13
	arrowFixed      = 15
	arrowFixedList  = 16
	arrowMap        = 17
	arrowDuration   = 18
	arrowBigBinary  = 19
	arrowBigText    = 20
	arrowBigList    = 21
	arrowJSON       = "arrow.json"
	arrowExtension  = "ARROW:extension:name"
	maxArrowDecimal = 32 // bytes
)

// arrowTypeNames lists the types that are not supported.
var arrowTypeNames = map[uint8]string{11: "interval", 14: "union", 22: "run-end encoded", 23: "binary view",
	24: "string view", 25: "list view", 26: "large list view"}
