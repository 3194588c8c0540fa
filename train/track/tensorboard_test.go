package track

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// written is what the tracker writes of a run that goes on after step 300.
func written(t *testing.T) (dir string, data []byte) {
	t.Helper()
	dir = t.TempDir()
	tb, err := NewTensorBoard(Run{Dir: dir, Done: 300, Text: "seed: 42\ndevice: cpu\n"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 250e6)
	for _, e := range []Event{
		{Kind: KindStart, Time: at, Step: 300},
		{Kind: KindStep, Time: at.Add(1250 * time.Millisecond), Step: 301, Metrics: Metrics{{"loss", 2.5}, {"learning_rate", 1e-4}}},
		{Kind: KindEval, Time: at.Add(1750 * time.Millisecond), Step: 301, Metrics: Metrics{{"eval_loss", math.NaN()}}},
	} {
		if n, err := tb.Send(t.Context(), []Event{e}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	data, err = os.ReadFile(filepath.Join(dir, TensorBoardDir, "events.out.tfevents.1700000000.tierlora.000"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, data
}

// TestEventFileEqualsTensorBoards: record by record the bytes that TensorBoard's own writer makes of the same events.
func TestEventFileEqualsTensorBoards(t *testing.T) {
	want, err := os.ReadFile("testdata/tensorboard.tfevents")
	if err != nil {
		t.Fatal(err)
	}
	_, got := written(t)
	a, b := records(t, got), records(t, want)
	if len(a) != len(b) {
		t.Fatalf("%d records, want %d", len(a), len(b))
	}
	for i := range b {
		if !bytes.Equal(a[i], b[i]) {
			t.Errorf("record %d:\ngot  %x\nwant %x", i, a[i], b[i])
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("the frames differ")
	}
}

// records reads TFRecords and checks their checksums.
func records(t *testing.T, data []byte) (all [][]byte) {
	t.Helper()
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		body := data[12 : 12+n]
		if binary.LittleEndian.Uint32(data[8:]) != maskedCRC(data[:8]) || binary.LittleEndian.Uint32(data[12+n:]) != maskedCRC(body) {
			t.Fatal("a checksum differs")
		}
		all, data = append(all, body), data[16+n:]
	}
	return all
}

const readByTensorBoard = `
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
for tag in ("train/loss", "train/learning_rate", "eval/loss"):
    print(tag, [(e.step, round(e.value, 8)) for e in a.Scalars(tag)])
print(a.Tensors("config/text_summary")[0].tensor_proto.string_val[0])
`

// TestTensorBoardReads: TensorBoard's own reader, where TRAINER_PYTHON is a Python that has it.
func TestTensorBoardReads(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import tensorboard").Run() != nil {
		t.Skipf("%s has no tensorboard", python)
	}
	dir, _ := written(t)
	out, err := exec.Command(python, "-c", readByTensorBoard, filepath.Join(dir, TensorBoardDir)).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "train/loss [(301, 2.5)]\ntrain/learning_rate [(301, 0.0001)]\neval/loss [(301, nan)]\nb'    seed: 42\\n    device: cpu'"
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
