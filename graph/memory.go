package graph

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/tierlora/tierlora/kernel"
)

// Bytes counts the memory of a plan or of a Memory, by category.
type Bytes struct {
	Arena  int64            // activations, gradients of activations, scratch, transient state
	Batch  int64            // a step's data
	Frozen int64            // weights that are not trained
	Host   int64            // values of a GPU run that are offloaded to host memory; not part of Total
	State  map[string]int64 // by group: parameters, gradients, moments, caches

	HostState map[string]int64 // by group: State of a GPU run in host memory (Value.Movable); not part of Total
	Movable   int64            // bytes of State that could be HostState instead; part of Total
}

// Total returns the sum of all categories.
func (b Bytes) Total() int64 {
	n := b.Arena + b.Batch + b.Frozen
	for _, s := range b.State {
		n += s
	}
	return n
}

// Offloaded returns the bytes of State in host memory.
func (b Bytes) Offloaded() (n int64) {
	for _, s := range b.HostState {
		n += s
	}
	return n
}

// Need returns the memory that plans need when they share one Memory: the largest arena, and every input once. Where a
// batch input is longer in one plan than in another, the longest counts.
func Need(plans ...*Plan) (Bytes, error) {
	l, err := layoutInputs(plans)
	if err != nil {
		return Bytes{}, err
	}
	return l.bytes, nil
}

// TransientBytes returns the part of the arena of Need that holds groups of State (Transient).
func TransientBytes(plans ...*Plan) (int64, error) {
	l, err := layoutInputs(plans)
	if err != nil {
		return 0, err
	}
	return l.taken, nil
}

// Memory is the memory that plans run in: one arena, and the inputs by name. Plans that share a Memory share inputs of
// equal name.
type Memory struct {
	arena  []byte
	host   []byte
	inputs map[string]kernel.Tensor
	region map[string]string // the group of each State
	names  []string
	bytes  Bytes

	rank    int // of ranks that hold slices
	ranks   int
	sliced  map[string]sliced
	mu      sync.Mutex // of the rest, for weights that load at the same time
	staging map[string]kernel.Tensor
	kept    map[string]bool
}

type inputLayout struct {
	bytes  Bytes
	offset map[string]int64
	region map[string]string // "" for batch, "frozen", or the group
	typ    map[string]kernel.Type
	stored map[string]kernel.DType
	copied map[string]kernel.DType // groups with a copy in 16 bits, and its type
	names  []string
	kind   map[string]Kind
	sliced map[string]sliced // frozen values that are held in slices
	ranks  int               // that hold them
	lent   map[string]int64  // offset in the arena of each group that lies there
	taken  int64             // bytes of these groups
}

func layoutInputs(plans []*Plan) (*inputLayout, error) {
	l := &inputLayout{bytes: Bytes{State: map[string]int64{}, HostState: map[string]int64{}},
		offset: map[string]int64{}, region: map[string]string{},
		typ: map[string]kernel.Type{}, kind: map[string]Kind{}, stored: map[string]kernel.DType{},
		copied: map[string]kernel.DType{}}
	longest, err := longestOf(plans)
	if err == nil {
		l.sliced, l.ranks, err = slicesOf(plans)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		l.bytes.Arena = max(l.bytes.Arena, p.arena)
		l.bytes.Host = max(l.bytes.Host, p.host)
		for g, d := range p.store.copied {
			l.copied[g] = d
		}
		spans := map[string]*Value{}
		for _, v := range p.inputs {
			if _, ok := l.typ[v.Name]; ok {
				continue
			}
			p, v := longest[v.Name].plan, longest[v.Name].value
			l.names = append(l.names, v.Name)
			l.typ[v.Name], l.kind[v.Name], l.stored[v.Name] = v.Type, v.kind, p.stored(v).DType
			if v.span {
				l.region[v.Name] = v.group
				if v.part == "" {
					spans[v.group] = v
				} else {
					l.offset[v.Name] = l.offset[v.part]
				}
				continue
			}
			size := kernel.AlignUp(p.stored(v).Bytes())
			switch v.kind {
			case Batch:
				l.offset[v.Name] = l.bytes.Batch
				l.bytes.Batch += size
			case Frozen:
				l.offset[v.Name], l.region[v.Name] = l.bytes.Frozen, "frozen"
				l.bytes.Frozen += size
			case State:
				g := v.group
				if g == "" {
					g = "other"
				}
				of := l.bytes.State
				switch {
				case v.hosted:
					of = l.bytes.HostState
				case v.moves:
					l.bytes.Movable += size
				}
				l.offset[v.Name], l.region[v.Name] = of[g], g
				of[g] += size
			}
		}
		for g, v := range spans {
			if l.bytes.State[g] < v.Type.Bytes() {
				return nil, fmt.Errorf("the span of %q is %v, its members hold %d bytes", g, v.Type, l.bytes.State[g])
			}
		}
	}
	for g, d := range l.copied {
		l.bytes.State[copyOf(g, d)] = l.bytes.State[g] / 2
	}
	for _, p := range plans {
		if p.constants > 0 {
			l.bytes.State["constants"] = p.constants
		}
	}
	l.lend(plans)
	return l, nil
}

