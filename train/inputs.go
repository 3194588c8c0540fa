package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
)

const (
	segmentInputs = "inputs"
	inputsPrefix  = "inputs " // prefix of the names of the pass's data
	// mostInputBatches bounds the batches from which inputs are learned.
	mostInputBatches = 100
	// mostInputTokens bounds the tokens of a batch whose inputs are learned: the decomposition takes time for each. For
	// large ranks tokensOfRank times the rank bound them.
	mostInputTokens, tokensOfRank = 1024, 4
)

// learnInputs computes the base model over the run's first batches, and gives what it learns of the inputs of the
// adapted layers to the start. Every rank does so by itself, over the batches of all ranks in their order, so that all
// have the same. It holds memory of its own, before the run takes its own.
func (p *prepared) learnInputs(ctx context.Context) error {
	if p.data.Streaming() {
		return errors.New("lora.init_lora_weights: eva reads the first batches before training does, which a stream " +
			"gives once: set dataset.streaming to false, or leave the key out")
	}
	loader, err := p.trainLoader(p.data, p.batchSize)
	if err != nil {
		return err
	}
	began, nw := time.Now(), p.Net
	nw.Ranks = 0
	in := p.Net.Start.Inputs()
	pass, err := planInputs(nw, in, infer.ShapeOf(loader), p.On)
	if err != nil {
		return err
	}
	if err := p.CheckFits(&pass.Program); err != nil {
		return fmt.Errorf("learn the inputs of layers (lora.init_lora_weights: eva): %w", err)
	}
	m, err := session.Hold(p.On, func(m graph.Store) error {
		return p.Base.Load(ctx, pass.Net, m, p.On.Workers())
	}, &pass.Program)
	if err != nil {
		return err
	}
	batches, tokens, err := pass.learn(ctx, m, trainedBatches(loader), p.On.Workers())
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	p.Net.Start.UseInputs(in)
	settled, layers := in.Settled()
	p.env.Newsf("eva: the inputs of %d layers learned from %d tokens of %d batches in %s; those of %d have settled",
		layers, tokens, batches, time.Since(began).Round(time.Millisecond), settled)
	return nil
}

// trainedBatches yields the batches of a loader, one epoch after another.
func trainedBatches(l *dataset.Loader) iter.Seq2[dataset.Batch, error] {
	return func(yield func(dataset.Batch, error) bool) {
		for epoch := 0; ; epoch++ {
			for b, err := range l.Epoch(epoch) {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// inputsPass is a planned forward pass of the base model that ends with the inputs of the adapted layers.
type inputsPass struct {
	session.Program
	in *adapter.Inputs
}

// planInputs plans a pass over batches of shape s.
func planInputs(nw session.Network, in *adapter.Inputs, s session.Shape, on graph.Machine) (*inputsPass, error) {
	nw.Method, nw.Adapter, nw.Start, nw.Layout = in.Method(), in.Config(nw.Adapter), nil, session.Layout{}
	nw.Reference, nw.Teacher, nw.Trainable = nil, nil, nil
	n, trained, batch := nw.Declare(inputsPrefix, s)
	n.Segment(segmentInputs)
	nw.Hidden(n, batch)
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("plan the inputs of layers: %w", err)
	}
	plan, err := on.Compile(n.Builder, in.Values()...)
	if err != nil {
		return nil, fmt.Errorf("plan the inputs of layers: %w", err)
	}
	return &inputsPass{session.Program{Net: n, Trained: trained, Plan: plan}, in}, nil
}

// learn learns the inputs at the trained tokens of batches until the directions of all layers have settled. Batches
// with fewer trained tokens than a layer has ranks are taken together with the next; PEFT passes over them.
func (p *inputsPass) learn(ctx context.Context, m *session.Memory, all iter.Seq2[dataset.Batch, error],
	workers int) (batches, tokens int, err error) {
	run, least := m.Runs[0], p.in.LargestRank()
	if err := run.Prepare(segmentInputs); err != nil {
		return 0, 0, err
	}
	data, err := session.BindBatch(m, inputsPrefix)
	if err != nil {
		return 0, 0, err
	}
	rows, held := make([][]float32, len(p.in.Values())), 0
	for b, err := range all {
		if err == nil {
			err = ctx.Err()
		}
		if at := spaced(trainedPlaces(b), max(mostInputTokens, tokensOfRank*least)); err == nil && len(at) > 0 {
			err = p.read(data, run, b, at, rows)
			held += len(at)
		}
		if err == nil && held >= max(1, least) {
			err = p.take(rows, held, workers)
			tokens, held = tokens+held, 0
		}
		if err != nil {
			return batches, tokens, err
		}
		batches++
		if settled, of := p.in.Settled(); settled == of || batches == mostInputBatches {
			break
		}
	}
	if tokens == 0 {
		return 0, 0, fmt.Errorf("lora.init_lora_weights: eva needs as many trained tokens as the largest rank, %d, "+
			"and the first %d batches have fewer: lower lora.r, or leave the key out", least, batches)
	}
	return batches, tokens, nil
}

// take learns the rows of all values, n of each, some at a time, and empties them.
func (p *inputsPass) take(rows [][]float32, n, workers int) error {
	problems, free := make([]error, len(rows)), make(chan struct{}, max(1, workers))
	var all sync.WaitGroup
	for i := range rows {
		all.Go(rescue.Wrap(func() {
			free <- struct{}{}
			problems[i] = p.in.Learn(i, rows[i], n)
			rows[i] = rows[i][:0]
			<-free
		}))
	}
	all.Wait()
	return errors.Join(problems...)
}

// trainedPlaces returns the places of the tokens that a batch trains.
func trainedPlaces(b dataset.Batch) (at []int) {
	for t, label := range b.Labels {
		if label >= 0 {
			at = append(at, t)
		}
	}
	return at
}

// spaced returns at most most of some places, evenly spaced.
func spaced(at []int, most int) []int {
	if len(at) <= most {
		return at
	}
	some := make([]int, most)
	for i := range some {
		some[i] = at[i*len(at)/most]
	}
	return some
}

// read computes a batch and adds the inputs at some of its places to rows, for each of Values.
func (p *inputsPass) read(data *session.Batch, run graph.Runner, b dataset.Batch, at []int, rows [][]float32) error {
	data.Fill(b, session.Part{})
	if err := data.Put(); err != nil {
		return err
	}
	if err := run.Run(segmentInputs); err != nil {
		return err
	}
	for i, v := range p.in.Values() {
		t, err := run.Read(v)
		if err != nil {
			return err
		}
		width := v.Width()
		for _, place := range at {
			rows[i] = append(rows[i], t.F32()[place*width:(place+1)*width]...)
		}
	}
	return nil
}
