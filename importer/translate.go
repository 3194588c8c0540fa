package importer

import (
	"math"
	"slices"
	"strings"
)

// rule translates one key.
type rule func(t *translation, e entry)

// translation is a Result under construction.
type translation struct {
	Options
	in      *Input
	keys    map[string]Counterpart
	at      map[string]int // index in settings of our paths
	given   map[string]entry
	set     []Setting
	entries []Entry
	data    []Map  // sources of training rows
	val     []Map  // sources of validation rows
	several bool   // there are several data sets to read
	note    string // an additional note about the data
	refused string
	// objective is our objective for a file of preference training; "" = the file trains rows.
	objective string
	own       map[string]rule // the objective's own rules
	peft      *peftMethod     // the file's adapter method beside LoRA; nil = LoRA
	// all is the entry that asks for training the base model's own weights; nil = an adapter is trained.
	all *entry
}

// Translate translates a file into our settings and records for every key what happened to it. Keys that the file
// leaves out get the program's own defaults.
func Translate(in *Input, o Options) Result {
	t := &translation{Options: o, in: in, keys: Keys(), at: map[string]int{}, given: map[string]entry{}}
	for _, e := range in.entries {
		t.given[e.Key] = e
	}
	setObjective(t)
	t.peft = methodOf(in)
	for _, e := range in.entries {
		t.key(e)
	}
	t.sources()
	t.validationSources()
	for _, p := range in.Program.defaults(in) {
		t.defaultOf(p)
	}
	if t.in.trainsRows() {
		if _, said := t.given["assistant_only_loss"]; !said {
			first := len(t.entries)
			wholeConversations(t,
				entry{Pair: Pair{Key: "assistant_only_loss", Value: false}, shown: "assistant_only_loss",
					peers: t.in.Program.Title})
			for i := first; i < len(t.entries); i++ {
				t.entries[i].Default = true
			}
		}
	}
	t.codeOfRows()
	t.otherWeights()
	t.uncut()
	t.separator()
	t.finish()
	nameMethod(t)
	t.classify()
	return Result{in.Program, t.set, t.entries, t.refused}
}

// defaultOf translates a default of the program, unless the file sets the key or our key of the same meaning.
func (t *translation) defaultOf(p Pair) {
	bare := bareKey(p.Key)
	if e, ok := t.given[bare]; ok && e.Value != nil {
		return
	}
	if bare == "warmup_ratio" && t.given["warmup_steps"].Value != nil {
		return
	}
	n, before := len(t.entries), len(t.set)
	t.key(entry{Pair: Pair{Key: bare, Value: p.Value}, shown: p.Key, peers: t.in.Program.Title})
	if len(t.set) == before { // the file sets it by another key
		t.entries = t.entries[:n]
	}
	for i := n; i < len(t.entries); i++ {
		t.entries[i].Default = true
	}
}

// bareKey returns "r" for "get_peft_model(r)".
func bareKey(key string) string {
	if _, inside, ok := strings.Cut(key, "("); ok {
		return strings.TrimSuffix(inside, ")")
	}
	return key
}

// key translates one key by the first match of: the program's rule, the rule for all programs, our key of that name,
// the table of names.
func (t *translation) key(e entry) {
	plain := strings.ReplaceAll(strings.ToLower(e.Key), "-", "_")
	r, special := t.own[plain]
	if !special && t.peft != nil {
		r, special = t.peft.rules[plain]
	}
	if !special {
		r, special = t.in.Program.rules[plain]
	}
	if !special {
		r, special = preferenceRule(t, plain)
	}
	if !special && !t.in.Program.nested {
		if r, special = common[plain]; !special {
			r, special = trackers[plain]
		}
	}
	if say, inside := section(plain); t.in.Program.nested && !special && inside {
		if isOff(e.Value) {
			t.off(e)
		} else {
			t.missing(e, say)
		}
		return
	}
	c, known := t.keys[plain]
	own := t.Own(plain)
	switch {
	case special && e.peers == "" && isEmpty(e.Value):
		t.off(e)
	case special:
		r(t, e)
	case isEmpty(e.Value), isOff(e.Value) && own == "" && (c.Key == "" || c.Say != ""):
		t.off(e)
	case own != "":
		t.take(e, own)
	case known && c.Key != "" && c.Say == "":
		t.take(e, c.Key)
	case known && c.Key != "":
		t.missing(e, "not translated; "+c.Say)
	case known:
		t.missing(e, c.Say)
	default:
		t.missing(e, "no key of this name is known; look in docs/CONFIG.md for what it does")
	}
}

