package train

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/weights"
)

// ConfigFile is the effective configuration in a run's output folder; it runs again to the same adapter.
const ConfigFile = "config.yaml"

// optimizerFile holds the optimizer's moments in a checkpoint.
const optimizerFile = "optimizer.safetensors"

// batchMemory is where the host writes a micro-batch.
type batchMemory struct {
	store                      graph.Store
	names                      []string
	ids, labels, positions, cu []int32
	scale, hyper               []float32
	counter                    []int32 // nil without dropout
}

func bindBatch(m graph.Store, prefix string) (batchMemory, error) {
	b := batchMemory{store: m}
	for _, x := range []struct {
		name string
		dst  *[]int32
	}{{"input_ids", &b.ids}, {"labels", &b.labels}, {"positions", &b.positions}, {"cu_seqlens", &b.cu}} {
		t, err := m.Tensor(prefix + x.name)
		if err != nil {
			return b, err
		}
		*x.dst = t.I32()
		b.names = append(b.names, prefix+x.name)
	}
	t, err := m.Tensor(prefix + "loss scale")
	if err != nil {
		return b, err
	}
	b.scale = t.F32()
	b.names = append(b.names, prefix+"loss scale")
	if t, err := m.Tensor("optimizer"); err == nil {
		b.hyper = t.F32()
		b.names = append(b.names, "optimizer")
	}
	if t, err := m.Tensor(adapter.DropoutCounter); err == nil {
		b.counter = t.I32()
		b.names = append(b.names, adapter.DropoutCounter)
	}
	return b, nil
}

// put sends what was written to the machine.
func (m *batchMemory) put() error { return m.store.Put(m.names...) }

// evaluate runs the forward pass over what was written and returns the sum of negative log-likelihoods.
func (m *batchMemory) evaluate(run graph.Runner, e *evalStep) (float64, error) {
	if err := m.put(); err != nil {
		return 0, err
	}
	if err := run.Run(segmentEval); err != nil {
		return 0, err
	}
	t, err := run.Read(e.nll)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, x := range t.F32() {
		sum += float64(x)
	}
	return sum, nil
}

// fill writes a micro-batch and returns how many places are trained.
func (m *batchMemory) fill(b dataset.Batch) int {
	copy(m.ids, b.IDs)
	copy(m.positions, b.Positions)
	copy(m.cu, b.CuSeqlens)
	return shiftLabels(m.labels, b.Labels, b.CuSeqlens)
}

