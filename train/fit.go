package train

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
)

// checkpointing are the ways that a value of gradient_checkpointing allows, in the order they are tried.
var checkpointing = map[string][]graph.Recompute{
	"auto":      {graph.KeepAll, graph.RecomputeCheap, graph.RecomputeLayers, graph.Offload},
	"none":      {graph.KeepAll},
	"selective": {graph.RecomputeCheap},
	"full":      {graph.RecomputeLayers},
	"offload":   {graph.Offload},
}

// way is how a step may be laid out.
type way struct {
	decoded  bool // quantised weights are kept as the numbers they stand for
	linears  int  // of so many linear layers, from the first on; 0 = all
	again    graph.Recompute
	layers   int  // again holds for so many, from the first on, and the mode before for the others; 0 = all
	spaced   bool // memory is left for calls to run side by side
	lossRows int  // rows whose logits exist at the same time; 0 = as many as are fastest
}

// leastLossRows is where a shorter loss chunk saves next to nothing.
const leastLossRows = 32

// tried is a way and the bytes that the run would hold.
type tried struct {
	way
	bytes  int64
	frozen int64 // of them, weights
}

// sizes are the rows of a micro-batch: of training, and of validation where there is one.
type sizes struct{ train, eval shape }

// ways are those that the configuration allows, fastest first: decoded weights while nothing need be made
// again.
func (p *prepared) ways() []way {
	c := p.spec.Training
	modes := checkpointing[c.GradientCheckpointing]
	if !p.on.Capabilities().SeparateHost && len(modes) > 1 {
		modes = modes[:len(modes)-1] // there host memory is the memory in question
	}
	quantised, want := p.net.Scheme != nil, c.DecodedWeights
	var all []way
	if quantised && want == "auto" && p.on.Capabilities().KeepDequantised {
		all = append(all, way{decoded: true, again: modes[0]})
	}
	for _, again := range modes {
		all = append(all, way{decoded: quantised && want == "always", again: again})
	}
	return all
}

// spaces tells whether memory may be spent on calls that run side by side: on a GPU, unless the way is chosen to
// save memory.
func spaces(on graph.Machine, again graph.Recompute) bool {
	return on.Capabilities().Overlap && (again == graph.KeepAll || again == graph.RecomputeCheap)
}

// spacedIsCheap tells whether a plan that lets calls run side by side holds little more than one that does not:
// a sixth. For a small model the room is several times the rest.
func spacedIsCheap(spaced, plain int64) bool { return spaced-plain <= plain/6 }

// space lays the chosen way out so that calls may run side by side, where there is room and it costs little.
func (p *prepared) space(s sizes, room int64, known bool) error {
	w, plain := p.way, p.need.Total()
	if !spaces(p.on, w.again) {
		return nil
	}
	w.spaced = true
	if err := p.lay(w, s); err != nil {
		return err
	}
	if n := p.need.Total(); spacedIsCheap(n, plain) && (!known || n <= room) {
		return nil
	}
	w.spaced = false
	return p.lay(w, s)
}

// lay plans the step in one way.
func (p *prepared) lay(w way, s sizes) error {
	var err error
	p.net.Dequantised, p.net.DequantisedLinears, p.net.Spaced, p.net.LossRows, p.way = w.decoded, w.linears, w.spaced, w.lossRows, w
	if s.eval.Tokens > 0 {
		if p.eval, err = newEvalStep(p.net, s.eval, p.on); err != nil {
			return err
		}
	}
	if p.step, err = newTrainStep(p.net, s.train, p.spec.Training, w.again, w.layers, p.on); err != nil {
		return err
	}
	if err := p.base.check(p.step.net); err != nil {
		return err
	}
	plans := []*graph.Plan{p.step.plan}
	if p.eval != nil {
		plans = append(plans, p.eval.plan)
	}
	p.need, err = graph.Need(plans...)
	return err
}

