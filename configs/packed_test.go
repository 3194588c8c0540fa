package configs

import (
	"errors"
	"io"
	"io/fs"
	"testing"
)

// TestPackedAsset checks that a packed asset is read under its name like a file that is not packed: twice, at any place,
// with the size of its text.
func TestPackedAsset(t *testing.T) {
	const name = "gsm8k_300.jsonl"
	data, err := Data(name)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := fs.ReadFile(data, name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := data.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(whole)) || info.Name() != name || !info.Mode().IsRegular() {
		t.Errorf("%+v %v, want %d bytes", info, err, len(whole))
	}
	part := make([]byte, 10)
	if _, err := f.(io.ReaderAt).ReadAt(part, 100); err != nil || string(part) != string(whole[100:110]) {
		t.Errorf("%q %v, want %q", part, err, whole[100:110])
	}
	if _, err := data.Open("none.jsonl"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
