package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func tensor(t *testing.T, name string, values ...float32) Tensor {
	t.Helper()
	made, err := FromFloat32s(name, F32, []int{len(values)}, values)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// sharded makes a folder of two shards (a, b and c) with the given index.
func sharded(t *testing.T, index string) string {
	t.Helper()
	dir := t.TempDir()
	for name, tensors := range map[string][]Tensor{
		"model-00001-of-00002.safetensors": {tensor(t, "a", 1), tensor(t, "b", 2, 3)},
		"model-00002-of-00002.safetensors": {tensor(t, "c", 4)},
	} {
		if err := Write(filepath.Join(dir, name), tensors, map[string]string{"format": "pt",
			"file": name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFile), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestShards(t *testing.T) {
	dir := sharded(t,
		`{"metadata":{"total_size":16},"weight_map":{"c":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors"}}`)
	for _, open := range []func() (*Set, error){
		func() (*Set, error) { return OpenDir(dir) },
		func() (*Set, error) { return OpenFS(os.DirFS(filepath.Dir(dir)), filepath.Base(dir)) },
	} {
		set, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if got := set.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("names %q", got)
		}
		var v [2]float32
		b, ok := set.Tensor("b")
		if err := Float32s(b, v[:]); err != nil || !ok || v != [2]float32{2, 3} {
			t.Errorf("b = %v (%v)", v, err)
		}
		if err := errors.Join(set.Close(), set.Close()); err != nil {
			t.Error(err)
		}
		if _, ok := set.Tensor("a"); ok {
			t.Error("a closed set still hands out views")
		}
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, SingleFile), []Tensor{tensor(t, "old.a", 1), tensor(t, "b", 2)},
		nil); err != nil {
		t.Fatal(err)
	}
	set, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if err := set.Rename(func(name string) string { return strings.TrimPrefix(name, "old.") }); err != nil {
		t.Fatal(err)
	}
	a, ok := set.Tensor("a")
	if _, old := set.Tensor("old.a"); !ok || old || a.Name != "old.a" ||
		!slices.Equal(set.Names(), []string{"a", "b"}) {
		t.Errorf("names %q, a is %q", set.Names(), a.Name)
	}
	const want = `open weights: "old.a" and "b" are both "c"`
	if err := set.Rename(func(string) string { return "c" }); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestBadIndex(t *testing.T) {
	const one, two = `"model-00001-of-00002.safetensors"`, `"model-00002-of-00002.safetensors"`
	escape := func(name string) string { return `{"weight_map":{"a":"` + name + `"}}` }
	for _, c := range []struct{ name, index, want string }{
		{"not JSON", `{`, "line 1, column 2: expected a key in double quotes, found the end of the text"},
		{"no map", `{"metadata":{}}`, "weight_map is missing or empty"},
		{"a list", `{"weight_map":[]}`, `weight_map: expected an object, found a list`},
		{"comma too many", "{\n \"weight_map\": {},\n}",
			"line 3, column 1: expected a key, found '}' after a comma: remove the comma"},
		{"number for a shard", `{"weight_map":{"a":1}}`, "expected a string, found 1"},
		{"tensor twice", `{"weight_map":{"a":` + one + `,"a":` + two + `}}`, `duplicate name "a"`},
		{"map twice", `{"weight_map":{},"weight_map":{}}`, `duplicate name "weight_map"`},
		{"parent folder", escape("../model.safetensors"), "not the plain name"},
		{"subfolder", escape("sub/model.safetensors"), "not the plain name"},
		{"absolute", escape("/etc/model.safetensors"), "not the plain name"},
		{"backslash", escape(`..\\model.safetensors`), "not the plain name"},
		{"drive", escape(`C:model.safetensors`), "not the plain name"},
		{"NUL", escape(`a\u0000.safetensors`), "not the plain name"},
		{"another type", escape("model.bin"), "not the plain name"},
		{"absent shards", `{"weight_map":{"a":` + one + `,"x":"model-9.safetensors","y":"model-8.safetensors"}}`,
			"lacks 2 of the 3 shards that model.safetensors.index.json names: model-8.safetensors, model-9.safetensors"},
		{"tensor not in its shard", `{"weight_map":{"a":` + one + `,"b":` + one + `,"c":` + two + `,"d":` + two +
			`,"e":` + one + `}}`,
			"model-00002-of-00002.safetensors lacks \"d\"\n  model-00001-of-00002.safetensors lacks \"e\""},
		{"tensor not in the index", `{"weight_map":{"a":` + one + `,"c":` + two + `}}`,
			`model-00001-of-00002.safetensors holds "b", which the index does not name`},
		{"tensor in the other shard", `{"weight_map":{"a":` + two + `,"b":` + one + `,"c":` + two + `}}`,
			`holds "a", which the index puts into model-00002-of-00002.safetensors`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharded(t, c.index)
			if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, expected %q and the folder", err, c.want)
			}
		})
	}
}

func TestNoWeights(t *testing.T) {
	if _, err := OpenDir(t.TempDir()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
		"has neither model.safetensors nor") {
		t.Errorf("an empty folder: %v", err)
	}
	bad := fstest.MapFS{"m/model.safetensors": {Data: []byte("short")}}
	if _, err := OpenFS(bad, "m"); err == nil || !strings.Contains(err.Error(),
		"m/model.safetensors: the file has 5 bytes") {
		t.Errorf("a short file: %v", err)
	}
}

// TestCheckErrorIsShort: of many names the first few are told.
func TestCheckErrorIsShort(t *testing.T) {
	e := &CheckError{Unexpected: []string{"u"}}
	for i := range 420 {
		e.Missing = append(e.Missing, fmt.Sprintf("m%03d", i))
	}
	const want = "the weights do not fit the model:\n  420 missing:\n    m000\n    m001\n    m002\n    m003\n    " +
		"m004\n    and 415 more\n  1 unexpected:\n    u"
	if got := e.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheck(t *testing.T) {
	data, err := Encode([]Tensor{tensor(t, "w", 1, 2), tensor(t, "bias", 1), tensor(t, "l.0.rotary_emb.inv_freq", 1),
		tensor(t, "vision.x", 1), tensor(t, "z", 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	all := []Spec{{"w", []int{2}, false}, {"bias", []int{1}, true}, {"other", []int{3}, true}, {"z", []int{1}, false}}
	if err := Check(f, all, "*.rotary_emb.inv_freq", "vision.*"); err != nil {
		t.Error(err)
	}
	err = Check(f, []Spec{{"w", []int{2, 1}, false}, {"y", nil, false}, {"bias", nil, true}, {"x", nil, false}}, "z")
	const want = `the weights do not fit the model:
  2 missing:
    x
    y
  2 unexpected:
    l.0.rotary_emb.inv_freq
    vision.x
  2 wrong shape:
    bias: shape [1], expected []
    w: shape [2], expected [2 1]`
	var list *CheckError
	if !errors.As(err, &list) || err.Error() != want {
		t.Errorf("error:\n%v\nexpected:\n%s", err, want)
	}
	if err := Check(f, []Spec{{"w", nil, false}, {"w", nil, false}}); err == nil || !strings.Contains(err.Error(),
		`"w" is expected twice`) {
		t.Errorf("a name expected twice: %v", err)
	}
}