// fit plans the step in the first allowed way that fits the memory the run may hold; where none does, in the
// leanest with less and less of the logits at a time. What is left may let calls run side by side.
func (p *prepared) fit(s sizes) error {
	room, known, err := p.room()
	if err != nil {
		return err
	}
	if err := p.choose(s, room, known); err != nil {
		return err
	}
	return p.space(s, room, known)
}

func (p *prepared) choose(s sizes, room int64, known bool) error {
	p.limit = room
	if !known {
		p.limit = -1
	}
	p.tried = nil
	ways := p.ways()
	for i, w := range ways {
		if err := p.lay(w, s); err != nil {
			return err
		}
		if !known || p.need.Total() <= room {
			switch {
			case i == 0:
				return nil
			case ways[i-1].decoded && !w.decoded:
				return p.decodeSome(p.tried[i-1], s, room)
			case w.again == ways[i-1].again+1 && w.again != graph.Offload:
				return p.fewerLayers(w, s, room)
			}
			return nil
		}
		p.tried = append(p.tried, tried{w, p.need.Total(), p.need.Frozen})
	}
	lean, fits, err := p.shortenLoss(s, room)
	if err != nil || fits {
		return err
	}
	if err := p.lay(lean.way, s); err != nil {
		return err
	}
	return p.refuse(room, s)
}

// decodeSome keeps the weights of as many linear layers decoded as fit, where those of all do not and the step as
// it is planned does.
func (p *prepared) decodeSome(all tried, s sizes, room int64) error {
	packed, left := p.way, room-p.need.Total()
	linears, sum, total := p.step.net.Quantised(), int64(0), int64(0)
	for _, n := range linears {
		total += n
	}
	each := float64(all.frozen-p.need.Frozen) / float64(total) // bytes that decoding adds for a number
	w := packed
	for _, n := range linears {
		if sum += n; float64(sum)*each > float64(left) {
			break
		}
		w.linears++
	}
	for back := 1; w.linears > 0; w.linears, back = w.linears-back, 2*back { // the estimate leaves out what rounding up to whole blocks takes
		w.decoded = true
		if err := p.lay(w, s); err != nil {
			return err
		}
		if p.need.Total() <= room {
			return nil
		}
	}
	return p.lay(packed, s)
}

// fewerLayers looks for the fewest layers that a way, which fits for all of them, must hold for.
func (p *prepared) fewerLayers(w way, s sizes, room int64) error {
	most := p.net.Config.NumLayers // fits
	for least := 1; least < most; {
		w.layers = (least + most) / 2
		if err := p.lay(w, s); err != nil {
			return err
		}
		if p.need.Total() <= room {
			most = w.layers
		} else {
			least = w.layers + 1
		}
	}
	if w.layers = most; most == p.net.Config.NumLayers {
		w.layers = 0
	}
	if p.way == w {
		return nil
	}
	return p.lay(w, s)
}

// shortenLoss halves the loss chunk of the leanest way tried until the run fits or gets no smaller.
func (p *prepared) shortenLoss(s sizes, room int64) (lean tried, fits bool, err error) {
	lean = p.tried[0]
	for _, t := range p.tried {
		if t.bytes < lean.bytes {
			lean = t
		}
	}
	most := min(lossChunk(p.on), max(s.train.Tokens, s.eval.Tokens))
	rows := leastLossRows
	for 2*rows < most {
		rows *= 2
	}
	for ; rows >= leastLossRows && rows < most; rows /= 2 {
		w := lean.way
		w.lossRows = rows
		if err := p.lay(w, s); err != nil {
			return lean, false, err
		}
		if p.need.Total() <= room {
			return lean, true, nil
		}
		if p.need.Total() >= lean.bytes {
			break
		}
		lean = tried{w, p.need.Total(), p.need.Frozen}
		p.tried = append(p.tried, lean)
	}
	return lean, false, nil
}

// room is the memory that the run may hold: vram, or what is free.
func (p *prepared) room() (bytes int64, known bool, err error) {
	if p.spec.VRAM != "" {
		bytes, err = ParseBytes(p.spec.VRAM)
		if err != nil {
			err = fmt.Errorf("vram: %w", err)
		}
		return bytes, true, err
	}
	return p.on.FreeMemory()
}

