package infer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/logprobs"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// LogprobsOptions selects the teacher and the rows of WriteLogprobs.
type LogprobsOptions struct {
	session.Options
	AdapterDir  string // adapter folder in PEFT's format; empty = the base model
	Data        dataset.Config
	Seed        uint64
	BatchSize   int     // rows of the longest length that a batch has room for
	TopK        int     // most likely tokens of each place
	Temperature float64 // divides the logits
	Out         string  // folder to write
	// ShardTokens is the number of trained tokens from which on a shard is full; 0 = 65,536.
	ShardTokens int
	// Progress is called with the number of finished rows; nil = no reports.
	Progress func(done, of int)
}

// LogprobsReport says what WriteLogprobs wrote.
type LogprobsReport struct {
	Out    string `json:"out"`
	Rows   int    `json:"rows"`   // different rows
	Tokens int64  `json:"tokens"` // their trained tokens
	Shards int    `json:"shards"`
	Found  int    `json:"shards_found"` // shards that an earlier, interrupted call wrote
	TopK   int    `json:"top_k"`
	// Covered is the mean probability that the teacher gives to its TopK tokens together, over what this call computed.
	Covered float64 `json:"covered"`
}

// defaultShardTokens makes shards of 17 MB at 32 tokens a place.
const defaultShardTokens = 1 << 16

// mostLogprobRows is the largest number of rows of a batch of WriteLogprobs.
const mostLogprobRows = 256

// WriteLogprobs writes the teacher's most likely tokens at every trained token of a data set, training and validation
// rows, with their log-probabilities (package dataset/logprobs). Memory is bounded by a shard's rows. A call that was
// interrupted is continued by the same call, and the folder then has the same bytes.
func WriteLogprobs(ctx context.Context, o LogprobsOptions, env session.Env) (report LogprobsReport, err error) {
	s, err := session.Open(ctx, o.Options, env)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.UseAdapter(o.AdapterDir); err != nil {
		return report, err
	}
	vocabulary := s.Base.Config.VocabSize
	if o.TopK < 1 || o.TopK > logprobs.MaxTopK || o.TopK >= vocabulary {
		return report, fmt.Errorf("top-k is %d, want 1 to %d, and less than the %d tokens of the teacher's vocabulary",
			o.TopK, logprobs.MaxTopK, vocabulary)
	}
	set, rows, err := s.LoadData(ctx, o.Data, o.Seed)
	if err == nil {
		err = objective.CheckRows(objective.Default, objective.Of(objective.Default, objective.Config{}), rows)
	}
	if err != nil {
		return report, err
	}
	if set.Streaming() {
		return report, errors.New("log-probabilities need rows that are counted before: set dataset.streaming to false")
	}
	t := teacherRows{set: set, shardTokens: o.ShardTokens}
	if t.shardTokens == 0 {
		t.shardTokens = defaultShardTokens
	}
	if err := t.divide(); err != nil {
		return report, err
	}
	subject, err := t.subject(s, o)
	if err != nil {
		return report, err
	}
	w, err := logprobs.NewWriter(o.Out, subject)
	if err != nil {
		return report, err
	}
	report = LogprobsReport{Out: o.Out, Rows: subject.Rows, Tokens: subject.Tokens, Shards: len(t.shards), TopK: o.TopK}
	err = writeShards(ctx, s, o, &t, w, &report)
	if err != nil {
		return report, err
	}
	return report, w.Finish()
}

// writeShards writes the shards that an earlier call did not write. It takes memory for the model at the first of them.
func writeShards(ctx context.Context, s *session.Session, o LogprobsOptions, t *teacherRows, w *logprobs.Writer,
	report *LogprobsReport) (err error) {
	var run *topKRun
	defer func() {
		if run != nil {
			err = errors.Join(err, run.memory.Close())
		}
	}()
	done, computed, covered := 0, 0, 0.
	for _, shard := range t.shards {
		keys := make([]uint64, len(shard))
		for i, at := range shard {
			row := t.row(at)
			keys[i] = logprobs.Key(row.IDs, row.Labels)
		}
		found, err := w.Has(keys)
		if err != nil {
			return err
		}
		if found {
			report.Found++
		} else {
			if run == nil {
				if run, err = openTopK(ctx, s, o, t); err != nil {
					return err
				}
			}
			rows, err := run.shard(ctx, t, shard, keys)
			if err != nil {
				return err
			}
			for _, r := range rows {
				computed += r.Tokens
				for i := range r.Tokens {
					covered -= math.Expm1(float64(r.Rest[i]))
				}
			}
			if err := w.Write(rows); err != nil {
				return err
			}
		}
		if done += len(shard); o.Progress != nil {
			o.Progress(done, report.Rows)
		}
	}
	report.Covered = covered / float64(max(computed, 1))
	return nil
}

