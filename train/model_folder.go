package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// modelConfig is the name of a model's configuration in its folder.
const modelConfig = "config.json"

// shardSize is the most bytes of a file with weights, transformers' default.
const shardSize = 5_000_000_000

// whole reports whether the run trains the base model's own weights alone: it then writes a model's folder in place of
// an adapter's.
func (p *opened) whole() bool { return p.Net.Adapted && p.Net.Method.Whole() }

// weightFiles is the weights of a model as its folder has them. Some of them are trained.
type weightFiles struct {
	shards  []weights.Shard
	index   []byte               // the index file; nil = there is one shard
	trained map[string]*nn.Value // by names in the files
}

// floatTypes are the types in which trained weights are written.
var floatTypes = []weights.DType{weights.F32, weights.BF16, weights.F16, weights.F64}

// newWeightFiles lays out the files of the model that the run trains. Trained tensors have the base model's types, or
// F32 where exact: resuming reads them.
func (p *prepared) newWeightFiles(exact bool) (f weightFiles, err error) {
	f.trained = map[string]*nn.Value{}
	known := p.Base.Tensors()
	for _, v := range p.found.Step.train.Trained.Params {
		t, ok := known.Tensor(v.Name)
		if !ok {
			return f, fmt.Errorf("the base model has no tensor %s", v.Name)
		}
		if stored, ok := p.Base.Weights.Tensor(t.Name); !ok || !slices.Contains(floatTypes, stored.DType) {
			return f, fmt.Errorf("adapter full writes weights in the base model's types, and %s is not stored as "+
				"one of "+
				"%v: name the model that it was made from", v.Name, floatTypes)
		}
		f.trained[t.Name] = v
	}
	if head := f.trained[p.embeddings()]; p.Base.Config.TieEmbeddings && head != nil {
		if t, ok := p.Base.Weights.Tensor("lm_head.weight"); ok { // a copy of the embeddings, which nothing reads
			f.trained[t.Name] = head
		}
	}
	var tensors []weights.Tensor
	for _, name := range p.Base.Weights.Names() {
		t, _ := p.Base.Weights.Tensor(name)
		if f.trained[name] != nil && exact {
			t.DType = weights.F32
		}
		tensors = append(tensors, t)
	}
	f.shards, f.index, err = weights.Shards(tensors, shardSize)
	return f, err
}

// embeddings returns the name of a tied model's embeddings in its files.
func (p *prepared) embeddings() string {
	t, _ := p.Base.Tensors().Tensor(p.Base.Config.HeadName())
	return t.Name
}

// names returns the names of the folder's files with weights.
func (f weightFiles) names() []string {
	var names []string
	for _, s := range f.shards {
		names = append(names, s.Name)
	}
	if f.index != nil {
		names = append(names, weights.IndexFile)
	}
	return names
}

// streams returns the files with weights. Trained tensors are read from the saver's memory while they are written.
func (s *saver) streams(f weightFiles) []checkpoint.Stream {
	var all []checkpoint.Stream
	for _, shard := range f.shards {
		all = append(all, checkpoint.Stream{Name: shard.Name, Bytes: shard.Bytes, Write: func(w io.Writer) error {
			return weights.EncodeEach(w, shard.Tensors, map[string]string{"format": "pt"}, s.tensorOf(f))
		}})
	}
	if f.index != nil {
		all = append(all, checkpoint.Stream{Name: weights.IndexFile, Bytes: int64(len(f.index)),
			Write: func(w io.Writer) error { _, err := w.Write(f.index); return err }})
	}
	return all
}

// tensorOf returns what writes a tensor's data: trained numbers in the tensor's type, other data as the base has it.
func (s *saver) tensorOf(f weightFiles) weights.Data {
	return func(t weights.Tensor, w io.Writer) error {
		v := f.trained[t.Name]
		if v == nil {
			_, err := w.Write(t.Data)
			return err
		}
		x, err := s.memory.Tensor(v.Name)
		if err != nil {
			return err
		}
		var buffer []byte
		for part := range slices.Chunk(x.F32(), 1<<16) {
			if buffer, err = weights.AppendFloat32s(buffer[:0], t.DType, part); err != nil {
				return err
			}
			if _, err := w.Write(buffer); err != nil {
				return err
			}
		}
		return nil
	}
}

// modelFiles returns the files of the model's folder without the weights. It reads the numbers of the trained ones into
// the host's memory and checks them.
func (s *saver) modelFiles() (map[string][]byte, error) {
	if err := s.pipeline.Average(); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range s.step.Trained.Params {
		names = append(names, v.Name)
	}
	if err := s.memory.Get(names...); err != nil {
		return nil, fmt.Errorf("read the trained weights: %w", err)
	}
	for _, name := range names {
		x, err := s.memory.Tensor(name)
		if err != nil {
			return nil, fmt.Errorf("read the trained weights: %w", err)
		}
		if bad := firstBadParam([]adapter.Param{{Name: name, Data: x.F32()}}); bad != "" {
			return nil, fmt.Errorf("%w: the weights themselves are not, %s first, so nothing is written%s",
				ErrNotFinite, bad, s.recorder.goBack())
		}
	}
	return s.besideWeights()
}

