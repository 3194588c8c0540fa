package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestChoose(t *testing.T) {
	released := []Code{{SM: 80}, {SM: 89}, {SM: 90, Specific: true}, {SM: 100, Specific: true}, {SM: 120},
		{SM: 90, PTX: true}, {SM: 120, PTX: true}}
	for sm, want := range map[int]string{75: "", 80: "sm_80", 86: "sm_80", 87: "sm_80", 89: "sm_89", 90: "sm_90a",
		100: "sm_100a",
		103: "compute_90", 110: "compute_90", 120: "sm_120", 121: "sm_120", 130: "compute_120"} {
		c, ok := choose(released, sm)
		if got := fmt.Sprint(c); ok != (want != "") || ok && got != want {
			t.Errorf("on %d: %s, want %s", sm, got, want)
		}
	}
}

// image builds a fatbin of the given entries.
func image(entries ...[]byte) []byte {
	body := bytes.Join(entries, nil)
	b := binary.LittleEndian.AppendUint32(nil, 0xba55ed50)
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint16(b, 16)
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(body))), body...)
}

func entry(kind, sm, flags, payload int) []byte {
	b := make([]byte, 64+payload)
	binary.LittleEndian.PutUint16(b, uint16(kind))
	binary.LittleEndian.PutUint32(b[4:], 64)
	binary.LittleEndian.PutUint64(b[8:], uint64(payload))
	binary.LittleEndian.PutUint32(b[28:], uint32(sm))
	binary.LittleEndian.PutUint64(b[40:], uint64(flags))
	return b
}

func TestCodes(t *testing.T) {
	whole := image(entry(2, 80, 0x2011, 40), entry(2, 90, 0x102011, 8), entry(1, 90, 0x2011, 16), entry(9, 1, 0, 0))
	codes, err := Codes(whole)
	if err != nil || fmt.Sprint(codes) != "[sm_80 sm_90a compute_90]" {
		t.Errorf("%v, %v", codes, err)
	}
	for n := range whole {
		if _, err := Codes(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(whole))
		}
	}
	// What was compiled here lists the targets that it was asked for.
	files, _ := filepath.Glob(filepath.Join("build", "*.fatbin"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if codes, err := Codes(b); err != nil || len(codes) == 0 || codes[0].SM < 80 || codes[0].SM > 200 {
			t.Errorf("%s: %v, %v", f, codes, err)
		}
	}
	t.Logf("%d compiled files", len(files))
}

func FuzzCodes(f *testing.F) {
	f.Add(image(entry(2, 80, 0x2011, 40), entry(1, 90, 0, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		codes, err := Codes(b)
		if err == nil && len(codes)*48 > len(b) {
			t.Errorf("%d forms in %d bytes", len(codes), len(b))
		}
	})
}