// teacherRows are the rows of a data set, each different row once, in shards.
type teacherRows struct {
	set         *dataset.Set
	shardTokens int
	shards      [][]int32 // rows, as indices over training and then validation rows
	rows        int
	tokens      int64
	longest     int    // tokens of the longest row
	data        string // hash of the rows' keys
}

// row returns a row by its index over training and validation rows.
func (t *teacherRows) row(i int32) dataset.Row {
	if n := t.set.Train.Len(); int(i) >= n {
		return t.set.Val.Row(int(i) - n)
	}
	return t.set.Train.Row(int(i))
}

// divide finds the different rows with trained tokens and divides them into shards.
func (t *teacherRows) divide() error {
	known, h := map[uint64]bool{}, sha256.New()
	var shard []int32
	tokens := 0
	for i := range int32(t.set.Train.Len() + t.set.Val.Len()) {
		row := t.row(i)
		key, trained := logprobs.Key(row.IDs, row.Labels), logprobs.Trained(row.Labels)
		if known[key] || trained == 0 {
			continue
		}
		known[key] = true
		h.Write(binary.LittleEndian.AppendUint64(nil, key))
		shard, tokens = append(shard, i), tokens+trained
		t.rows, t.tokens, t.longest = t.rows+1, t.tokens+int64(trained), max(t.longest, len(row.IDs))
		if tokens >= t.shardTokens {
			t.shards, shard, tokens = append(t.shards, shard), nil, 0
		}
	}
	if shard != nil {
		t.shards = append(t.shards, shard)
	}
	if t.rows == 0 {
		return errors.New("the data set has no row with a trained token")
	}
	t.data = hex.EncodeToString(h.Sum(nil))
	return nil
}

// subject returns what the numbers depend on.
func (t *teacherRows) subject(s *session.Session, o LogprobsOptions) (logprobs.Subject, error) {
	of, err := adapterHash(o.AdapterDir)
	stored := "as they are"
	if s.Net.Scheme != nil {
		stored = fmt.Sprintf("%+v", *s.Net.Scheme)
	}
	sum := sha256.Sum256([]byte(s.Base.Fingerprint() + stored))
	return logprobs.Subject{Teacher: o.Model, Weights: hex.EncodeToString(sum[:]), Adapter: of,
		Tokenizer:  logprobs.Vocabulary(s.Base.Tokenizer, s.Base.Config.VocabSize),
		Vocabulary: s.Base.Config.VocabSize, TopK: o.TopK, Precision: s.On.Precision().String(),
		Temperature: o.Temperature, Rows: t.rows, Tokens: t.tokens, Data: t.data}, err
}

