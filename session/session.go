package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Options set which model a session opens, on which machine, and which adapter it trains or carries.
type Options struct {
	Model     string // a folder, a hub name ("org/name"), or an embedded model
	Device    string // auto | cpu | cuda
	Precision string // auto | bf16 | fp16 | tf32 | fp32
	Adapter   string // one of adapter.Names; empty = none, or the method of UseAdapter's folder
	// AdapterConfig is the section of the adapter's method.
	AdapterConfig adapter.Config
	Seed          uint64        // seed of a fresh adapter's initial weights
	Quantization  *quant.Config // storage of base weights; nil = as they are
	// Tokens are added to the model's tokenizer.
	Tokens tokenizer.Additions
}

// Session is a base model, opened on a machine.
type Session struct {
	Env
	Base  *Base
	On    graph.Machine
	Net   Network
	saved []*adapter.Saved // adapters that Hold loads
	// Images reads images for the model; nil = it reads none, or ReadImages was not called.
	Images *Images
}

// Open opens a machine and a model on it.
func Open(ctx context.Context, o Options, env Env) (*Session, error) {
	on, err := OpenMachine(o.Device, o.Precision, env)
	if err != nil {
		return nil, err
	}
	return OpenOn(ctx, o, env, on)
}

// OpenOn opens a model on a machine. It closes the machine if it fails; otherwise Close does.
func OpenOn(ctx context.Context, o Options, env Env, on graph.Machine) (*Session, error) {
	s := &Session{Env: env, On: on}
	err := s.open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(ctx context.Context, o Options) error {
	b, err := OpenBase(ctx, o.Model, s.Env)
	if err != nil {
		return err
	}
	s.Base = b
	if o.Tokens.Any() {
		if err := b.AddTokens(o.Tokens); err != nil {
			return err
		}
	} else if dir := o.AdapterConfig.InitFrom; dir != "" {
		if err := b.tokensOfFolder(dir); err != nil {
			return err
		}
	}
	build, err := families.For(b.Config)
	if err != nil {
		return err
	}
	s.Net = Network{Config: b.Config, Build: build, Float: kernel.F32, BaseTask: b.Task()}
	s.storedWeights()
	if o.Adapter == "" {
		return s.store(o.Quantization)
	}
	method, quantised, err := adapter.Lookup(o.Adapter)
	if err != nil {
		return err
	}
	if err := checkTargets(b, o.AdapterConfig); err != nil {
		return err
	}
	s.Net.Method, s.Net.Adapter, s.Net.Adapted = method, o.AdapterConfig, true
	s.Net.Start = adapter.NewStart(method, o.AdapterConfig, o.Seed)
	if quantised {
		if o.Quantization == nil {
			return fmt.Errorf("adapter: %s needs a section quantization", o.Adapter)
		}
		return s.store(o.Quantization)
	}
	return nil
}

// store sets how the network stores its weights; nil = as they are.
func (s *Session) store(c *quant.Config) error {
	if c == nil {
		return nil
	}
	if err := s.checkStorage(*c); err != nil {
		return err
	}
	s.Net.Scheme = c
	return nil
}

// storedWeights makes the network keep weights that are quantised already as they are.
func (s *Session) storedWeights() {
	s.Net.Keep(s.Base)
	if n := s.Base.Tensors().Dequantised(); n > 0 {
		s.Logf("%s stores %s quantised (%s): they are dequantised while they are read", s.Base.Name,
			words.Counted(n, "weight"), s.Base.Config.Quantization.Method)
	}
	if q := s.Base.Config.Quantization; s.Net.Stored != nil && q.Bits == 8 && q.Threshold > 0 {
		s.Logf("%s is stored in 8 bits: weights are dequantised and multiplied with all inputs, so llm_int8_threshold %g takes no part", s.Base.Name, q.Threshold)
	}
}

// mxfp4 reports whether a model's experts are stored in MXFP4; its other weights follow the run's quantization section.
func (b *Base) mxfp4() bool {
	q := b.Config.Quantization
	return q != nil && q.Method == model.MXFP4
}

// checkStorage refuses to quantise a model that is already quantised in another way.
func (s *Session) checkStorage(c quant.Config) error {
	if s.Base.Tensors().Quantised() == 0 || s.Base.mxfp4() {
		return nil
	}
	have := *s.Net.Scheme
	if have.Type == c.Type && have.DoubleQuant == c.DoubleQuant {
		return nil
	}
	return fmt.Errorf("quantization: type %s with double_quant %v is asked for, but the weights of %s are quantised already, as type %s with "+
		"double_quant %v: write bits: %d, type: %s and double_quant: %v under quantization, or name the model that they were made from",
		c.Type, c.DoubleQuant, s.Base.Name, have.Type, have.DoubleQuant, have.Bits, have.Type, have.DoubleQuant)
}

// UseAdapter makes the network carry the adapter of a PEFT folder, or none if dir is empty. Hold loads it.
func (s *Session) UseAdapter(dir string) error {
	s.Net.Adapted = dir != ""
	if dir == "" {
		s.Net.Start = nil
		return nil
	}
	saved, err := adapter.Open(dir)
	if err != nil {
		return err
	}
	return s.UseSaved(saved)
}

// UseSaved makes the network carry an adapter that was opened already, and that is closed with the session. Where the
// adapter was trained with tokens that the model lacks, the model gets them.
func (s *Session) UseSaved(saved *adapter.Saved) error {
	s.saved = []*adapter.Saved{saved}
	if err := UseTokens(s, saved); err != nil {
		return err
	}
	if s.Net.Scheme != nil && s.Net.Start.Wrote(saved) {
		// The adapter belongs to the weights that its run quantised, which differ from the quantised base model alone.
		s.Net.Adapted = true
	} else {
		s.Net.Adapted, s.Net.Start, s.Net.Method, s.Net.Adapter = true, nil, saved.Method, saved.Config
	}
	s.Net.Adapter.Dropout = 0 // dropout is only for training
	return nil
}

// UseTokens gives the model the tokens with which an adapter was trained, as UseSaved does, and leaves the adapter out.
func UseTokens(s *Session, saved *adapter.Saved) error {
	err := s.Base.useTokensOf(saved)
	s.Net.Config = s.Base.Config
	return err
}

// UseAdapters makes the network carry the adapters of several PEFT folders side by side, see adapter.Several. Hold
// loads them.
func (s *Session) UseAdapters(dirs []string) error {
	return s.useAdapters(dirs, adapter.Task.CheckWrites)
}

// UseHeads makes the network carry the adapters of several PEFT folders side by side, whose tasks give scores or
// vectors of texts.
func (s *Session) UseHeads(dirs []string) error { return s.useAdapters(dirs, adapter.Task.CheckScores) }

func (s *Session) useAdapters(dirs []string, check func(adapter.Task) error) error {
	for _, dir := range dirs {
		saved, err := adapter.Open(dir)
		if err != nil {
			return err
		}
		s.saved = append(s.saved, saved)
		if err := check(saved.Config.Task); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	s.Net.Adapted, s.Net.Start, s.Net.Several = false, nil, adapter.NewSeveral(s.saved)
	return nil
}

// AdapterTasks returns what the adapters of UseAdapter, UseAdapters or UseHeads are for, in their order.
func (s *Session) AdapterTasks() (all []adapter.Task) {
	for _, saved := range s.saved {
		all = append(all, saved.Config.Task)
	}
	return all
}

// Close releases mapped weights, the adapter's files and the machine.
func (s *Session) Close() error {
	err := s.Base.Close()
	for _, saved := range s.saved {
		err = errors.Join(err, saved.Close())
	}
	if s.Net.Teacher != nil {
		err = errors.Join(err, s.Net.Teacher.Base.Close())
	}
	if s.On != nil {
		err = errors.Join(err, s.On.Close())
	}
	return err
}

// Memory is the memory that programs run in, with the programs bound to it in their order.
type Memory struct {
	graph.Store
	Runs []graph.Runner
}

// Hold allocates the memory that programs share, loads the base model and the adapter of UseAdapter, and binds the
// programs. If it fails, it frees what it has allocated. The first program's network has the weights of all programs.
func (s *Session) Hold(ctx context.Context, programs ...*Program) (*Memory, error) {
	return Hold(s.On, func(m graph.Store) error {
		if err := s.resumeStart(programs[0]); err != nil {
			return err
		}
		if err := s.Base.Load(ctx, programs[0].Net, m, s.On.Workers()); err != nil {
			return err
		}
		if err := narrow(s.On, programs[0].Trained, m); err != nil {
			return err
		}
		if err := s.Net.Teacher.load(ctx, programs[0].Net, m, s.On.Workers()); err != nil {
			return err
		}
		return s.loadAdapter(programs[0], m)
	}, programs...)
}

// narrow rounds trained tensors that are kept in bf16 alone to it, where the machine stores them as float32.
func narrow(on graph.Machine, t *adapter.Trained, m graph.Store) error {
	if t == nil || on.Capabilities().SeparateHost { // a GPU's memory has rounded them
		return nil
	}
	for _, p := range t.Params {
		if !p.Narrow() {
			continue
		}
		x, err := m.Tensor(p.Name)
		if err != nil {
			return err
		}
		for i, v := range x.F32() {
			x.F32()[i] = kernel.FromBF16(kernel.ToBF16(v))
		}
	}
	return nil
}

// Hold allocates the memory that programs share, calls fill to write to it, and binds the programs.
func Hold(on graph.Machine, fill func(graph.Store) error, programs ...*Program) (_ *Memory, err error) {
	plans := make([]*graph.Plan, len(programs))
	for i, p := range programs {
		plans[i] = p.Plan
	}
	defer graph.StartRange("load model").End()
	store, err := on.NewStore(plans...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	if err := fill(store); err != nil {
		return nil, err
	}
	FreeGarbage(store.Bytes().Total()) // the buffers of loading
	m := &Memory{Store: store}
	for _, p := range plans {
		run, err := on.Bind(p, store)
		if err != nil {
			return nil, err
		}
		m.Runs = append(m.Runs, run)
	}
	return m, nil
}

// loadAdapter reads the adapters of UseAdapter or UseAdapters into memory, if there are any.
func (s *Session) loadAdapter(p *Program, m graph.Store) error {
	if s.Net.Several != nil {
		return s.Net.Several.Load(m)
	}
	if s.saved == nil {
		return nil
	}
	t := p.Trained
	if err := t.CheckParameters(s.Net.Adapter, p.Net.WeightNames()); err != nil {
		return err
	}
	params := t.List()
	if err := s.Net.Start.Resume(s.saved[0], t, params); err != nil {
		return err
	}
	return t.Restore(m, params)
}

// resumeStart reads the initial matrices of the adapter of UseAdapter, if the base model loses them while it loads.
func (s *Session) resumeStart(p *Program) error {
	if s.saved == nil || !s.Net.Start.Rebases() {
		return nil
	}
	return s.Net.Start.Resume(s.saved[0], p.Trained, p.Trained.List())
}

// AdapterTensors returns the adapter of UseAdapter: the layers that it adapts, and its tensors. It also compares the
// model with its checkpoint.
func (s *Session) AdapterTensors() (*adapter.Trained, []adapter.Param, error) {
	net, trained, err := s.Net.Declared()
	if err != nil {
		return nil, nil, err
	}
	if err := s.Base.Check(net); err != nil {
		return nil, nil, err
	}
	if err := trained.CheckParameters(s.Net.Adapter, net.WeightNames()); err != nil {
		return nil, nil, err
	}
	params := trained.List()
	return trained, params, s.saved[0].Read(params)
}

// Mergers returns the updates that the adapter of UseAdapter adds to the weights of its layers, by the layers' paths,
// and what sets other tensors to trained numbers, by their names without ".weight". Net.UntiedHead says whether lm_head
// is among the model's tensors though the checkpoint has none.
func (s *Session) Mergers() (map[string]adapter.Merger, error) {
	trained, params, err := s.AdapterTensors()
	if err != nil {
		return nil, err
	}
	replaced, params := trained.TrainedBase(params)
	updates, err := s.saved[0].Method.MergersOf(s.saved[0].Config, trained, params)
	if err != nil {
		return nil, err
	}
	for _, p := range replaced {
		if p.Name != adapter.ScoreWeight && p.Name != adapter.ScoreBias {
			path, update := adapter.BaseUpdate(s.saved[0].Config, p)
			updates[path] = update
		}
	}
	for _, layer := range trained.Layers {
		tiedHead := layer+".weight" == adapter.HeadWeight && s.Net.UntiedHead()
		if _, ok := s.Base.Tensors().Tensor(layer + ".weight"); !ok && !tiedHead {
			return nil, fmt.Errorf("the model has no tensor %s.weight", layer)
		}
		if _, ok := s.Base.Tensors().Tensor(layer + ".bias"); !ok {
			if err := adapter.MergesBias(s.saved[0].Config, layer); err != nil {
				return nil, err
			}
			delete(updates, layer+".bias")
		}
	}
	for _, p := range trained.Parameters {
		if _, ok := s.Base.Tensors().Tensor(p.Name); !ok && p.Layers == nil {
			return nil, fmt.Errorf("the model has no tensor %s", p.Name)
		}
		for _, layer := range slices.Concat(p.Layers...) {
			if _, ok := s.Base.Tensors().Tensor(layer + ".weight"); !ok {
				return nil, fmt.Errorf("the model has no tensor %s.weight", layer)
			}
		}
	}
	return updates, nil
}

// CheckFits compares programs with the checkpoint and with the free memory.
func (s *Session) CheckFits(programs ...*Program) error {
	plans := make([]*graph.Plan, len(programs))
	for i, p := range programs {
		if err := s.Base.Check(p.Net); err != nil {
			return err
		}
		plans[i] = p.Plan
	}
	need, err := graph.Need(plans...)
	if err != nil {
		return err
	}
	return checkFits(s.On, need.Total())
}

// checkFits refuses a plan that needs more memory than the machine has free. If the system does not report the free
// memory, it refuses nothing.
func checkFits(on graph.Machine, need int64) error {
	free, known, err := on.FreeMemory()
	if err == nil && known && need > free {
		err = fmt.Errorf("%w: the plan holds %s and %s has %s available; lower training.batch_size or dataset.max_length, or use adapter: qlora",
			ErrDoesNotFit, FormatBytes(need), on.Name(), FormatBytes(free))
	}
	return err
}
