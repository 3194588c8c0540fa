package track

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// TensorBoardDir is the folder of event files in a run's output folder.
const TensorBoardDir = "tensorboard"

// tensorBoard writes TensorFlow event files: TFRecords of Event messages (tensorflow/core/util/event.proto).
type tensorBoard struct {
	run  Run
	file *os.File
}

// NewTensorBoard returns the tracker of report_to: tensorboard.
func NewTensorBoard(r Run) (Tracker, error) { return &tensorBoard{run: r}, nil }

func (t *tensorBoard) Send(_ context.Context, events []Event) (int, error) {
	var b []byte
	if t.file == nil {
		if err := t.open(events[0].Time); err != nil {
			return 0, &Permanent{err}
		}
		b = t.head(events[0].Time)
	}
	for _, e := range events {
		if m := eventMessage(e); m != nil {
			b = appendRecord(b, m)
		}
	}
	if _, err := t.file.Write(b); err != nil {
		return 0, &Permanent{fmt.Errorf("write the event file: %w", err)} // the file may end with an incomplete record
	}
	return len(events), nil
}

// open creates a new file. TensorBoard reads all files of a folder in the order of their names.
func (t *tensorBoard) open(at time.Time) error {
	dir := filepath.Join(t.run.Dir, TensorBoardDir)
	err := os.MkdirAll(dir, 0o755)
	for n := 0; err == nil && n < 1000; n++ {
		name := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.tierlora.%03d", at.Unix(), n))
		if t.file, err = atomicfile.Create(name, 0o644); err == nil {
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = fmt.Errorf("1000 files of one second are in it")
	}
	return fmt.Errorf("make an event file in %s: %w", dir, err)
}

// head returns the beginning of a file: the version, the step at which the run resumes, and its configuration as text.
func (t *tensorBoard) head(at time.Time) []byte {
	version := stamp(at, 0)
	version.text(3, "brain.Event:2")
	b := appendRecord(nil, version)
	if t.run.Done > 0 { // TensorBoard drops later steps, and this one, from older files
		var session message
		session.number(1, 1) // SessionLog.START
		start := stamp(at, t.run.Done+1)
		start.bytes(7, session)
		b = appendRecord(b, start)
	}
	if t.run.Text != "" {
		config := stamp(at, t.run.Done)
		config.bytes(5, textSummary("config", "    "+strings.ReplaceAll(strings.TrimRight(t.run.Text, "\n"), "\n",
			"\n    ")))
		b = appendRecord(b, config)
	}
	return b
}

// eventMessage returns an event as an Event message, nil if it has no numbers. The tags train/ and eval/ follow
// transformers.
func eventMessage(e Event) message {
	var summary message
	for _, m := range e.Metrics {
		var value message
		value.text(1, tag(m.Name))
		value.float(2, float32(m.Value))
		summary.bytes(1, value)
	}
	if summary == nil {
		return nil
	}
	event := stamp(e.Time, e.Step)
	event.bytes(5, summary)
	return event
}

// tag returns a number's name as transformers uses it in trackers.
func tag(name string) string {
	if name, ok := strings.CutPrefix(name, "eval_"); ok {
		return "eval/" + name
	}
	return "train/" + name
}

// textSummary returns a Summary for TensorBoard's text plugin: a string tensor with one element.
func textSummary(tag, text string) message {
	var plugin, metadata, dim, shape, tensor, value, summary message
	plugin.text(1, "text")
	metadata.bytes(1, plugin)
	metadata.number(4, 2) // DATA_CLASS_TENSOR
	dim.number(1, 1)
	shape.bytes(2, dim)
	tensor.number(1, 7) // DT_STRING
	tensor.bytes(2, shape)
	tensor.text(8, text)
	value.text(1, tag+"/text_summary")
	value.bytes(8, tensor)
	value.bytes(9, metadata)
	summary.bytes(1, value)
	return summary
}

func stamp(at time.Time, step int) message {
	var m message
	m.double(1, float64(at.UnixMicro())/1e6)
	if step != 0 {
		m.number(2, uint64(step))
	}
	return m
}

func (t *tensorBoard) Close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// message is an encoded protocol buffer.
type message []byte

func (m *message) key(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

func (m *message) number(field int, x uint64) {
	m.key(field, 0)
	*m = binary.AppendUvarint(*m, x)
}

func (m *message) double(field int, x float64) {
	m.key(field, 1)
	*m = binary.LittleEndian.AppendUint64(*m, math.Float64bits(x))
}

func (m *message) float(field int, x float32) {
	m.key(field, 5)
	*m = binary.LittleEndian.AppendUint32(*m, math.Float32bits(x))
}

func (m *message) bytes(field int, x []byte) {
	m.key(field, 2)
	*m = append(binary.AppendUvarint(*m, uint64(len(x))), x...)
}

func (m *message) text(field int, x string) { m.bytes(field, []byte(strings.ToValidUTF8(x, "?"))) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC returns TFRecord's checksum: a CRC-32C, rotated and with a constant added, so that the CRC of data that
// contains CRCs differs from them.
func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord frames data as a TFRecord: length, its checksum, data, its checksum.
func appendRecord(b, data []byte) []byte {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(append(b, head[:]...), maskedCRC(head[:]))
	return binary.LittleEndian.AppendUint32(append(b, data...), maskedCRC(data))
}
