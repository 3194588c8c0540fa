package adapter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

const suffixMagnitude = ".lora_magnitude_vector"

// withMagnitude is LoRA with a further tensor for each layer, the norms of the base weight's rows as the network computes
// with it. Its update is theirs: it takes no part in the layer.
func withMagnitude() Method {
	m := Methods["lora"]
	wrap, start := m.Wrap, m.Init
	m.Wrap = func(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
		_, out := base.Size()
		l := wrap(t, c, n, path, base)
		t.param(n, path+suffixMagnitude, out)
		return l
	}
	m.Init = func(c Config, f Fresh) error {
		i := slices.IndexFunc(f.Tensors, func(p Param) bool { return strings.HasSuffix(p.Name, suffixMagnitude) })
		w, err := f.ComputedWeight()
		if err != nil {
			return err
		}
		for o := range f.Tensors[i].Data {
			for _, x := range w.data[o*w.cols : (o+1)*w.cols] {
				f.Tensors[i].Data[o] += x * x
			}
		}
		f.Tensors = slices.Delete(slices.Clone(f.Tensors), i, i+1)
		return start(c, f)
	}
	m.Rebase = nil
	m.Merge = func(_ Config, _ string, own []Param) (Merger, error) {
		if len(own) != 3 {
			return nil, fmt.Errorf("%d tensors", len(own))
		}
		return func(rows []float32, from int) {
			for i := range rows {
				rows[i] += own[2].Data[from]
			}
		}, nil
	}
	return m
}

// countingUp is a checkpoint whose tensors count up.
type countingUp struct{}

func (countingUp) Float32s(_ string, from int, dst []float32) error {
	for i := range dst {
		dst[i] = float32(from + i)
	}
	return nil
}

// TestMethodWithFurtherTensors: a method's layers may have other tensors than LoRA's, which start from the base weight, are saved
// and read by their names, and come to the method's merge.
func TestMethodWithFurtherTensors(t *testing.T) {
	m, c := withMagnitude(), Default()
	c.R, c.TargetModules = 2, Targets{"q_proj"}
	trained := &Trained{}
	n := nn.New(nn.Options{Wrap: m.Wrapper(trained, c)})
	n.Linear("q_proj", 3, 2, false).Apply(n.Batch("x", kernel.T(kernel.F32, 1, 3)))
	if err := n.Err(); err != nil {
		t.Fatal(err)
	}
	params := trained.List()
	if err := NewStart(m, c, 7).Fill(n, countingUp{}, trained, params); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(params[2].Name, params[2].Data); got != "q_proj.lora_magnitude_vector[5 50]" {
		t.Errorf("the further tensor is %s", got)
	}
	if slices.Max(params[0].Data) == 0 || slices.Max(params[1].Data) != 0 {
		t.Error("A and B do not start as LoRA's")
	}
	files, err := m.Encode(c, "base", trained.Layers, params)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := Decode(files[ConfigFile], files[WeightsFile])
	if err != nil {
		t.Fatal(err)
	}
	read := trained.List()
	if err := saved.Read(read); err != nil || !slices.Equal(read[2].Data, params[2].Data) {
		t.Errorf("read %v, %v", read[2].Data, err)
	}
	all, err := m.Mergers(c, trained.Layers, nil, read)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 3)
	if all["q_proj"](row, 1); fmt.Sprint(row) != "[50 50 50]" {
		t.Errorf("merged %v", row)
	}
	if _, err := Methods["lora"].Mergers(c, trained.Layers, nil, read); err == nil || !strings.Contains(err.Error(), "tensor q_proj.lora_magnitude_vector can't be merged") {
		t.Errorf("LoRA takes a further tensor: %v", err)
	}
}
