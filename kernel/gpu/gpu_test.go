package gpu

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckDriver(t *testing.T) {
	for _, c := range []struct {
		driver, sm int
		want       []string // parts of the error; none = accepted
	}{
		{12000, 80, nil},
		{13000, 90, nil},
		{12080, 120, nil},
		{11080, 80, []string{"11.8", "12.9", "12.0", "525.60", "update the driver"}},
		{12060, 120, []string{"12.6", "12.9", "12.8", "570"}},
		{12060, 100, []string{"12.6", "12.8"}},
		{13000, 75, []string{"7.5", "8.0"}},
	} {
		err := CheckDriver(c.driver, c.sm)
		if (err == nil) != (c.want == nil) {
			t.Errorf("driver %d, sm %d: %v", c.driver, c.sm, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("driver %d, sm %d: %q lacks %q", c.driver, c.sm, err, w)
			}
		}
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{What: "rmsnorm_forward", Call: "cuLaunchKernel", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	want := "rmsnorm_forward: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel accessed memory out of " +
		"bounds; the device context is lost, restart the program"
	if e.Error() != want {
		t.Errorf("got  %s\nwant %s", e, want)
	}
	if !errors.Is(e, ErrDevice) || !errors.Is(e, ErrLost) || errors.Is(e, ErrOutOfMemory) ||
		errors.Is(e, ErrUnsupported) || !e.Sticky() || e.OutOfMemory() {
		t.Error("an illegal address ends the context and is no lack of memory")
	}
	e = &Error{What: "allocate", Call: "cuMemAlloc", Code: 2}
	if errors.Is(e, ErrLost) || !errors.Is(e, ErrOutOfMemory) || e.Sticky() || !e.OutOfMemory() {
		t.Error("a lack of memory does not end the context")
	}
	if e.Code = codeNoBinary; !errors.Is(e, ErrUnsupported) || errors.Is(e, ErrOutOfMemory) {
		t.Error("a kernel without code for the device is not supported")
	}
}

func TestPack(t *testing.T) {
	var m TensorMap
	m[0], m[127] = 7, 9
	buf := make([]byte, 512)
	off, err := pack("k", buf, nil, []any{int32(-2), Ptr(0x1122334455667788), float32(1.5), int64(-3), m, uint32(5)})
	if err != nil {
		t.Fatal(err)
	}
	want := []int{0, 8, 16, 24, 64, 192} // as a C struct of the same types lies
	for i := range want {
		if off[i] != want[i] {
			t.Fatalf("offsets %v, want %v", off, want)
		}
	}
	if int32(binary.LittleEndian.Uint32(buf[0:])) != -2 || binary.LittleEndian.Uint64(buf[8:]) != 0x1122334455667788 ||
		math.Float32frombits(binary.LittleEndian.Uint32(buf[16:])) != 1.5 ||
		int64(binary.LittleEndian.Uint64(buf[24:])) != -3 ||
		buf[64] != 7 || buf[191] != 9 || binary.LittleEndian.Uint32(buf[192:]) != 5 {
		t.Errorf("packed bytes are wrong: %v", buf)
	}
}

func TestPackRefuses(t *testing.T) {
	buf := make([]byte, 4096)
	for _, c := range []struct {
		params []Param
		args   []any
		want   string
	}{
		{nil, []any{1}, "rope_apply: argument 0: int is not a kernel argument; use gpu.Ptr, int32, uint32, int64, " +
			"float32 or gpu.TensorMap"},
		{nil, []any{Ptr(0), 1.0}, "rope_apply: argument 1: float64 is not a kernel argument"},
		{[]Param{{0, 8}}, []any{Ptr(0), int32(1)}, "rope_apply: 2 arguments given, the kernel takes 1"},
		{[]Param{{0, 8}, {8, 8}}, []any{Ptr(0), int32(1)},
			"rope_apply: argument 1: a int32 has 4 bytes, the kernel takes 8"},
		{nil, make([]any, 49), "rope_apply: 49 arguments, at most 48 are supported"},
	} {
		_, err := pack("rope_apply", buf, c.params, c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestCheckGrid(t *testing.T) {
	for _, c := range []struct {
		grid, block [3]int
		shared      int
		want        string
	}{
		{[3]int{1, 1, 1}, [3]int{256, 1, 1}, 0, ""},
		{[3]int{0, 1, 1}, [3]int{256, 1, 1}, 0, "k: grid [0 1 1]: element 0 must be 1 to 2147483647"},
		{[3]int{1, 70000, 1}, [3]int{256, 1, 1}, 0, "k: grid [1 70000 1]: element 1 must be 1 to 65535"},
		{[3]int{1, 1, 1}, [3]int{1024, 1, 1}, 0, "k: block [1024 1 1] has 1024 threads, the kernel allows 512"},
		{[3]int{1, 1, 1}, [3]int{32, 1, 65}, 0, "k: block [32 1 65]: element 2 must be 1 to 64"},
		{[3]int{1, 1, 1}, [3]int{32, 1, 1}, -1, "k: -1 bytes of dynamic shared memory"},
	} {
		err := checkGrid("k", c.grid, c.block, c.shared, 512)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestAlgorithms(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenAlgorithms(dir, "NVIDIA H200", "12.9.1")
	if err != nil {
		t.Fatal(err)
	}
	g := Gemm{M: 512, N: 4096, K: 4096, TransB: true, Out: BF16, Alpha: 1}
	key := g.Key(1 << 20)
	if want := "512x4096x4096 NT ld 4096,4096,4096 bf16 beta false align 16 workspace 1048576"; key != want {
		t.Errorf("key %q, want %q", key, want)
	}
	algo := make([]byte, 64)
	algo[5] = 3
	a.set(key, algo)
	if err := a.Save(); err != nil {
		t.Fatal(err)
	}
	b, err := OpenAlgorithms(dir, "NVIDIA H200", "12.9.1")
	if err != nil || len(b.Choice[key]) != 64 || b.Choice[key][5] != 3 {
		t.Fatalf("read back: %v %v", b, err)
	}
	for _, other := range [][2]string{{"NVIDIA H100", "12.9.1"}, {"NVIDIA H200", "13.0.0"}} {
		if c, err := OpenAlgorithms(dir, other[0], other[1]); err != nil || len(c.Choice) != 0 {
			t.Errorf("%v took another's choices: %v %v", other, c, err)
		}
	}
	files, _ := filepath.Glob(dir + "/*")
	if len(files) != 1 {
		t.Errorf("files left: %v", files)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAlgorithms(dir, "NVIDIA H200", "12.9.1"); err == nil ||
		!strings.Contains(err.Error(), "delete the file to choose anew") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestGemmCheck(t *testing.T) {
	good := Gemm{M: 4, N: 8, K: 16, TransA: true, LDA: 4, Out: F32}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, g := range []Gemm{{M: 0, N: 1, K: 1}, {M: 4, N: 8, K: 16, LDA: 15},
		{M: 4, N: 8, K: 16, TransB: true, LDB: 8}, {M: 4, N: 8, K: 16, LDD: 7}, {M: 1, N: 1, K: 1, Out: 5}} {
		if g.check() == nil {
			t.Errorf("%+v was taken", g)
		}
	}
}
