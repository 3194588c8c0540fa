//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// served is a running `trainer serve`.
type served struct {
	cmd    *exec.Cmd
	url    string
	errOut *bytes.Buffer
}

func startServer(t *testing.T, dir string, env []string, args ...string) *served {
	t.Helper()
	s := &served{cmd: program(dir, append([]string{"serve", "--port", "0", "--json", "--device", "cpu"}, args...)...),
		errOut: &bytes.Buffer{}}
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stderr = s.errOut
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	var ready struct {
		URL    string
		Models []string
	}
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		_ = s.cmd.Wait()
		t.Fatalf("%v\n%s", err, s.errOut)
	}
	s.url = ready.URL
	return s
}

// ask posts a body and returns the first choice's text.
func (s *served) ask(t *testing.T, path, body, key string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer a.Body.Close()
	raw, _ := io.ReadAll(a.Body)
	var got struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil || a.StatusCode != 200 || len(got.Choices) == 0 {
		t.Errorf("%d %s", a.StatusCode, raw)
		return ""
	}
	return got.Choices[0].Text + got.Choices[0].Message.Content
}

// end sends a signal and returns the exit code.
func (s *served) end(sig os.Signal) int {
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// servePlace is chatPlace with two trained adapters.
func servePlace(t *testing.T) string {
	t.Helper()
	dir := chatPlace(t)
	for _, name := range []string{"out", "two"} {
		rate := map[string]string{"out": "0.02", "two": "0.1"}[name]
		if code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "--set", "output_dir="+name, "--set",
			"training.learning_rate="+rate); code != 0 {
			t.Fatal(errOut)
		}
	}
	return dir
}

// TestServeAnswersAsGenerate: the same prompt, seed and adapter give the same text by the server, 64 clients at once,
// as by `trainer generate`, greedy and sampled, texts and conversations.
func TestServeAnswersAsGenerate(t *testing.T) {
	t.Parallel()
	dir := servePlace(t)
	s := startServer(t, dir, []string{apiKeyVariable + "=k"}, "--model", "model", "--adapter", "one=out", "--adapter",
		"two", "--slots", "5", "--max-length", "128")
	type kind struct {
		body string
		path string
		args []string
	}
	var kinds []kind
	for model, flags := range map[string][]string{"model": nil, "one": {"--adapter", "out"},
		"two": {"--adapter", "two"}} {
		for _, sampled := range []bool{false, true} {
			flags := append([]string{"--model", "model", "--max-tokens", "24"}, flags...)
			rest := `"max_tokens":24,"temperature":0`
			if sampled {
				flags = append(flags, "--temperature", "0.9", "--top-p", "0.9", "--seed", "11")
				rest = `"max_tokens":24,"temperature":0.9,"top_p":0.9,"seed":11`
			}
			kinds = append(kinds,
				kind{fmt.Sprintf(`{"model":%q,"prompt":"Once upon a time",%s}`, model, rest), "/completions",
					slices.Concat(flags, []string{"--prompt", "Once upon a time"})},
				kind{fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Tell me of a cat"}],%s}`, model,
					rest), "/chat/completions", slices.Concat(flags, []string{"--chat", "--prompt",
					"Tell me of a cat"})})
		}
	}
	want := make([]string, len(kinds))
	different := map[string]bool{}
	for i, k := range kinds {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--json", "--device", "cpu"},
			k.args...)...)
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatal(code, err, errOut)
		}
		want[i] = got.Text
		different[got.Text] = true
	}
	if len(different) < 8 {
		t.Errorf("the adapters and seeds give only %d different answers", len(different))
	}
	var wg sync.WaitGroup
	for client := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			i := client % len(kinds)
			if got := s.ask(t, kinds[i].path, kinds[i].body, "k"); got != want[i] {
				t.Errorf("client %d: %q, generate %q: %s", client, got, want[i], kinds[i].body)
			}
		}()
	}
	wg.Wait()
	if code := s.end(syscall.SIGTERM); code != exitTerminated {
		t.Errorf("exit code %d after SIGTERM\n%s", code, s.errOut)
	}
	for _, line := range []string{"2 adapters; 5 slots of 128 tokens", "  kv cache ", "  total ",
		"no more requests are taken"} {
		if !strings.Contains(s.errOut.String(), line) {
			t.Errorf("no %q in\n%s", line, s.errOut)
		}
	}
}