// isOff reports whether a value switches something off.
func isOff(v any) bool {
	switch v := v.(type) {
	case bool:
		return !v
	case string:
		return v == "none" || v == "no" || v == ""
	case int64:
		return v == 0
	case float64:
		return v == 0
	}
	return isEmpty(v)
}

// isEmpty reports whether a value is empty.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case Map:
		return len(v) == 0
	}
	return false
}

func (t *translation) add(g Group, e entry, to string, as any, say string) {
	if e.silent {
		return
	}
	x := Entry{Group: g, Key: e.shown, Value: Text(e.Value), Line: e.Line, To: to, Say: say}
	if to != "" && as != nil {
		x.As = Text(as)
	}
	t.entries = append(t.entries, x)
}

// off records that a key is not set.
func (t *translation) off(e entry) {
	if e.peers == "" {
		t.add(Taken, e, "", nil, "not set")
	}
}

// refuse records that a key makes the file another kind of training.
func (t *translation) refuse(e entry) {
	t.refused = e.shown + ": " + Text(e.Value)
	t.missing(e, t.keys["stage"].Say)
}

// missing records why the value of a key is not taken.
func (t *translation) missing(e entry, say string) { t.add(Missing, e, "", nil, say) }

// take takes a value unchanged.
func (t *translation) take(e entry, path string) { t.put(e, path, e.Value, "") }

// put sets one of our keys; say is the difference from the other program's value, if any.
func (t *translation) put(e entry, path string, v any, say string) {
	if _, unknown := v.(Code); unknown {
		t.missing(e, "an expression, which is not worked out: give "+path+" its value")
		return
	}
	path, has := ofMethod(t, e, path)
	if !has {
		return
	}
	as, ok := fit(v, t.Kind(path))
	if !ok {
		t.missing(e, "the value is not one that "+path+" can take; give it by hand")
		return
	}
	if i, twice := t.at[path]; twice {
		switch {
		case e.peers != "":
		case Text(t.set[i].Value) == Text(as):
			t.add(Taken, e, path, as, "as given by "+t.set[i].From)
		default:
			t.add(Different, e, path, t.set[i].Value, t.set[i].From+" is taken, which says otherwise")
		}
		return
	}
	t.at[path] = len(t.set)
	from := e.shown
	if e.peers != "" {
		from = e.peers + "'s default of " + e.shown
	}
	t.set = append(t.set, Setting{path, as, from})
	g := Taken
	if say != "" {
		g = Different
	}
	t.add(g, e, path, as, say)
}

// has reports whether one of our keys has a value already.
func (t *translation) has(path string) bool { _, ok := t.at[path]; return ok }

// value returns the value of one of our keys, nil if it is not set.
func (t *translation) value(path string) any {
	if i, ok := t.at[path]; ok {
		return t.set[i].Value
	}
	return nil
}

// drop removes a setting and records why.
func (t *translation) drop(path, say string) {
	i, ok := t.at[path]
	if !ok {
		return
	}
	t.set = slices.Delete(t.set, i, i+1)
	delete(t.at, path)
	for p, j := range t.at {
		if j > i {
			t.at[p] = j - 1
		}
	}
	refuse(t.entries, path, say)
}

// dropUnread is drop for settings that the other program does not read either.
func (t *translation) dropUnread(path, say string) {
	was := map[int]bool{}
	for i, e := range t.entries {
		was[i] = e.To == path
	}
	t.drop(path, say)
	for i := range t.entries {
		if was[i] && t.entries[i].Group == Missing {
			t.entries[i].Class = Nothing
		}
	}
}

// Refuse removes a setting that our own checks reject, and records why. It returns false if no entry has this path.
func (r *Result) Refuse(path, say string) bool {
	i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Path == path })
	if i < 0 {
		return false
	}
	value := r.Settings[i].Value
	r.Settings = slices.Delete(r.Settings, i, i+1)
	if !refuse(r.Entries, path, say) { // the setting is made of several keys
		r.Entries = append(r.Entries, Entry{Group: Missing, Class: Changes, Key: path, Value: Text(value), Say: say})
	}
	return true
}

