package golden

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// Idefics3 is the folder of a small model of images and text, which make_image_models.py made.
// Its weights are drawn again.
func Idefics3(t testing.TB) string { return drawnModel(t, "idefics3/model") }

// Qwen3VL is the same of Qwen3-VL.
func Qwen3VL(t testing.TB) string { return drawnModel(t, "qwen3_vl_images/model") }

// Qwen25VL is the same of Qwen2.5-VL.
func Qwen25VL(t testing.TB) string { return drawnModel(t, "qwen2_5_vl_images/model") }

// Gemma3Images is the same of Gemma 3.
func Gemma3Images(t testing.TB) string { return drawnModel(t, "gemma3_images/model") }

// Mistral3Images is the same of Mistral 3.
func Mistral3Images(t testing.TB) string { return drawnModel(t, "mistral3_images/model") }

func drawnModel(t testing.TB, folder string) string {
	t.Helper()
	dir, from := t.TempDir(), Path(t, folder)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	var shapes map[string][]int
	JSON(t, filepath.Join(dir, "tensors.json"), &shapes)
	var tensors []weights.Tensor
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		var data []byte
		for _, x := range Drawn(name, shapes[name]) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		tensors = append(tensors, weights.Tensor{Name: name, DType: weights.F32, Shape: shapes[name], Data: data})
	}
	to, meta := filepath.Join(dir, "model.safetensors"), map[string]string{"format": "pt"}
	if err := weights.Write(to, tensors, meta); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "tensors.json")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Drawn are the numbers of a tensor of the model, as make_image_models.py draws them from its name.
func Drawn(name string, shape []int) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	state, n := h.Sum64(), 1
	for _, d := range shape {
		n *= d
	}
	out := make([]float32, n)
	for i := range out {
		x := state + uint64(i+1)*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		u := float64((x^x>>31)>>40)/(1<<24) - 0.5
		switch {
		case len(shape) == 1:
			u *= 0.5
			if strings.Contains(name, "norm") && strings.HasSuffix(name, "weight") {
				u++
			}
		case strings.Contains(name, "embed") && !strings.Contains(name, "patch"):
			u *= 2
		default:
			u = 4 * u / math.Sqrt(float64(n/shape[0]))
		}
		out[i] = float32(u)
	}
	return out
}
