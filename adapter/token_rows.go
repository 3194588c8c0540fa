package adapter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// TokenRows are the tokens whose rows of the embeddings and of an untied head an adapter trains and saves, in the order
// of the file: PEFT's trainable_token_indices. The head of a tied model follows the embeddings. The zero value is none.
type TokenRows struct{ Embeddings, Head []int }

// The modules that trainable_token_indices may name, by the ends of their paths.
const (
	embeddingsModule = "embed_tokens"
	headModule       = "lm_head"
)

// tokenSuffix ends the name of trained rows in PEFT's files. They are the new rows and no difference.
const tokenSuffix = ".token_adapter.trainable_tokens_delta"

// slotsSuffix ends the name of the table that gives each token its trained row; -1 = it has none.
const slotsSuffix = ".token_adapter.slots"

// TokenRowsOf returns the tokens whose rows a configuration trains. Entries that do not validate are left out.
func TokenRowsOf(c Config) (rows TokenRows) {
	for _, text := range c.lora().TrainableTokenIndices {
		module, id, err := tokenRow(text)
		switch {
		case err != nil:
		case module == headModule:
			rows.Head = append(rows.Head, id)
		default:
			rows.Embeddings = append(rows.Embeddings, id)
		}
	}
	return rows
}

// Any reports whether rows are trained.
func (r TokenRows) Any() bool { return len(r.Embeddings)+len(r.Head) > 0 }

// tokenRow reads an entry of lora.trainable_token_indices: a token's number, or MODULE:NUMBER.
func tokenRow(text string) (module string, id int, err error) {
	module, number, named := strings.Cut(text, ":")
	if !named {
		module, number = embeddingsModule, text
	}
	number = strings.TrimSpace(number)
	if end := module[strings.LastIndexByte(module, '.')+1:]; end != embeddingsModule && end != headModule {
		return "", 0, fmt.Errorf("%q names the module %q, which is neither %s nor %s", text, module, embeddingsModule,
			headModule)
	} else if id, err = strconv.Atoi(number); err != nil || id < 0 {
		return "", 0, fmt.Errorf("%q is no number of a token, counted from 0", text)
	} else {
		return end, id, nil
	}
}

// checkTokenRows returns what is wrong with trainable_token_indices, as far as it shows without the model.
func (s LoRASettings) checkTokenRows() (problems []error) {
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("lora.trainable_token_indices: "+format, args...))
	}
	seen := map[string]bool{}
	modules := map[string]bool{}
	for _, text := range s.TrainableTokenIndices {
		module, id, err := tokenRow(text)
		if err != nil {
			bad("%w", err)
			continue
		}
		if key := fmt.Sprint(module, " ", id); seen[key] {
			bad("token %d of %s stands there twice", id, module)
		} else {
			seen[key], modules[module] = true, true
		}
	}
	for _, module := range sortedKeys(modules) {
		of := SavedModules{Names: []string{module}}
		if slices.ContainsFunc(s.ModulesToSave, of.exclude) {
			bad("it names rows of %s, which lora.modules_to_save trains in whole: leave %[1]s out of one of the two",
				module)
		}
	}
	return problems
}

// CheckModel returns an error if the rows do not fit a model. vocab is the size of its vocabulary, and tied says whether
// its head is tied to the embeddings. saved are the modules that the adapter trains in whole.
func (r TokenRows) CheckModel(vocab int, tied bool, saved SavedModules) error {
	const key = "lora.trainable_token_indices: "
	for _, id := range slices.Concat(r.Embeddings, r.Head) {
		if id >= vocab {
			return fmt.Errorf(key+"%d is no token of the model, whose vocabulary has the numbers 0 to %d", id, vocab-1)
		}
	}
	if !tied || !r.Any() {
		return nil
	}
	sorted := func(ids []int) []int { return slices.Sorted(slices.Values(ids)) }
	if r.Head != nil && !slices.Equal(sorted(r.Head), sorted(r.Embeddings)) {
		return fmt.Errorf(key+"lm_head names the tokens %v and embed_tokens %v, and the model ties the two, whose "+
			"rows are one: name the same tokens, or those of embed_tokens alone", r.Head, r.Embeddings)
	}
	if slices.ContainsFunc(saved.Names, ofVocabulary) {
		return fmt.Errorf(key+"it names rows of embeddings that the model ties to its head, and "+
			"lora.modules_to_save %v trains one of the two in whole: leave one of the keys out", saved.Names)
	}
	return nil
}

// tables wraps the embeddings and the vocabulary head of a network for an adapter that changes them.
type tables struct {
	t            *Trained
	c            Config
	rows         TokenRows
	tied         bool                 // the head is the table of the embeddings
	lora         bool                 // target_modules name embeddings or head
	own          map[string]*nn.Value // trained rows by the path of their table
	headA, headB *nn.Value            // of LoRA on the head; nil = it is not declared yet
}

// UseTables adds what an adapter of the method changes of the embeddings and of the vocabulary head to a network's
// options. head is the name of the head's weight: the embeddings' name if the two are tied.
func (m Method) UseTables(t *Trained, c Config, head string, o *nn.Options) {
	w := &tables{t: t, c: c, rows: TokenRowsOf(c), tied: head != HeadWeight, lora: m.Sums && adaptsTables(c),
		own: map[string]*nn.Value{}}
	if !w.rows.Any() && !w.lora {
		return
	}
	o.WrapEmbedding, o.WrapHead = w.embeddings, w.head
	if halves := o.Halves; halves != nil && w.lora {
		o.Halves = func(name string) kernel.DType {
			if name == head { // the update is added to it
				return 0
			}
			return halves(name)
		}
	}
}

