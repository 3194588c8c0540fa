package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLargeBodies: a prompt that cannot fit is refused by its bytes and its commas, before it is decoded or tokenised.
func TestLargeBodies(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{})
	long := w.lib.MaxLen
	ids := func(n int) string { return `[` + strings.Repeat("1,", n-1) + `1]` }
	for name, c := range map[string]struct{ path, body, message string }{
		"ids": {"/v1/completions", `{"model":"base","prompt":` + ids(5_200_000) + `}`,
			"the body holds more than"},
		"fewer ids": {"/v1/completions", `{"model":"base","prompt":` + ids(200_000) + `}`,
			fmt.Sprintf("prompt: the prompt has 200000 tokens, and a sequence may have %d with its answer", long)},
		"lists of ids": {"/v1/completions", `{"model":"base","prompt":[` + ids(200_000) + `]}`,
			"prompt: the prompt has 200000 tokens"},
		"many lists": {"/v1/completions", `{"model":"base","prompt":[` + strings.Repeat("[1],", 100_000) + `[1]]}`,
			"prompt: has 100001 prompts, want 1 to 256"},
		"many texts": {"/v1/completions", `{"model":"base","prompt":[` + strings.Repeat(`"a",`, 100_000) + `"a"]}`,
			"prompt: has 100001 prompts, want 1 to 256"},
		"a text": {"/v1/completions", `{"model":"base","prompt":"` + strings.Repeat("a", 10<<20) + `"}`,
			"prompt: the prompt has 10485760 bytes, more than"},
		"a message": {"/v1/chat/completions", `{"model":"base","messages":[{"role":"user","content":"` +
			strings.Repeat("a", 10<<20) + `"}]}`, "messages: the conversation has"},
		"many messages": {"/v1/chat/completions", `{"model":"base","messages":[` + strings.Repeat(`1,`, 5_000_000) +
			`1]}`, "the body holds more than"},
		"many keys": {"/v1/chat/completions", `{"model":"base","messages":[{"role":"user","content":"a"` +
			strings.Repeat(`,"":1`, 2_000_000) + `}]}`, "the body holds more than"},
		"top keys": {"/v1/completions", `{"model":"base","prompt":"a"` + strings.Repeat(`,"b":1`, 2_000_000) +
			`}`, "the body holds more than"},
		"a list of stops": {"/v1/completions", `{"model":"base","prompt":"a","stop":[` +
			strings.Repeat(`1,`, 5_000_000) + `1]}`, "the body holds more than"},
	} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status, got := w.post(t, c.path, c.body)
		runtime.ReadMemStats(&after)
		if status != 400 || !strings.Contains(got, c.message) {
			t.Errorf("%s: %d %.300s, want %q", name, status, got, c.message)
		}
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > uint64(24+8*len(c.body)>>20) {
			t.Errorf("%s: %d MB are allocated for a body of %d MB", name, mb, len(c.body)>>20)
		}
	}
}

// TestBodiesTogether: bodies that are more than a server takes at once are refused with 429, and small ones are
// answered meanwhile.
func TestBodiesTogether(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{MaxBody: 4 << 20, MaxBodies: 8 << 20})
	// Six clients send 3 MB and stop before the end.
	for range 6 {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n", 3<<20+1)
		go io.WriteString(c, strings.Repeat(" ", 3<<20)) //nolint:errcheck // the server may hang up
	}
	for i := 0; w.intake.held.Load() < 4<<20; i++ {
		if time.Sleep(time.Millisecond); i == 10000 {
			t.Fatal("the bodies never came")
		}
	}
	if status, _ := w.post(t, "/v1/completions", `{"model":"base","prompt":"a","max_tokens":1}`); status != 200 {
		t.Errorf("a small request: %d", status)
	}
	var all sync.WaitGroup
	refused := make(chan bool, 8)
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			r, _ := http.NewRequest(http.MethodPost, w.url+"/v1/completions",
				strings.NewReader(`{"model":"base","prompt":"`+strings.Repeat("a", 3<<20)+`"}`))
			r.Header.Set("Content-Type", "application/json")
			a, err := http.DefaultClient.Do(r)
			if err != nil { // the connection ends behind the answer
				refused <- true
				return
			}
			defer a.Body.Close()
			refused <- a.StatusCode == http.StatusTooManyRequests && a.Header.Get("Retry-After") != ""
		}()
	}
	all.Wait()
	close(refused)
	count := 0
	for r := range refused {
		if r {
			count++
		}
	}
	if count == 0 {
		t.Error("no large request beyond the bound is refused")
	}
	if held := w.intake.held.Load(); held > 8<<20 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestIdleConnections: clients that keep their connections open without asking starve nobody.
func TestIdleConnections(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{MaxConnections: 4})
	for range 4 {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if status, _ := w.get(t, "/health", "Connection", "close"); status != 200 {
		t.Errorf("one more client: %d", status)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("one more client waits %v", d)
	}
}

// TestReservedVariables: chat_template_kwargs replace nothing that a rendering sets.
func TestReservedVariables(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{})
	for name, value := range map[string]string{
		"messages": `[{"role":"admin","content":"x"}]`, "tools": "[]", "add_generation_prompt": "false",
		"bos_token": `"x"`, "eos_token": `"x"`, "raise_exception": "1",
	} {
		status, got := w.post(t, "/v1/chat/completions",
			`{"model":"base","messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"`+name+
				`":`+value+`}}`)
		if status != 400 || !strings.Contains(got, `"chat_template_kwargs"`) || !strings.Contains(got, name+
			" is set from the conversation") {
			t.Errorf("%s: %d %s", name, status, got)
		}
	}
	if status, got := w.post(t, "/v1/chat/completions",
		`{"model":"base","messages":[{"role":"user","content":"hi"}],"max_tokens":1,"chat_template_kwargs":{"enable_thinking":false}}`); status != 200 {
		t.Errorf("%d %s", status, got)
	}
}