// adapterHash returns a hash of an adapter's files; "" of no adapter.
func adapterHash(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	h := sha256.New()
	for _, name := range []string{adapter.ConfigFile, adapter.WeightsFile} {
		data, err := regular.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("adapter %s: %w", dir, err)
		}
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// topKRun is a forward pass that ends with the most likely tokens, bound to memory.
type topKRun struct {
	s         *session.Session
	shape     dataset.Shape
	memory    *session.Memory
	run       graph.Runner
	batch     *session.Batch
	labels    []int32
	ids, logp *graph.Value
	k         int
}

// openTopK plans the forward pass for the rows, and loads the teacher.
func openTopK(ctx context.Context, s *session.Session, o LogprobsOptions, t *teacherRows) (_ *topKRun, err error) {
	if most := s.Base.Config.LongestRow(); t.longest > most {
		return nil, fmt.Errorf("dataset.max_length: sequences of %d tokens are longer than the teacher's %d positions",
			t.longest, most)
	}
	tokens := (max(o.BatchSize, 1)*t.longest + 7) / 8 * 8
	r := &topKRun{s: s, k: o.TopK, shape: dataset.Shape{Sequences: mostLogprobRows, T: tokens, Budgets: []int{tokens},
		Borders: mostLogprobRows + tokens/t.longest + 3, Longest: t.longest, Flat: true}}
	nw := s.Net
	nw.Adapter.Dropout = 0 // dropout is for training only
	shape := session.Shape{Tokens: tokens, Sequences: r.shape.Borders - 1, MaxLen: t.longest}
	n, trained, in := nw.Declare(evalPrefix, shape)
	labels := n.Batch(evalPrefix+"labels", kernel.T(kernel.I32, tokens))
	n.Segment(segmentEval)
	k := kernel.LinearTopK{Chunk: nw.LossRows(s.On), K: o.TopK, Cap: nw.Config.LogitCap, Temperature: o.Temperature}
	hidden := nw.Hidden(n, in)
	out := n.ApplyAll(k, hidden, nw.Head(n), labels)
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan the log-probabilities: %w", err)
	}
	r.ids, r.logp = out[0], out[1]
	plan, err := s.On.Compile(n.Builder, out...)
	if err != nil {
		return nil, fmt.Errorf("plan the log-probabilities: %w", err)
	}
	program := &session.Program{Net: n, Trained: trained, Plan: plan}
	if err := s.CheckFits(program); err != nil {
		return nil, err
	}
	if r.memory, err = s.Hold(ctx, program); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.memory.Close())
		}
	}()
	r.run = r.memory.Runs[0]
	if err := r.run.Prepare(segmentEval); err != nil {
		return nil, err
	}
	if r.batch, err = session.BindBatch(r.memory, evalPrefix); err != nil {
		return nil, err
	}
	r.labels, err = r.batch.Int32s("labels")
	return r, err
}

// shard computes a shard's rows, in batches of consecutive rows.
func (r *topKRun) shard(ctx context.Context, t *teacherRows, shard []int32, keys []uint64) ([]logprobs.Row, error) {
	all := make([]logprobs.Row, 0, len(shard))
	var list []dataset.Row
	tokens := 0
	flush := func() error {
		rows, err := r.rows(ctx, list, keys[len(all):])
		all, list, tokens = append(all, rows...), nil, 0
		return err
	}
	for _, at := range shard {
		row := t.row(at)
		if len(list) == mostLogprobRows || tokens+len(row.IDs) > r.shape.T {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		list, tokens = append(list, row), tokens+len(row.IDs)
	}
	return all, flush()
}

// rows computes a batch.
func (r *topKRun) rows(ctx context.Context, list []dataset.Row, keys []uint64) ([]logprobs.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := r.shape.Lay([][]dataset.Row{list}, 0)
	if err != nil {
		return nil, err
	}
	r.batch.Fill(b, session.Part{})
	objective.ShiftLabels(r.labels, b.Labels, b.CuSeqlens)
	if err := r.batch.Put(); err != nil {
		return nil, err
	}
	if err := r.run.Run(segmentEval); err != nil {
		return nil, err
	}
	ids, err := r.run.Read(r.ids)
	if err != nil {
		return nil, err
	}
	tokens := append([]int32(nil), ids.I32()...)
	logp, err := r.run.Read(r.logp)
	if err != nil {
		return nil, err
	}
	rows := make([]logprobs.Row, len(list))
	for i, row := range list {
		rows[i].Key = keys[i]
		for p := range len(row.IDs) - 1 {
			at := b.Starts[i] + p
			if r.labels[at] == dataset.Ignore {
				continue
			}
			l := logp.F32()[at*(r.k+1):][:r.k+1]
			if l[0]-l[0] != 0 || l[r.k] != l[r.k] {
				return nil, r.s.BlameNotFinite(ctx, fmt.Errorf("%s: token %d: the log-probability is %v: %w",
					row.Where(), p+1,
					l[0], ErrNotFinite))
			}
			rows[i].Tokens++
			rows[i].IDs = append(rows[i].IDs, tokens[at*r.k:][:r.k]...)
			rows[i].Logprobs = append(rows[i].Logprobs, l[:r.k]...)
			rows[i].Rest = append(rows[i].Rest, l[r.k])
		}
	}
	return rows, nil
}
