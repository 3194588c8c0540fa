package dataset_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// The goldens are gsm8k rows as ids and labels [80,128], made with transformers and the stories260K vocabulary.
const (
	goldenRows = 80
	goldenT    = 128
)

func goldenTensor(t *testing.T, name string) []int32 {
	t.Helper()
	return tensor(t, golden.Path(t, "train/batches.safetensors"), name, goldenRows)
}

// tensor reads an I32 tensor [rows,goldenT] of a safetensors file.
func tensor(t *testing.T, path, name string, rows int) []int32 {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		DType       string `json:"dtype"`
		Shape       []int  `json:"shape"`
		DataOffsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(file[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	h := header[name]
	if h.DType != "I32" || !slices.Equal(h.Shape, []int{rows, goldenT}) {
		t.Fatalf("%s is %s %v", name, h.DType, h.Shape)
	}
	data := file[8+n:][h.DataOffsets[0]:h.DataOffsets[1]]
	values := make([]int32, len(data)/4)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values
}

func stories(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load("../configs/assets/stories260K")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func goldenConfig() dataset.Config {
	cfg := dataset.Default()
	cfg.Path, cfg.MaxLength, cfg.Shuffle, cfg.PadTo = "testdata/gsm8k_80.jsonl.gz", goldenT, false, dataset.PadMaxLength
	return cfg
}

// TestGoldenBatches rebuilds the rows that the reference curves were trained on, four a batch, token by token.
func TestGoldenBatches(t *testing.T) {
	ids, labels := goldenTensor(t, "input_ids"), goldenTensor(t, "labels")
	set, report, err := dataset.Load(context.Background(), goldenConfig(), stories(t))
	if err != nil {
		t.Fatal(err)
	}
	if report.Kept != goldenRows || report.Format != "completion" {
		t.Fatalf("%v", report)
	}
	set.PadID = 0 // as the goldens are padded
	loader, err := set.TrainLoader(4)
	if err != nil {
		t.Fatal(err)
	}
	for step := range goldenRows / 4 {
		window, _, err := loader.NextWindow(1)
		if err != nil {
			t.Fatal(err)
		}
		b := window[0]
		from, to := step*4*goldenT, (step+1)*4*goldenT
		if !slices.Equal(b.IDs, ids[from:to]) {
			t.Errorf("step %d: ids differ", step)
		}
		if !slices.Equal(b.Labels, labels[from:to]) {
			t.Errorf("step %d: labels differ", step)
		}
	}
}

// TestGoldenBatchesEndToEnd: the same batches without their padding.
func TestGoldenBatchesEndToEnd(t *testing.T) {
	cfg := goldenConfig()
	cfg.PadTo = dataset.PadNone
	set, _, err := dataset.Load(context.Background(), cfg, stories(t))
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(4)
	if err != nil {
		t.Fatal(err)
	}
	loader.ChooseBudgets(1000, dataset.MaxBudgets)
	ids, labels := goldenTensor(t, "input_ids"), goldenTensor(t, "labels")
	for step := range goldenRows / 4 {
		window, _, err := loader.NextWindow(1)
		if err != nil {
			t.Fatal(err)
		}
		b := window[0]
		for row := range 4 {
			from, to := int(b.CuSeqlens[row]), int(b.CuSeqlens[row+1])
			at := (4*step + row) * goldenT
			if !slices.Equal(b.IDs[from:to], ids[at:at+to-from]) || !slices.Equal(b.Labels[from:to], labels[at:at+to-from]) {
				t.Errorf("step %d, row %d differs", step, row)
			}
			for _, l := range labels[at+to-from : at+goldenT] {
				if l != dataset.Ignore {
					t.Errorf("step %d, row %d: a trained token is cut off", step, row)
				}
			}
		}
	}
	t.Logf("budgets %v, %.2f %% padding", loader.Shape().Budgets, 100*(1-loader.Efficiency(0)))
}

// TestGoldenPacked finds every golden row again in the packed sequences.
func TestGoldenPacked(t *testing.T) {
	cfg := goldenConfig()
	cfg.Shuffle, cfg.Packing = true, true
	set, report, err := dataset.Load(context.Background(), cfg, stories(t))
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(4)
	if err != nil {
		t.Fatal(err)
	}
	trained := 0
	for b := range loader.Epoch(0) {
		trained += b.TrainedTokens
	}
	want := 0
	for _, l := range goldenTensor(t, "labels") {
		if l != dataset.Ignore {
			want++
		}
	}
	if trained != want || report.TrainedTokens != int64(want) {
		t.Errorf("packed rows train %d tokens, the report says %d, the goldens have %d", trained, report.TrainedTokens, want)
	}
}

// TestPadIsEOS: with one id for both, the end of an answer is trained and the padding is not.
func TestPadIsEOS(t *testing.T) {
	tok := padIsEOS{stories(t)}
	eos, _ := tok.EOS()
	set, _, err := dataset.Load(context.Background(), goldenConfig(), tok)
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(1)
	if err != nil {
		t.Fatal(err)
	}
	ends, pads := 0, 0
	for b := range loader.Epoch(0) {
		for i := range b.IDs {
			if b.IDs[i] == eos && b.Labels[i] == eos {
				ends++
				if i != b.Tokens-1 {
					t.Errorf("row %v: token %d of %d is trained as an end", b.Rows, i, b.Tokens)
				}
			} else if b.IDs[i] == eos {
				pads++
			}
		}
	}
	if ends == 0 || pads == 0 {
		t.Errorf("%d ends and %d pads: the rows prove nothing", ends, pads)
	}
}

type padIsEOS struct{ *tokenizer.Tokenizer }

func (p padIsEOS) PAD() (int32, bool) { return p.EOS() }

// TestBuiltInData loads the rows that come with the binary.
func TestBuiltInData(t *testing.T) {
	cfg := dataset.Default()
	cfg.Path, cfg.MaxLength, cfg.ValSplit = "gsm8k_300.jsonl", 256, 0.1
	set, report, err := dataset.LoadFS(context.Background(), os.DirFS(filepath.Dir(golden.Rows(t))), cfg, stories(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + report.String())
	if report.Duplicates != 0 {
		t.Errorf("%d rows repeat others", report.Duplicates)
	}
	if report.Rows != 300 || set.Train.Len()+set.Val.Len() != report.Kept || report.Kept+report.DroppedRows() != 300 {
		t.Errorf("%d train, %d val\n%v", set.Train.Len(), set.Val.Len(), report)
	}
}

// TestInspectGolden: the texts of the tokens make the decoded row, whatever the tokenizer does with spaces and bytes.
func TestInspectGolden(t *testing.T) {
	tok := stories(t)
	cfg := goldenConfig()
	cfg.Path = "odd.jsonl"
	odd := `{"prompt":"  two  spaces","completion":"naïve 東京\n\n👩‍💻 🙂"}`
	set, _, err := dataset.LoadFS(context.Background(), fstest.MapFS{"odd.jsonl": {Data: []byte(odd)}}, cfg, tok)
	if err != nil {
		t.Fatal(err)
	}
	golden, _, err := dataset.Load(context.Background(), goldenConfig(), tok)
	if err != nil {
		t.Fatal(err)
	}
	rows := dataset.Memory{set.Train.Row(0)}
	for n := range golden.Train.Len() {
		rows = append(rows, golden.Train.Row(n))
	}
	set.Train = rows
	for n := range set.Train.Len() {
		row, tokens, err := set.Inspect(n, tok)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, token := range tokens {
			all.WriteString(token.Text)
		}
		if want := tok.Decode(row.IDs, false); all.String() != want {
			t.Errorf("row %d: the texts make\n%q, want\n%q", n, all.String(), want)
		}
	}
}