// lend moves transient groups of State into the arena, behind the values of the plans that use them.
func (l *inputLayout) lend(plans []*Plan) {
	l.lent = map[string]int64{}
	var end int64
	for _, g := range l.bytes.Groups() {
		users := plansOf(plans, g)
		if _, copied := l.copied[g]; copied || len(users) == 0 || slices.ContainsFunc(users, func(p *Plan) bool {
			return !slices.Contains(p.transient, g)
		}) {
			continue
		}
		for _, p := range users {
			end = max(end, kernel.AlignUp(p.arena))
		}
		l.lent[g] = l.bytes.State[g]
	}
	for _, g := range slices.Sorted(maps.Keys(l.lent)) {
		size := l.lent[g]
		l.lent[g] = end
		delete(l.bytes.State, g)
		end += size
		l.taken += size
	}
	if len(l.lent) > 0 {
		l.bytes.Arena = max(l.bytes.Arena, end)
	}
}

// plansOf returns the plans that use a group of State.
func plansOf(plans []*Plan, group string) []*Plan {
	return slices.DeleteFunc(slices.Clone(plans), func(p *Plan) bool {
		return !slices.ContainsFunc(p.inputs, func(v *Value) bool { return v.kind == State && v.group == group })
	})
}

// planned is an input of a plan.
type planned struct {
	plan  *Plan
	value *Value
}

// longestOf returns the inputs of plans by their names, where a batch's input is of several lengths the longest.
func longestOf(plans []*Plan) (map[string]planned, error) {
	longest := map[string]planned{}
	for _, p := range plans {
		for _, v := range p.inputs {
			at, ok := longest[v.Name]
			if !ok {
				longest[v.Name] = planned{p, v}
				continue
			}
			a, b := at.value, v
			vectors := a.kind == Batch && len(a.Type.Shape) == 1 && len(b.Type.Shape) == 1 &&
				a.Type.DType == b.Type.DType
			if a.kind != b.kind || at.plan.stored(a).DType != p.stored(b).DType || !vectors && !a.Type.Equal(b.Type) {
				return nil, fmt.Errorf("two plans that share memory see %q as %v and %v", v.Name, a.Type, b.Type)
			}
			if a.Type.Elems() < b.Type.Elems() {
				longest[v.Name] = planned{p, v}
			}
		}
	}
	return longest, nil
}

// copyOf names a group's copy.
func copyOf(group string, d kernel.DType) string { return group + " in " + d.String() }

// NewMemory allocates what Need says, zeroed.
func NewMemory(plans ...*Plan) (*Memory, error) {
	l, err := layoutInputs(plans)
	if err != nil {
		return nil, err
	}
	m := &Memory{arena: kernel.Alloc(l.bytes.Arena), host: kernel.Alloc(l.bytes.Host),
		inputs: map[string]kernel.Tensor{}, region: l.region, names: l.names, bytes: l.bytes,
		sliced: l.sliced, ranks: l.ranks, staging: map[string]kernel.Tensor{}, kept: map[string]bool{}}
	batch, frozen := kernel.Alloc(l.bytes.Batch), kernel.Alloc(l.bytes.Frozen)
	kernel.LargePages(frozen)
	state := map[string][]byte{}
	for _, groups := range []map[string]int64{l.bytes.State, l.bytes.HostState} {
		for g, n := range groups {
			state[g] = kernel.Alloc(n)
		}
	}
	for _, name := range l.names {
		var region []byte
		switch l.kind[name] {
		case Batch:
			region = batch
		case Frozen:
			region = frozen
		default:
			region = state[l.region[name]]
			if at, ok := l.lent[l.region[name]]; ok {
				region = m.arena[at:]
			}
		}
		m.inputs[name] = kernel.NewTensor(l.typ[name], region[l.offset[name]:])
	}
	if one, ok := m.inputs["one"]; ok {
		setOne(one)
	}
	return m, nil
}

func setOne(t kernel.Tensor) {
	if t.DType == kernel.F64 {
		t.F64()[0] = 1
	} else {
		t.F32()[0] = 1
	}
}