// setCounter makes dropout masks a function of seed, step and micro-batch.
func (m *batchMemory) setCounter(seed uint64, step, micro int) {
	if m.counter != nil {
		h := splitmix(seed<<20 ^ uint64(micro))
		m.counter[0], m.counter[1] = int32(h), int32(step)
	}
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// initAdapter starts the adapter from the seed, or from the folder that lora.init_from names.
func (r *running) initAdapter() error {
	if err := r.startScaling(); err != nil {
		return err
	}
	params, err := r.step.trained.Snapshot(r.memory)
	if err != nil {
		return err
	}
	if dir := r.spec.LoRA.InitFrom; dir != "" {
		saved, err := adapter.Open(dir)
		if err != nil {
			return fmt.Errorf("lora.init_from: %w", err)
		}
		defer saved.Close() //nolint:errcheck // read only
		if err := r.sameScale(saved); err != nil {
			return fmt.Errorf("lora.init_from: %s: %w", dir, err)
		}
		if err := saved.Read(params); err != nil {
			return fmt.Errorf("lora.init_from: %w", err)
		}
		return r.step.trained.Restore(r.memory, params)
	}
	r.net.Method.Start(r.spec.Seed, params)
	return r.step.trained.Restore(r.memory, params)
}

// sameScale refuses an adapter whose update this run would scale otherwise.
func (r *running) sameScale(saved *adapter.Saved) error {
	for _, layer := range r.step.trained.Layers {
		if was, is := saved.Config.Scale(layer), r.spec.LoRA.Scale(layer); was != is {
			return fmt.Errorf("the adapter has the scale %v at %s, this run has %v: give the run the adapter's r, alpha and use_rslora", was, layer, is)
		}
	}
	return nil
}

// adapterFiles are the adapter folder: PEFT's two files, and the tokenizer's.
func (r *running) adapterFiles() (map[string][]byte, error) {
	params, err := r.step.trained.Snapshot(r.memory)
	if err != nil {
		return nil, err
	}
	files, err := r.net.Method.Encode(r.spec.LoRA, r.base.name, r.step.trained.Layers, params)
	if err != nil {
		return nil, err
	}
	for name, data := range r.base.tokenizer.Files() {
		files[name] = data
	}
	return files, nil
}

func (r *running) save() error { return r.saveAt(r.loader.State()) }

// saveAt writes a checkpoint whose next batch is the one at data.
func (r *running) saveAt(data dataset.State) error {
	step := r.state.GlobalStep
	if r.saved == step {
		return nil
	}
	files, err := r.adapterFiles()
	if err != nil {
		return err
	}
	if files[optimizerFile], err = r.optimizerBytes(); err != nil {
		return err
	}
	if r.state.Cursor, err = r.cursorBytes(data); err != nil {
		return fmt.Errorf("save step %d: %w", step, err)
	}
	r.state.MaxSteps, r.state.LogHistory = r.total, r.metrics.History()
	if files[StateFile], err = r.state.Bytes(); err != nil {
		return err
	}
	if r.env.Config != nil {
		files[ConfigFile] = r.env.Config
	}
	if err := SaveCheckpoint(r.spec.OutputDir, step, files); err != nil {
		return err
	}
	r.saved = step
	r.result.Checkpoint = filepath.Join(r.spec.OutputDir, CheckpointName(step))
	return Prune(r.spec.OutputDir, r.spec.Training.SaveTotalLimit, r.state.BestModelCheckpoint)
}

func (r *running) optimizerBytes() ([]byte, error) {
	if err := r.memory.Get(r.step.optimizerStates()...); err != nil {
		return nil, err
	}
	var tensors []weights.Tensor
	for _, name := range r.step.optimizerStates() {
		x, err := r.memory.Tensor(name)
		if err != nil {
			return nil, err
		}
		t, err := weights.FromFloat32s(name, weights.F32, x.Shape, x.F32())
		if err != nil {
			return nil, fmt.Errorf("save the optimizer: %w", err)
		}
		tensors = append(tensors, t)
	}
	return weights.Encode(tensors, nil)
}

// resumeFrom finds the checkpoint to go on from, "" for a new run. A run that is there already is never
// overwritten unasked.
func resumeFrom(resume, dir string, env Env) (string, error) {
	switch resume {
	case "auto":
		path, damaged, err := Latest(dir)
		for _, d := range damaged {
			env.log("passed over: %v", d)
		}
		if err == nil && path == "" && len(damaged) > 0 {
			return "", fmt.Errorf("resume %s: no checkpoint is whole", dir)
		}
		if err == nil && path == "" && exists(dir, adapter.WeightsFile) {
			err = fmt.Errorf("output_dir %s holds a run already (%s) but no checkpoint to go on from: choose another output_dir", dir, adapter.WeightsFile)
		}
		return path, err
	case "":
		return "", refuseRun(dir)
	}
	if !sameFolder(filepath.Dir(filepath.Clean(resume)), dir) {
		return resume, refuseRun(dir)
	}
	return resume, refuseOlder(resume, dir)
}

// refuseOlder is an error where a folder holds checkpoints newer than the one to go on from: they would be
// taken for this run's.
func refuseOlder(resume, dir string) error {
	steps, err := Checkpoints(dir)
	if err != nil || len(steps) == 0 {
		return err
	}
	if !exists(resume, "") {
		return nil // reading it says so
	}
	if newest := CheckpointName(steps[len(steps)-1]); newest != filepath.Base(filepath.Clean(resume)) {
		return fmt.Errorf("resume from %s: %s is newer and would be taken for this run's: move it away, or choose another output_dir", resume, filepath.Join(dir, newest))
	}
	return nil
}

// refuseRun is an error where a folder holds a run.
func refuseRun(dir string) error {
	for _, name := range []string{adapter.WeightsFile, MetricsFile} {
		if exists(dir, name) {
			return fmt.Errorf("output_dir %s holds a run already (%s): set training.resume to auto to go on with it, or choose another output_dir", dir, name)
		}
	}
	steps, err := Checkpoints(dir)
	if err == nil && len(steps) > 0 {
		err = fmt.Errorf("output_dir %s holds checkpoints of a run: set training.resume to auto to go on with it, or choose another output_dir", dir)
	}
	return err
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// restore puts a checkpoint's state into memory.
func (r *running) restore(path string) error {
	fail := func(err error) error { return fmt.Errorf("resume from %s: %w", path, err) }
	files, state, err := LoadCheckpoint(path)
	if err != nil {
		return fail(err)
	}
	if state.GlobalStep > r.total {
		return fail(fmt.Errorf("it is at step %d, the run has %d", state.GlobalStep, r.total))
	}
	var c cursor
	if err := json.Unmarshal(state.Cursor, &c); err != nil {
		return fail(fmt.Errorf("data cursor: %w", err))
	}
	if c.Base != r.base.fingerprint() {
		return fail(fmt.Errorf("it was trained on other base weights than those of %s", r.base.name))
	}
	if err := r.loader.Restore(c.Data); err != nil {
		return fail(err)
	}
	saved, err := adapter.Decode(files[adapter.ConfigFile], files[adapter.WeightsFile])
	if err != nil {
		return fail(err)
	}
	if err := r.sameScale(saved); err != nil {
		return fail(err)
	}
	params, err := r.step.trained.Snapshot(r.memory)
	if err != nil {
		return fail(err)
	}
	if err := saved.Read(params); err != nil {
		return fail(err)
	}
	if err := r.step.trained.Restore(r.memory, params); err != nil {
		return fail(err)
	}
	f, err := weights.Decode(files[optimizerFile])
	if err != nil {
		return fail(err)
	}
	if err := r.startScaling(); err != nil {
		return fail(err)
	}
	for _, name := range r.step.optimizerStates() {
		dst, err := r.memory.Tensor(name)
		if err != nil {
			return fail(err)
		}
		t, ok := f.Tensor(name)
		if !ok && name == nameScaling {
			r.env.log("%s was saved by a run without loss scaling: it begins at %v", path, r.scale)
			continue
		}
		if !ok || t.Len() != dst.Elems() {
			return fail(fmt.Errorf("%s: %s does not fit this run's adapter", optimizerFile, name))
		}
		if err := weights.Float32s(t, dst.F32()); err != nil {
			return fail(err)
		}
	}
	if err := r.memory.Put(r.step.optimizerStates()...); err != nil {
		return fail(err)
	}
	if err := r.readScale(); err != nil {
		return fail(err)
	}
	r.state, r.progress, r.saved = state, c, state.GlobalStep
	r.result.Checkpoint = path
	r.env.log("resumed from %s after step %d", path, state.GlobalStep)
	return nil
}

// writeManifest records what made the adapter.
func (r *running) writeManifest(ctx context.Context) error {
	m := NewManifest(r.env.Version, r.env.Config, r.spec.Seed)
	m.Device, m.Precision, m.Data, m.Steps = r.on.Name(), r.on.Precision().String(), r.loader.State().Data, r.state.GlobalStep
	m.SetLosses(r.progress.Losses)
	var err error
	if m.Base, err = r.base.digest(ctx, r.on.Workers()); err != nil {
		return err
	}
	return m.Write(r.spec.OutputDir)
}