// besideWeights returns the files of the model's folder beside its weights: the model's configuration, the tokenizer's
// files, the chat template, the tokens that end an answer, and the prompt format of the rows.
func (p *inputs) besideWeights() (map[string][]byte, error) {
	files, err := p.besideAdapter()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{modelConfig, "generation_config.json"} {
		if files[name] != nil {
			continue
		}
		data, err := regular.ReadFS(p.Base.Folder, name)
		if errors.Is(err, fs.ErrNotExist) && name != modelConfig {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	return files, nil
}

// writeModel writes the finished model to output_dir, the weights last, and returns the files' SHA-256.
func (s *saver) writeModel() (map[string]string, error) {
	files, err := s.modelFiles()
	if err != nil {
		return nil, err
	}
	folder, err := s.newWeightFiles(false)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for name, data := range files {
		if err := atomicfile.Write(filepath.Join(s.spec.OutputDir, name), data); err != nil {
			return nil, fmt.Errorf("save the model: %w", err)
		}
		hash := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(hash[:])
	}
	for _, shard := range folder.shards {
		path := filepath.Join(s.spec.OutputDir, shard.Name)
		meta := map[string]string{"format": "pt"}
		if err := weights.WriteEach(path, shard.Tensors, meta, s.tensorOf(folder)); err != nil {
			return nil, fmt.Errorf("save the model: %w", err)
		}
	}
	if folder.index != nil {
		if err := atomicfile.Write(filepath.Join(s.spec.OutputDir, weights.IndexFile), folder.index); err != nil {
			return nil, fmt.Errorf("save the model: %w", err)
		}
	}
	written, err := hashes(s.streams(folder))
	for name, sum := range written {
		sums[name] = sum
	}
	return sums, err
}

// weightsSum returns the SHA-256 of the weights that the run would write now: the adapter's, or the model's.
func (s *saver) weightsSum() (string, error) {
	if !s.whole() {
		files, err := s.adapterFiles()
		return replay.HashBytes(files[adapter.WeightsFile]), err
	}
	if _, err := s.modelFiles(); err != nil {
		return "", err
	}
	folder, err := s.newWeightFiles(false)
	if err != nil {
		return "", err
	}
	sums, err := hashes(s.streams(folder))
	return replay.Weights(sums), err
}

// hashes returns the SHA-256 of what streams write, in hexadecimal.
func hashes(streams []checkpoint.Stream) (map[string]string, error) {
	sums := map[string]string{}
	for _, stream := range streams {
		hash := sha256.New()
		if err := stream.Write(hash); err != nil {
			return nil, err
		}
		sums[stream.Name] = hex.EncodeToString(hash.Sum(nil))
	}
	return sums, nil
}

// restoreModel reads the trained weights from a checkpoint's files.
func (s *saver) restoreModel(files map[string][]byte) error {
	folder, err := s.newWeightFiles(true)
	if err != nil {
		return err
	}
	for _, shard := range folder.shards {
		data, ok := files[shard.Name]
		if !ok {
			return fmt.Errorf("%s is missing", shard.Name)
		}
		f, err := weights.Decode(data)
		if err != nil {
			return fmt.Errorf("%s: %w", shard.Name, err)
		}
		for _, want := range shard.Tensors {
			v := folder.trained[want.Name]
			if v == nil {
				continue
			}
			t, ok := f.Tensor(want.Name)
			if !ok || t.DType != weights.F32 || !slices.Equal(t.Shape, want.Shape) {
				return fmt.Errorf("%s: tensor %s does not fit this run's model", shard.Name, want.Name)
			}
			x, err := s.memory.Tensor(v.Name)
			if err != nil {
				return err
			}
			if x.DType != kernel.F32 {
				return fmt.Errorf("%s is kept in memory as %v", v.Name, x.DType)
			}
			if err := weights.Float32s(t, x.F32()); err != nil {
				return err
			}
			if err := s.memory.Put(v.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isWeights reports whether a file of this name has a model's weights, or their index.
func isWeights(name string) bool {
	return name == weights.SingleFile || name == weights.IndexFile ||
		strings.HasPrefix(name, "model-") && strings.HasSuffix(name, ".safetensors")
}

// holdsModel reports whether a folder holds a model's weights.
func holdsModel(dir string) bool {
	return exists(dir, weights.SingleFile) || exists(dir, weights.IndexFile)
}
