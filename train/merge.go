package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/weights"
)

// MergeReport is what Merge wrote.
type MergeReport struct {
	Model  string `json:"model"`
	Output string `json:"output"`
	Layers int    `json:"layers"` // that the adapter changed
	Bytes  int64  `json:"bytes"`  // of the tensors
}

// Merge writes a model folder whose weights hold the adapter, rounded through float32 to the type that the base has. The folder must not hold a model already.
func Merge(ctx context.Context, modelDir, adapterDir, outDir string, env Env) (report MergeReport, err error) {
	for _, name := range []string{weights.SingleFile, weights.IndexFile, "config.json", adapter.ConfigFile} { // beside an adapter, readers would apply it again
		if _, err := os.Stat(filepath.Join(outDir, name)); err == nil {
			return report, fmt.Errorf("merge into %s: it holds %s already; name another folder", outDir, name)
		}
	}
	if adapterDir == "" {
		return report, errors.New("merge: name an adapter folder")
	}
	b, err := openBase(ctx, modelDir, env)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	updates, err := readUpdates(b, adapterDir)
	if err != nil {
		return report, err
	}
	var tensors []weights.Tensor
	for _, name := range b.weights.Names() {
		t, _ := b.weights.Tensor(name)
		tensors = append(tensors, t)
		report.Bytes += int64(len(t.Data))
	}
	if err := copyModelFiles(ctx, b, modelDir, outDir, env); err != nil {
		return report, fmt.Errorf("merge into %s: %w", outDir, err)
	}
	cpu := kernel.NewCPU(env.Workers)
	err = weights.WriteEach(filepath.Join(outDir, weights.SingleFile), tensors, map[string]string{"format": "pt"}, func(t weights.Tensor) ([]byte, error) {
		u, ok := updates[strings.TrimSuffix(t.Name, ".weight")]
		if !ok {
			return t.Data, ctx.Err()
		}
		data, err := mergeInto(t, u, cpu)
		return data.Data, errors.Join(err, ctx.Err())
	})
	if err != nil {
		return report, fmt.Errorf("merge into %s: %w", outDir, err)
	}
	report.Model, report.Output, report.Layers = modelDir, outDir, len(updates)
	return report, nil
}

// readUpdates reads an adapter's updates by layer and checks that each has its weight in the base.
func readUpdates(b *base, adapterDir string) (map[string]adapter.Merger, error) {
	nw, err := networkOf(Spec{}, b)
	if err != nil {
		return nil, err
	}
	saved, err := nw.withAdapter(adapterDir)
	if err != nil {
		return nil, err
	}
	defer saved.Close()                                           //nolint:errcheck // read only
	step, err := newEvalStep(nw, shape{1, 1, 1}, graph.NewCPU(1)) // only for the adapter's layers and shapes
	if err != nil {
		return nil, err
	}
	if err := b.check(step.net); err != nil {
		return nil, err
	}
	var params []adapter.Param
	for _, v := range step.trained.Params {
		params = append(params, adapter.Param{Name: v.Name, Shape: v.Type.Shape, Data: make([]float32, v.Type.Elems())})
	}
	if err := saved.Read(params); err != nil {
		return nil, err
	}
	updates, err := saved.Method.Mergers(saved.Config, step.trained.Layers, params)
	if err != nil {
		return nil, fmt.Errorf("merge %s: %w", adapterDir, err)
	}
	for layer := range updates {
		if _, ok := b.weights.Tensor(layer + ".weight"); !ok {
			return nil, fmt.Errorf("merge %s: the model has no tensor %s.weight", adapterDir, layer)
		}
	}
	return updates, nil
}

// mergeInto is a layer's weight [out,in] with its update.
func mergeInto(t weights.Tensor, update adapter.Merger, cpu *kernel.CPU) (weights.Tensor, error) {
	w := make([]float32, t.Len())
	if err := weights.Float32s(t, w); err != nil {
		return t, err
	}
	cpu.Range(t.Shape[0], 16, func(from, to int) { update(w, from, to) })()
	return weights.FromFloat32s(t.Name, t.DType, t.Shape, w)
}

// copyModelFiles writes what a model folder holds besides its weights.
func copyModelFiles(ctx context.Context, b *base, modelDir, outDir string, env Env) error {
	files := b.tokenizer.Files()
	var fsys fs.FS
	if short, ok := strings.CutPrefix(modelDir, EmbeddedPrefix); ok {
		embedded, err := env.Model(short)
		if err != nil {
			return err
		}
		fsys = embedded
	} else {
		dir, err := hub.Resolve(ctx, modelDir, env.Hub)
		if err != nil {
			return err
		}
		fsys = os.DirFS(dir)
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		data, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) && name != "config.json" {
			continue
		}
		if err != nil {
			return err
		}
		files[name] = data
	}
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := writeFileAtomically(filepath.Join(outDir, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}
