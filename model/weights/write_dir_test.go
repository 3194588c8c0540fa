package weights

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWriteDir stores a real model in shards of several sizes and reads it back.
func TestWriteDir(t *testing.T) {
	model, err := OpenDir(stories)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	var all, bare []Tensor
	for _, name := range model.Names() {
		x, _ := model.Tensor(name)
		all = append(all, x)
		bare = append(bare, Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape})
	}
	slices.Reverse(bare)
	for _, c := range []struct {
		limit  int64
		shards int
	}{{1 << 30, 1}, {1040128, 1}, {1040127, 2}, {300000, 4}, {1, 47}} {
		var dirs [2]string
		for i, tensors := range [][]Tensor{all, bare} {
			dirs[i] = t.TempDir()
			var data Data
			if i == 1 {
				data = func(x Tensor, w io.Writer) error {
					x, _ = model.Tensor(x.Name)
					_, err := w.Write(x.Data)
					return err
				}
			}
			if err := WriteDir(dirs[i], tensors, model.files[0].Metadata(), c.limit, data); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := os.ReadDir(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		shards := 0
		for _, e := range entries {
			a, errA := os.ReadFile(filepath.Join(dirs[0], e.Name()))
			b, errB := os.ReadFile(filepath.Join(dirs[1], e.Name()))
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%d bytes: %s differs by order or by source (%v, %v)", c.limit, e.Name(), errA, errB)
			}
			if strings.HasSuffix(e.Name(), ".safetensors") {
				shards++
			}
		}
		if shards != c.shards {
			t.Errorf("%d bytes: %d files, expected %d", c.limit, shards, c.shards)
		}
		set, err := OpenDir(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(set.Names(), model.Names()) || set.files[0].Metadata()["format"] != "pt" {
			t.Errorf("%d bytes: names or metadata differ", c.limit)
		}
		for _, x := range all {
			if got, _ := set.Tensor(x.Name); !bytes.Equal(got.Data, x.Data) {
				t.Errorf("%d bytes: %s differs", c.limit, x.Name)
			}
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		if err := WriteDir(dirs[0], all, nil, c.limit, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a folder with weights: %v", err)
		}
	}
}

func TestWriteDirRefuses(t *testing.T) {
	a := tensor(t, "a", 1)
	failing := func(Tensor, io.Writer) error { return errors.New("no data today") }
	short := func(_ Tensor, w io.Writer) error { _, err := w.Write(make([]byte, 3)); return err }
	for _, c := range []struct {
		tensors []Tensor
		data    Data
		want    string
	}{
		{[]Tensor{a, a}, nil, `duplicate tensor "a"`},
		{[]Tensor{{Name: "a", DType: F32, Shape: []int{-1}}}, nil, "overflows or is negative"},
		{[]Tensor{a}, failing, `tensor "a": no data today`},
		{[]Tensor{a}, short, `tensor "a": 3 bytes of data for F32 of shape [1]`},
	} {
		dir := t.TempDir()
		if err := WriteDir(dir, c.tensors, nil, 100, c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
			t.Errorf("%s: left in the folder: %v (%v)", c.want, list, err)
		}
	}
}