// refuse says what is missing, and what would fit.
func (p *prepared) refuse(room int64, s sizes) error {
	need, again := p.need, p.way
	hint := ""
	if room <= 0 { // what is free is less than what the driver or system needs for itself
		room = 0
		hint = "other programs hold the memory of " + p.on.Name() + ": wait for them, end them or use another device"
	} else {
		var err error
		if hint, err = p.suggest(room, s); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: with %v the plan holds %s, %s may be held, %s too much; %s", ErrDoesNotFit, again, FormatBytes(need.Total()), FormatBytes(room), FormatBytes(need.Total()-room), hint)
}

// suggest looks for the nearest configuration that fits: another way, fewer rows, shorter ones.
func (p *prepared) suggest(room int64, s sizes) (string, error) {
	fits := func(w way, s sizes) (bool, error) {
		err := p.lay(w, s)
		return err == nil && p.need.Total() <= room, err
	}
	c := p.spec.Training
	lean := p.way
	if c.GradientCheckpointing != "auto" || lean.decoded {
		auto := way{again: graph.Offload, lossRows: leastLossRows}
		if !p.on.Capabilities().SeparateHost {
			auto.again = graph.RecomputeLayers
		}
		if ok, err := fits(auto, s); ok || err != nil {
			keys := "training.gradient_checkpointing: auto"
			if lean.decoded {
				keys += " with training.decoded_weights: auto"
			}
			return fmt.Sprintf("%s would fit, in as little as %s", keys, FormatBytes(p.need.Total())), err
		}
	}
	B, T, _ := p.loader.Shape()
	for rows := B / 2; rows >= 1; rows /= 2 {
		if ok, err := fits(lean, s.of(rows, T)); ok || err != nil {
			return fmt.Sprintf("training.batch_size: %d would fit, in %s (with gradient_accumulation_steps: %d for about the same step)",
				rows, FormatBytes(p.need.Total()), (c.GradientAccumulationSteps*B+rows-1)/rows), err
		}
	}
	for length := T / 2; p.trains(length); length /= 2 {
		if ok, err := fits(lean, s.of(1, length)); ok || err != nil {
			return fmt.Sprintf("dataset.max_length: %d and training.batch_size: 1 would fit, in %s", length, FormatBytes(p.need.Total())), err
		}
	}
	hint := fmt.Sprintf("no batch is small enough: weights, adapter and optimizer alone take %s; use a model with fewer parameters", FormatBytes(p.need.Total()-p.need.Arena))
	if p.net.Scheme == nil {
		hint += ", or adapter: qlora"
	}
	return hint, nil
}

// trains tells whether rows cut to a length leave anything to train on.
func (p *prepared) trains(length int) bool {
	for _, row := range p.data.Train {
		for _, l := range row.Labels[:min(max(length, 0), len(row.Labels))] {
			if l != dataset.Ignore {
				return true
			}
		}
	}
	return false
}

// of is the same with at most so many rows of so many tokens.
func (s sizes) of(rows, length int) sizes {
	less := func(x shape) shape {
		if x.Tokens == 0 {
			return x
		}
		x.Tokens = min(x.Tokens, rows*length)
		x.Sequences, x.MaxLen = min(x.Sequences, x.Tokens), min(x.MaxLen, length)
		return x
	}
	return sizes{less(s.train), less(s.eval)}
}

// String names a way by the keys that ask for it.
func (w way) String() string {
	parts := []string{"gradient_checkpointing " + w.again.String()}
	if w.layers > 0 {
		parts[0] += fmt.Sprintf(" in the first %d layers", w.layers)
	}
	switch {
	case w.linears > 0:
		parts = append(parts, fmt.Sprintf("decoded weights in the first %d linear layers", w.linears))
	case w.decoded:
		parts = append(parts, "decoded weights")
	}
	if w.lossRows > 0 {
		parts = append(parts, fmt.Sprintf("the loss of %d rows at a time", w.lossRows))
	}
	return strings.Join(parts, ", ")
}