// TestServeEndsGracefully: what runs at the first signal is finished, new requests are refused, the second signal cuts.
func TestServeEndsGracefully(t *testing.T) {
	dir := chatPlace(t)
	const long = `{"model":"model","prompt":"Once","max_tokens":400,"temperature":1,"seed":%d,"logit_bias":{"2":-100,"1":-100}}`
	s := startServer(t, dir, nil, "--model", "model", "--slots", "1")
	got := make(chan string, 1)
	go func() { got <- s.ask(t, "/completions", fmt.Sprintf(long, 1), "") }()
	waitRunning(t, s)
	if code := s.end(os.Interrupt); code != exitInterrupt {
		t.Errorf("exit code %d\n%s", code, s.errOut)
	}
	if text := <-got; len(text) < 400 {
		t.Errorf("the answer was cut: %d bytes", len(text))
	}
}

// waitRunning waits until a sequence has a slot.
func waitRunning(t *testing.T, s *served) {
	t.Helper()
	for range 500 {
		a, err := http.Get(strings.TrimSuffix(s.url, "/v1") + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if strings.Contains(string(text), "trainer_slots_running 1\n") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no sequence runs")
}

// TestBrokenServe: what is wrong with the command line, with the whole words and the exit code.
func TestBrokenServe(t *testing.T) {
	dir := chatPlace(t)
	put(t, dir, map[string]string{"a/adapter_config.json": "{}"})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "name a model: --model DIR, or an adapter that names its base model: --adapter DIR"},
		{[]string{"--model", "model", "--port", "70000"}, 2, "--port 70000: must lie in 0 to 65535"},
		{[]string{"--model", "model", "--slots", "257"}, 2, "--slots 257: must lie in 0 to 256"},
		{[]string{"--model", "model", "--max-length", "-1"}, 2, "--max-length -1: must be 0 or more"},
		{[]string{"--model", "model", "--queue", "0"}, 2, "--queue 0: must be at least 1"},
		{[]string{"--model", "model", "--timeout", "0s"}, 2, "--timeout 0s: must be above 0"},
		{[]string{"--model", "model", "--grace", "-1s"}, 2, "--grace -1s: must be 0 or more"},
		{[]string{"--model", "model", "--api-key", " "}, 2,
			"--api-key: the key is empty; leave the flag out to ask for none"},
		{[]string{"--model", "model", "--allow-origin", "example.org"}, 2,
			"--allow-origin example.org: want an origin such as https://example.org, or *"},
		{[]string{"--model", "model", "--quantization", "nf5"}, 2, "--quantization nf5: must be one of fp4, int8, nf4"},
		{[]string{"--model", "model", "--device", "tpu"}, 2, "--device tpu: must be one of auto, cpu, cuda"},
		{[]string{"--model", "model", "--adapter-only"}, 2, "--adapter-only: want one --adapter, got 0"},
		{[]string{"--model", "model", "--adapter", "x="}, 2, "--adapter x=: want NAME=DIR, or DIR alone"},
		{[]string{"--model", "model", "--adapter", "gone"}, 2, "--adapter gone: no adapter folder in PEFT's format: " +
			"stat gone/adapter_config.json: no such file or directory"},
		{[]string{"--model", "model", "--adapter", "x=a", "--adapter", "x=a"}, 2,
			"--adapter x=a: the name x is taken: give it another, --adapter OTHER=a"},
		{[]string{"--model", "model", "--served-model-name", "a", "--adapter", "a=a"}, 2,
			"two models are named a: --served-model-name or --adapter NAME=DIR gives one of them another name"},
		{[]string{"--model", "gone/none"}, 3, "*find model gone/none: there is no folder of that name"},
		{[]string{"--model", "model", "--chat-template", "nosuch"}, 2,
			`--chat-template is "nosuch", want one of default, chatml, vicuna, zephyr, or a .jinja file`},
		{[]string{"--model", "model", "--host", "203.0.113.7"}, 3, "*listen on 203.0.113.7 port 0: "},
		{[]string{"--model", "model", "--max-length", "128", "words"}, 2,
			`trainer serve takes no argument, got "words"; name an adapter by --adapter DIR, a model by --model DIR`},
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"serve", "--port", "0"}, c.args...)...)
		begin, part := strings.CutPrefix(c.want, "*") // the rest is the system's or speaks of a folder of the test
		if code != c.code || out != "" || part && !strings.Contains(errOut, "trainer: "+begin) || !part &&
			errOut != "trainer: "+c.want+"\n" {
			t.Errorf("%q: exit code %d, %s", c.args, code, errOut)
		}
	}
}