// Tensor returns the memory of a batch, frozen or state value by its name. For a value that is sharded across ranks it
// returns the whole value until Put.
func (m *Memory) Tensor(name string) (kernel.Tensor, error) {
	if t, ok := m.inputs[name]; ok {
		return t, nil
	}
	if _, ok := m.sliced[name]; ok {
		return m.staged(name)
	}
	return kernel.Tensor{}, fmt.Errorf("no plan uses a tensor named %q", name)
}

// Clear zeroes a group of State.
func (m *Memory) Clear(group string) error {
	for name, g := range m.region {
		if g == group {
			clear(m.inputs[name].Bytes())
		}
	}
	return nil
}

// Names returns the names of the inputs that any plan uses, sorted.
func (m *Memory) Names() []string {
	names := append([]string(nil), m.names...)
	sort.Strings(names)
	return names
}

// Bytes returns the allocated memory, which equals the result of Need.
func (m *Memory) Bytes() Bytes { return m.bytes }

// Run is a plan bound to memory. Running it allocates nothing.
type Run struct {
	plan     *Plan
	segments map[string][]func()
	calls    map[string][]*call
	values   map[*Value]kernel.Tensor
	cpu      *kernel.CPU
}

// Bind gives a plan its memory and binds every kernel's CPU body to it.
func (p *Plan) Bind(m *Memory, cpu *kernel.CPU) (*Run, error) {
	if m.bytes.Arena < p.arena {
		return nil, fmt.Errorf("the plan needs an arena of %d bytes, the memory has %d", p.arena, m.bytes.Arena)
	}
	r := &Run{plan: p, cpu: cpu, segments: map[string][]func(){}, calls: map[string][]*call{},
		values: map[*Value]kernel.Tensor{}}
	for _, v := range p.inputs {
		t, err := m.Tensor(v.Name)
		if err != nil {
			return nil, err
		}
		if t.Elems() < v.Type.Elems() {
			return nil, errShort(v, t.Type)
		}
		r.values[v] = kernel.NewTensor(v.Type, t.Bytes())
	}
	for _, c := range p.calls {
		in, out := make([]kernel.Tensor, len(c.in)), make([]kernel.Tensor, len(c.out))
		for i, v := range c.in {
			t, ok := r.values[v]
			if !ok {
				return nil, fmt.Errorf("%v reads %s before anything writes it", c, v.Name)
			}
			in[i] = t
		}
		for i, v := range c.out {
			if root := root(v); root.kind != Computed || root.host && root != v {
				r.values[v] = r.values[root]
			} else if root.host {
				r.values[v] = kernel.NewTensor(v.Type, m.host[p.place[v].offset:])
			} else {
				r.values[v] = kernel.NewTensor(v.Type, m.arena[p.place[v].offset:])
			}
			out[i] = r.values[v]
		}
		cpu.Scratch = nil
		if s, ok := p.scratch[c]; ok {
			cpu.Scratch = m.arena[s.offset : s.offset+s.size]
		}
		name := p.segments[c.segment]
		r.segments[name] = append(r.segments[name], c.kernel.CPU(cpu, in, out))
		r.calls[name] = append(r.calls[name], c)
	}
	return r, nil
}

func errShort(v *Value, held kernel.Type) error {
	return fmt.Errorf("the plan reads %s as %v, the memory holds %v", v.Name, v.Type, held)
}

// Run runs segments one after the other. It returns the error of a collective operation.
func (r *Run) Run(segments ...string) error {
	for _, s := range segments {
		for _, f := range r.segments[s] {
			f()
		}
		if err := r.cpu.Err(); err != nil {
			return fmt.Errorf("segment %s: %w", s, err)
		}
	}
	return nil
}

// Each runs a segment call by call and passes each call's name and outputs to see, for profiles and tests.
func (r *Run) Each(segment string, see func(name string, out []kernel.Tensor)) {
	for i, f := range r.segments[segment] {
		f()
		c := r.calls[segment][i]
		out := make([]kernel.Tensor, len(c.out))
		for j, v := range c.out {
			out[j] = r.values[v]
		}
		see(c.String(), out)
	}
}

// Tensor returns the memory of an input, or of an output that Compile was given.
func (r *Run) Tensor(v *Value) kernel.Tensor { return r.values[v] }

// Groups returns the names of the state groups, sorted.
func (b Bytes) Groups() []string {
	names := make([]string, 0, len(b.State))
	for g := range b.State {
		names = append(names, g)
	}
	sort.Strings(names)
	return names
}
