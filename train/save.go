package train

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// saver writes a run's checkpoints and adapter, and loads a checkpoint back into memory.
type saver struct {
	*prepared
	memory   graph.Store
	step     *step.Step
	pipeline *step.Pipeline
	recorder *recorder
	saved    int // step of the newest checkpoint; -1 = none
	// reference is the SHA-256 of the adapter of the reference; "" = the reference is the base model, or there is none.
	reference string
}

// save writes a checkpoint of the last finished step; data is the place of the window after it.
func (s *saver) save(data Place) error {
	step := s.recorder.step()
	if s.saved == step {
		return nil
	}
	if err := s.pipeline.Average(); err != nil { // all ranks do, as they may hold slices of the average
		return err
	}
	if !s.env.team.leads() {
		// Only rank 0 writes it, and the others give it their slices.
		if len(s.step.Sharded) > 0 {
			if err := s.writeOptimizer(io.Discard); err != nil {
				return err
			}
		}
		s.saved, s.recorder.result.Checkpoint = step, filepath.Join(s.spec.OutputDir, checkpoint.Name(step))
		return nil
	}
	if err := s.env.team.failure(); err != nil {
		return err
	}
	defer graph.StartRange("checkpoint").End()
	s.at.enter(phaseSave)
	defer s.at.enter(phaseSteps)
	files, err := s.checkpointFiles(data)
	if err != nil {
		return fmt.Errorf("save step %d: %w", step, err)
	}
	streams := []checkpoint.Stream{{Name: optimizerFile, Bytes: s.stateBytes(), Write: s.writeOptimizer}}
	if s.whole() {
		folder, err := s.newWeightFiles(true)
		if err != nil {
			return fmt.Errorf("save step %d: %w", step, err)
		}
		streams = append(streams, s.streams(folder)...)
	}
	if err := s.at.check(); err != nil {
		return err
	}
	held := s.memory.Bytes().Total()
	session.FreeGarbage(held) // of the adapter's files
	err = checkpoint.Save(s.spec.OutputDir, step, files, streams...)
	clear(files)
	session.FreeGarbage(held)
	if err != nil {
		return err
	}
	s.saved = step
	s.recorder.result.Checkpoint = filepath.Join(s.spec.OutputDir, checkpoint.Name(step))
	s.at.saved(s.recorder.result.Checkpoint)
	if err := checkpoint.Prune(s.spec.OutputDir, s.spec.Training.SaveTotalLimit,
		s.recorder.state.BestModelCheckpoint); err != nil {
		return err
	}
	return s.recorder.observers.each(func(o Observer) error {
		return o.Save(SaveInfo{step,
			s.recorder.result.Checkpoint})
	})
}

// checkpointFiles returns the files of a checkpoint without the optimizer's states and without a whole model's weights:
// the adapter's, the run's state, its configuration.
func (s *saver) checkpointFiles(data Place) (map[string][]byte, error) {
	files, err := s.folderFiles()
	if err != nil {
		return nil, err
	}
	state, progress := s.recorder.state, s.recorder.progress
	progress.Data, progress.Base, progress.Run = data.State, s.Base.Fingerprint(), s.meaning()
	if state.Cursor, err = json.Marshal(progress); err != nil {
		return nil, err
	}
	state.MaxSteps = s.total
	if files[checkpoint.StateFile], err = state.Bytes(); err != nil {
		return nil, err
	}
	if s.env.Config != nil {
		files[ConfigFile] = s.env.Config
	}
	return files, nil
}

// folderFiles returns the files of the adapter's folder, or of a whole model's folder without the weights.
func (s *saver) folderFiles() (map[string][]byte, error) {
	if s.whole() {
		return s.modelFiles()
	}
	return s.adapterFiles()
}

// adapterFiles returns the files of the adapter folder: PEFT's two files, the tokenizer's, the chat template, the
// tokens that end an answer, and the prompt format of the rows.
func (s *saver) adapterFiles() (map[string][]byte, error) {
	if err := s.pipeline.Average(); err != nil {
		return nil, err
	}
	params, err := s.step.Trained.Snapshot(s.memory)
	if err != nil {
		return nil, err
	}
	// The newest update broke the tensor; no step has computed a loss with it yet.
	if name := firstBadParam(params); name != "" {
		return nil, fmt.Errorf("%w: the adapter itself is not, %s first, so nothing is written%s", ErrNotFinite,
			name, s.recorder.goBack())
	}
	own, _ := s.spec.AdapterConfig().ForPEFT(s.step.Trained, s.Net.Mixture())
	if own, params, err = s.Net.Start.Saved(own, s.step.Trained, params); err != nil {
		return nil, err
	}
	if s.Base.Config.TieEmbeddings {
		params = own.Saved().WithTiedHead(s.Base.Config.HeadName(), params)
	}
	files, err := s.Net.Method.Encode(own, s.Base.Name, s.step.Trained.Layers, params)
	if err != nil {
		return nil, err
	}
	beside, err := s.besideAdapter()
	for name, data := range beside {
		files[name] = data
	}
	return files, err
}

// vectorFiles returns the files of the finished folder by which sentence-transformers makes vectors of texts; none for
// another task.
func (p *prepared) vectorFiles() (map[string][]byte, error) {
	pooling, ok := objective.Pooling(p.spec.Objective())
	if !ok {
		return nil, nil
	}
	return pooling.Files(p.Base.Config.HiddenSize, p.spec.Dataset.MaxLength)
}

// ownFiles returns the names of the files that a run writes into its output folder.
func (p *prepared) ownFiles() []string {
	names := []string{MetricsFile, ConfigFile, replay.ManifestFile, DataReportFile, PlanReportFile, ReferenceCurveFile}
	if p.whole() {
		folder, _ := p.newWeightFiles(false) // saving reports the error
		names = append(append(names, folder.names()...), modelConfig)
	} else {
		names = append(names, adapter.ConfigFile, adapter.WeightsFile)
	}
	beside, _ := p.besideAdapter() // saving reports the error
	vectors, _ := p.vectorFiles()  // saving reports the error
	names = slices.Concat(names, slices.Collect(maps.Keys(beside)), slices.Collect(maps.Keys(vectors)))
	if p.spec.Training.RecordWindows {
		names = append(names, WindowsFile)
	}
	if p.spec.Training.GradNormSteps > 0 {
		names = append(names, GradNormsFile)
	}
	if len(p.spec.Training.SamplePrompts) > 0 {
		names = append(names, SamplesFile)
	}
	for _, name := range p.spec.Training.ReportTo {
		if w, ok := Observers[name](p.opened).(interface{ Files() []string }); ok {
			names = append(names, w.Files()...)
		}
	}
	return names
}
