package export

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/adapter"
)

// logitsOfLlamaCPP loads files, adapters with them, and says the logits of ids, the last ones one by one, and greedy
// texts.
const logitsOfLlamaCPP = `
import json, sys
sys.path.insert(0, sys.argv[1])
import llamacpp
q = json.load(sys.stdin)
out = []
for case in q["cases"]:
    m = llamacpp.Llama(case["model"], lora=case["lora"] or None)
    rows = m.logits(q["ids"][:-8]).tolist()
    for i in range(len(q["ids"]) - 8, len(q["ids"])):
        rows += m.decode([q["ids"][i]], i).tolist()
    out.append({"logits": rows, "new": [m.greedy(p, case["new"])[0] for p in case["prompts"] or []]})
    m.close()
print(json.dumps(out))
`

// llamaCase is a file, an adapter with it, and prompts that so many tokens are written behind.
type llamaCase struct {
	Model   string    `json:"model"`
	LoRA    string    `json:"lora"`
	Prompts [][]int32 `json:"prompts"`
	New     int       `json:"new"`
}

type llamaLogits struct {
	Logits logits    `json:"logits"`
	New    [][]int32 `json:"new"`
}

func askLogits(t *testing.T, python string, cases []llamaCase, ids []int32) []llamaLogits {
	t.Helper()
	var got []llamaLogits
	ask(t, python, logitsOfLlamaCPP, map[string]any{"cases": cases, "ids": ids}, &got)
	return got
}

// logitsOf are the scores of every next token of a text by a model, with an adapter unless that is empty.
func logitsOf(ctx context.Context, dir, lora string, ids []int32) (logits, error) {
	v := variant{name: dir}
	if lora != "" {
		v.adapter = func() (*adapter.Saved, error) { return adapter.Open(lora) }
	}
	got, err := comparison{rows: samples{texts: [][]int32{ids}}}.scores(ctx, v)
	return got.texts, err
}