// embeddings is the nn.Options.WrapEmbedding.
func (w *tables) embeddings(n *nn.Net, path string, vocab, width int) nn.EmbeddingLayer {
	switch {
	case !strings.HasSuffix(path, "."+embeddingsModule):
		return nil
	case w.lora && AdaptsTable(w.c, path):
		return w.embeddingLoRA(n, path, vocab, width)
	case len(w.rows.Embeddings) == 0:
		return nil
	}
	rows, slots := w.declare(n, path, w.rows.Embeddings, vocab, width)
	return func(ids, y *nn.Value, scale float64) *nn.Value {
		return n.Apply(kernel.ReplaceRows{Scale: scale}, y, rows, n.Apply(kernel.Lookup{}, ids, slots))
	}
}

// head is the nn.Options.WrapHead. A tied head has the rows of the embeddings.
func (w *tables) head(n *nn.Net, path string, weight *nn.Value) *nn.Value {
	if w.lora && AdaptsTable(w.c, headModule) {
		return w.headLoRA(n, weight)
	}
	ids := w.rows.Head
	if w.tied {
		ids = w.rows.Embeddings
	}
	if len(ids) == 0 {
		return weight
	}
	rows, slots := w.declare(n, path, ids, weight.Type.Shape[0], weight.Type.Shape[1])
	return n.Apply(kernel.ReplaceRows{}, weight, rows, slots)
}

// declare returns the trained rows of a table and the table of their numbers. A path is declared once.
func (w *tables) declare(n *nn.Net, path string, ids []int, vocab, width int) (rows, slots *nn.Value) {
	slots = n.Table(path+slotsSuffix, func(dst []int32) {
		for i := range dst {
			dst[i] = -1
		}
		for slot, id := range ids {
			dst[id] = int32(slot)
		}
	}, vocab)
	if rows = w.own[path]; rows == nil {
		name := path + tokenSuffix
		rows = w.t.param(n, name, len(ids), width)
		w.t.base = append(w.t.base, name)
		nn.RowsOf(n, path+weightSuffix, ids, rows)
		w.own[path] = rows
	}
	return rows, slots
}

// BaseUpdate returns what sets a weight of the base model to the numbers of a tensor of TrainedBase, and the path of
// the weight's module.
func BaseUpdate(c Config, p Param) (path string, m Merger) {
	path, rows := strings.CutSuffix(p.Name, tokenSuffix)
	if !rows {
		return strings.TrimSuffix(p.Name, weightSuffix), Replaces(p)
	}
	ids := TokenRowsOf(c).Embeddings
	if strings.HasSuffix(path, headModule) {
		ids = TokenRowsOf(c).Head
	}
	width, slots := p.Shape[1], map[int]int{}
	for slot, id := range ids {
		slots[id] = slot
	}
	return path, func(table []float32, from int) {
		for ; len(table) >= width; table, from = table[width:], from+1 {
			if slot, ok := slots[from]; ok {
				copy(table, p.Data[slot*width:][:width])
			}
		}
	}
}

// readTokenRows reads trainable_token_indices of adapter_config.json: a list of numbers, or lists by the names of
// modules. It returns entries of lora.trainable_token_indices.
func readTokenRows(raw json.RawMessage, bad func(format string, args ...any)) (entries []string) {
	if len(raw) == 0 || isOff(raw) {
		return nil
	}
	var ids []int
	var byModule map[string][]int
	if json.Unmarshal(raw, &ids) == nil {
		byModule = map[string][]int{"": ids}
	} else if json.Unmarshal(raw, &byModule) != nil {
		bad("trainable_token_indices is %s: no list of numbers and no lists by the names of modules", raw)
	}
	for _, module := range sortedKeys(byModule) {
		for _, id := range byModule[module] {
			entry := strconv.Itoa(id)
			if end := module[strings.LastIndexByte(module, '.')+1:]; module != "" && end != embeddingsModule {
				entry = end + ":" + entry
			}
			entries = append(entries, entry)
		}
	}
	return entries
}

// written returns trainable_token_indices of adapter_config.json; nil = it lacks the key.
func (r TokenRows) written() any {
	switch {
	case !r.Any():
		return nil
	case len(r.Head) == 0:
		return map[string][]int{embeddingsModule: r.Embeddings}
	case len(r.Embeddings) == 0:
		return map[string][]int{headModule: r.Head}
	}
	return map[string][]int{embeddingsModule: r.Embeddings, headModule: r.Head}
}

// Beyond describes what an adapter has that is no update of a linear layer's weight, after the adapter's name: whole
// modules, biases, rows of tokens, or updates of embeddings and head. Formats and combinations of such updates alone
// have no place for it. "" = nothing.
func Beyond(c Config) string {
	if names := c.Saved().Names; names != nil {
		return fmt.Sprintf("saves the modules %v in whole", names)
	}
	switch {
	case TokenRowsOf(c).Any():
		return fmt.Sprintf("trains rows of single tokens (trainable_token_indices %v)", c.lora().TrainableTokenIndices)
	case adaptsTables(c):
		return fmt.Sprintf("adapts embeddings or the vocabulary head (target_modules %v)", []string(c.TargetModules))
	case c.lora().Bias == biasAll || c.lora().Bias == biasAdapted:
		return fmt.Sprintf("trains biases (bias: %s)", c.lora().Bias)
	case c.lora().LoRABias:
		return "has biases in its updates (lora_bias)"
	}
	return ""
}