// refuse turns the entries of a removed setting into missing ones, and reports whether there were any.
func refuse(entries []Entry, path, say string) (found bool) {
	for j := range entries {
		if e := &entries[j]; e.To == path {
			e.Group, e.To, e.As, e.Say, e.Class, found = Missing, "", "", say, Changes, true
			if own, ok := classes[bareKey(e.Key)]; ok {
				e.Class = own
			}
		}
	}
	return found
}

// fit converts a value to the type that a key takes.
func fit(v any, k Kind) (any, bool) {
	if s, ok := v.(string); ok && (k == Whole || k == Number) {
		v = number(strings.TrimSpace(s))
	}
	switch k {
	case TextKind:
		s, ok := v.(string)
		return s, ok
	case Whole:
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			v = int64(f)
		}
		i, ok := v.(int64)
		return i, ok
	case Number:
		if i, ok := v.(int64); ok {
			return i, true
		}
		f, ok := v.(float64)
		return f, ok && !math.IsNaN(f) && !math.IsInf(f, 0)
	case Truth:
		if s, ok := v.(string); ok {
			switch strings.ToLower(s) {
			case "true", "yes", "on":
				return true, true
			case "false", "no", "off":
				return false, true
			}
		}
		b, ok := v.(bool)
		return b, ok
	case List:
		if s, ok := v.(string); ok {
			return s, true
		}
		list, ok := v.([]any)
		for _, e := range list {
			if _, text := e.(string); !text {
				return nil, false
			}
		}
		return list, ok
	case Table:
		m, ok := v.(Map)
		return m, ok
	case Rows:
		list, ok := v.([]any)
		return list, ok
	}
	return nil, false
}

// revisionOfModel appends a revision of the base model to its name in base_model.
func (t *translation) revisionOfModel() {
	i, named := t.at["base_model"]
	for j := range t.entries {
		e := &t.entries[j]
		key := bareKey(e.Key)
		revision, ok := t.given[key].Value.(string)
		if key != "model_revision" && key != "revision_of_model" || !named || !ok || e.Group != Missing {
			continue
		}
		if name, text := t.set[i].Value.(string); text && !strings.Contains(name, "@") {
			t.set[i].Value = name + "@" + revision
			e.Group, e.To, e.As, e.Say = Taken, "base_model", name+"@"+revision, ""
		}
	}
}

// finish resolves settings that depend on each other.
func (t *translation) finish() {
	validated := t.has("dataset.val_split") || t.has("dataset.val_path") || t.has("dataset.val_sources")
	if v := t.value("dataset.val_split"); v == int64(0) || v == 0.0 {
		validated = t.has("dataset.val_path") || t.has("dataset.val_sources")
	}
	if !validated {
		t.drop("training.eval_steps", "there are no rows to evaluate on: give dataset.val_split or dataset.val_path")
		t.drop("training.evals_per_epoch", "there are no rows to evaluate on: give dataset.val_split or "+
			"dataset.val_path")
		t.drop("training.eval_on_start", "there are no rows to evaluate on: give dataset.val_split or dataset.val_path")
	}
	if t.value("adapter") != "qlora" {
		for _, key := range []string{"bits", "type", "double_quant"} {
			t.drop("quantization."+key, "the base weights are kept as they are; adapter: qlora quantises them")
		}
	}
	t.promptsOfConversations()
	t.revisionOfModel()
	withoutDropout(t)
	finishObjective(t)
	swiftFinish(t)
	unreadByLoss(t)
	if t.has("training.warmup_steps") {
		t.dropUnread("training.warmup_ratio", "training.warmup_steps wins")
	}
	t.trackersRead()
	schedule := t.value("training.lr_scheduler")
	if schedule == "constant" {
		t.dropUnread("training.warmup_ratio",
			"the schedule constant has no warm-up, there neither; constant_with_warmup has one")
		t.dropUnread("training.warmup_steps",
			"the schedule constant has no warm-up, there neither; constant_with_warmup has one")
	}
	if schedule != "cosine_with_min_lr" && schedule != "wsd" {
		t.drop("training.min_lr_ratio", "of the schedules cosine_with_min_lr and wsd alone")
	}
	optimizersUnread(t)
}
