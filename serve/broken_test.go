package serve

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// TestBrokenRequests: what is wrong with a request, with its status and whole words.
func TestBrokenRequests(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{MaxBody: 1 << 20})
	chat := func(more string) string {
		return `{"model":"base","messages":[{"role":"user","content":"hi"}]` + more + `}`
	}
	message := func(m string) string { return `{"model":"base","messages":[` + m + `]}` }
	const talk, text = "/v1/chat/completions", "/v1/completions"
	for _, c := range []struct {
		path, body string
		status     int
		message    string
		param      string
	}{
		{talk, ``, 400, `the body is no JSON object: line 1, column 1: expected a value, found the end of the text`,
			""},
		{talk, `{"model": "base",`, 400, `the body is no JSON object: line 1, column 18: expected a key in double ` +
			`quotes, found the end of the text`, ""},
		{talk, `[]`, 400, `the body is no JSON object: line 1, column 1: the value is a list, want an object`, ""},
		{talk, `null`, 400, `the body is null, want a JSON object`, ""},
		{talk, "{\"model\": \"\xff\"}", 400, `the body is not UTF-8: byte 11 is no part of a character`, ""},
		{talk, strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000), 400,
			`the body's JSON is nested deeper than 64 levels`, ""},
		{talk, `{"model":"base","x":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`, 400,
			`the body's JSON is nested deeper than 64 levels`, ""},
		{talk, `{"messages":[{"role":"user","content":"hi"}]}`, 400,
			`model: is missing; GET /v1/models lists the names`, "model"},
		{talk, `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}`, 404,
			`model: there is no model "gpt-4o" here; GET /v1/models lists those that are`, "model"},
		{talk, `{"model":"../../etc/passwd","messages":[]}`, 404,
			`model: there is no model "../../etc/passwd" here; GET /v1/models lists those that are`, "model"},
		{talk, `{"model":"base"}`, 400, `messages: is missing: want a list of messages`, "messages"},
		{talk, `{"model":"base","messages":"hi"}`, 400, `messages: is a string, want a list of messages`, "messages"},
		{talk, `{"model":"base","messages":[]}`, 400, `messages: has 0 messages, want 1 to 4096`, "messages"},
		{talk, message(`"hi"`), 400, `messages[0]: is a string, want an object with role and content`, "messages[0]"},
		{talk, message(`{"content":"hi"}`), 400,
			`messages[0].role: is missing: want one of system, developer, user, assistant, tool`, "messages[0].role"},
		{talk, message(`{"role":"robot","content":"hi"}`), 400,
			`messages[0].role: is "robot", want one of system, developer, user, assistant, tool`, "messages[0].role"},
		{talk, message(`{"role":"user"}`), 400, `messages[0] has no content; it has role`, "messages"},
		{talk, message(`{"role":"user","content":7}`), 400,
			`messages[0].content is a number, want a string or a list of text parts`, "messages"},
		{talk, message(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}`), 400,
			`messages[0].content[0]: is an image (image_url): this server reads text alone`, "messages[0].content[0]"},
		{talk, message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}`), 400,
			`messages[0].content[1]: is audio (input_audio): this server reads text alone`, "messages[0].content[1]"},
		{talk, message(`{"role":"user","content":"a"},{"role":"assistant","content":"b"}`), 400,
			`messages: the last message is the assistant's own: end with the message that is to be answered`,
			"messages"},
		{talk, message(`{"role":"tool","content":"a","tool_call_id":"x"}`), 400,
			`messages[0] is a tool's result, but no assistant's message before it calls a tool`, "messages"},
		{talk, chat(`,"reasoning_effort":"fast"`), 400,
			`reasoning_effort: is "fast", want one of none, minimal, low, medium, high, xhigh, max`,
			"reasoning_effort"},
		{talk, chat(`,"temperature":"hot"`), 400, `temperature: is a string, want a number`, "temperature"},
		{talk, chat(`,"temperature":-1`), 400, `temperature: is -1, want 0 to 100`, "temperature"},
		{talk, chat(`,"temperature":1e999`), 400, `temperature: is 1e999, want a number`, "temperature"},
		{talk, chat(`,"top_p":1.5`), 400, `top_p: is 1.5, want 0 to 1`, "top_p"},
		{talk, chat(`,"top_k":2.5`), 400, `top_k: is 2.5, want a whole number`, "top_k"},
		{talk, chat(`,"presence_penalty":3`), 400, `presence_penalty: is 3, want -2 to 2`, "presence_penalty"},
		{talk, chat(`,"n":0`), 400, `n: is 0, want 1 to 128`, "n"},
		{talk, chat(`,"n":1000000000000`), 400, `n: is 1000000000000, want 1 to 128`, "n"},
		{talk, chat(`,"max_tokens":0`), 400, `max_tokens: is 0, want 1 to 2147483647`, "max_tokens"},
		{talk, chat(`,"max_tokens":1e30`), 400, `max_tokens: is 1e30, want 1 to 2147483647`, "max_tokens"},
		{talk, chat(`,"max_tokens":100000`), 400, `max_tokens: the conversation has 15 tokens, 100000 more are above ` +
			`the 512 that a sequence may have; ask for at most 497`, "max_tokens"},
		{talk, message(`{"role":"user","content":"` + strings.Repeat("word ", 600) + `"}`), 400,
			`messages: the conversation has 1814 tokens, and a sequence may have 512 with its answer`, "messages"},
		{talk, chat(`,"stop":["a","",""]`), 400,
			`stop: a stop text is empty: it would end every answer before its first character`, "stop"},
		{talk, chat(`,"stop":[1]`), 400, `stop: is a list, want a string or a list of strings`, "stop"},
		{talk, chat(`,"seed":1.5`), 400, `seed: is 1.5, want a whole number of 64 bits`, "seed"},
		{talk, chat(`,"logit_bias":{"99999":1}`), 400,
			`logit_bias.99999: is no token of this model, which has ids from 0 to 511`, "logit_bias.99999"},
		{talk, chat(`,"logit_bias":{"5":1000}`), 400, `logit_bias.5: is 1000, want -100 to 100`, "logit_bias.5"},
		{talk, chat(`,"logit_bias":[5]`), 400, `logit_bias: is a list, want an object of token ids and numbers`,
			"logit_bias"},
		{talk, chat(`,"top_logprobs":3`), 400, `top_logprobs: is only for logprobs: true`, "top_logprobs"},
		{talk, chat(`,"logprobs":true,"top_logprobs":21`), 400, `top_logprobs: is 21, want 0 to 20`, "top_logprobs"},
		{talk, chat(`,"stream":"yes"`), 400, `stream: is a string, want true or false`, "stream"},
		{talk, chat(`,"stream_options":{"include_usage":true}`), 400, `stream_options: is only for stream: true`,
			"stream_options"},
		{talk, chat(`,"stream":true,"stream_options":{"usage":true}`), 400, `stream_options.usage: unknown parameter`,
			"stream_options.usage"},
		{talk, chat(`,"response_format":{"type":"yaml"}`), 400,
			`response_format.type: want text, json_object or json_schema`, "response_format.type"},
		{talk, chat(`,"response_format":{"type":"json_schema"}`), 400,
			`response_format.json_schema: is missing: want an object with name and schema`,
			"response_format.json_schema"},
		{talk, chat(`,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"pattern":"x"}}}`),
			400, `response_format.json_schema.schema: schema.pattern: is not supported; supported are type, ` +
				`properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, const, ` +
				`format, anyOf, oneOf, allOf with one schema, and $ref to $defs`, "response_format.json_schema.schema"},
		{talk, chat(
			`,"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"look"}}]`), 400,
			`response_format: the answer is to be JSON, and tools may be called: set tool_choice to none, or to the ` +
				`call that is wanted`, "response_format"},
		{talk, chat(`,"tool_choice":"required"`), 400, `tool_choice: only auto and none are served for base: its ` +
			`chat template shows no form of calls in JSON that is known here`, "tool_choice"},
		{talk, chat(`,"tool_choice":{"type":"function"}`), 400,
			`tool_choice.type: want {"type": "function", "function": {"name": NAME}}`, "tool_choice.type"},
		{talk, chat(
			`,"tools":[{"type":"function","function":{"name":"look"}}],"tool_choice":{"type":"function","function":{"name":"listen"}}`), 400, `tool_choice: tools has no function "listen"`, "tool_choice"},
		{talk, chat(`,"tools":[1]`), 400, `tools[0] is a number, want an object`, "messages"},
		{talk, chat(`,"functions":[]`), 400, `functions: is the older form of tools: write tools`, "functions"},
		{talk, chat(`,"modalities":["audio"]`), 400, `modalities: want ["text"]: these models write text`,
			"modalities"},
		{talk, chat(`,"temprature":1`), 400, `temprature: unknown parameter`, "temprature"},
		{talk, `{"model":"mute","messages":[{"role":"user","content":"hi"}]}`, 400,
			`model: mute answers no conversations: it has no chat template`, "model"},
		{talk, `{"model":"broken","messages":[{"role":"user","content":"hi"}]}`, 500,
			`the model failed on this request; the server's log says why`, ""},
		{text, `{"model":"base"}`, 400, `prompt: is missing: want a string, a list of strings, or token ids`, "prompt"},
		{text, `{"model":"base","prompt":{}}`, 400, `prompt: is an object, want a string, a list of strings, a list ` +
			`of token ids, or a list of lists of token ids`, "prompt"},
		{text, `{"model":"base","prompt":[[1,2],[3,99999]]}`, 400,
			`prompt: prompt 1 holds 99999, which is no token of this model: ids are 0 to 511`, "prompt"},
		{text, `{"model":"base","prompt":[[1,2],[]]}`, 400, `prompt: prompt 1 has no token`, "prompt"},
		{text, `{"model":"base","prompt":[]}`, 400, `prompt: has 0 prompts, want 1 to 256`, "prompt"},
		{text, `{"model":"base","prompt":[` + strings.Repeat(`"a",`, 99) + `"a"],"n":100}`, 400,
			`n: 100 answers to each of 100 prompts are 10000, want at most 512 in one request`, "n"},
		{text, `{"model":"base","prompt":"a","max_tokens":0}`, 400,
			`max_tokens: is 0, which only a request with echo: true may ask for`, "max_tokens"},
		{text, `{"model":"base","prompt":"a","suffix":"b"}`, 400,
			`suffix: is not served: the models here continue a text and do not fill a gap`, "suffix"},
		{text, `{"model":"base","prompt":"a","best_of":2}`, 400, `best_of: is not served: ask for n answers`,
			"best_of"},
		{text, `{"model":"base","prompt":"a","logprobs":50}`, 400, `logprobs: is 50, want 0 to 20`, "logprobs"},
		{text, `{"model":"base","prompt":"` + strings.Repeat("x", 1<<20) + `"}`, 413,
			`the body has more than 1048576 bytes`, ""},
		{"/v1/audio", `{}`, 404, `there is no /v1/audio here; /health, /metrics, /v1/chat/completions, ` +
			`/v1/classify, /v1/completions, /v1/embeddings, /v1/models, /v1/rerank are`, ""},
		{"/v1/models", `{}`, 405, `/v1/models takes GET, not POST`, ""},
		{"/v1/models/../../../etc/passwd", `{}`, 405, `/v1/models/../../../etc/passwd takes GET, not POST`, ""},
		{"/../../etc/passwd", `{}`, 404, `there is no /../../etc/passwd here; /health, /metrics, ` +
			`/v1/chat/completions, /v1/classify, /v1/completions, /v1/embeddings, /v1/models, /v1/rerank are`, ""},
	} {
		status, got := w.post(t, c.path, c.body)
		var e struct {
			Error struct {
				Message, Type string
				Param         *string
			}
		}
		if e = decode[struct {
			Error struct {
				Message, Type string
				Param         *string
			}
		}](t, got); status != c.status || e.Error.Message != c.message || e.Error.Type == "" ||
			(e.Error.Param == nil) != (c.param == "") || c.param != "" && *e.Error.Param != c.param {
			t.Errorf("%s %.80s\n got %d %s\nwant %d %s (%s)", c.path, c.body, status, got, c.status, c.message, c.param)
		}
	}
	if status, _ := w.post(t, talk, chat("")); status != 200 {
		t.Errorf("a good request after the bad ones: %d", status)
	}
}

// TestForeignPages: a page of another site may not use a server of this machine, by whatever name.
func TestForeignPages(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{Host: "127.0.0.1",
		AllowOrigins: []string{"https://good.example"}})
	const body = `{"model":"base","prompt":"a","max_tokens":2}`
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{nil, 200},
		{[]string{"Host", "evil.example"}, 403},
		{[]string{"Host", "evil.example:80"}, 403},
		{[]string{"Host", "localhost.evil.example"}, 403},
		{[]string{"Host", ""}, 200}, // the client then sends the address
		{[]string{"Host", "localhost:1234"}, 200},
		{[]string{"Host", "[::1]:1"}, 200},
		{[]string{"Origin", "https://evil.example"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://localhost:3000"}, 403},
		{[]string{"Origin", "https://good.example"}, 200},
		{[]string{"Origin", w.url}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Content-Type", "text/plain"}, 415},
		{[]string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{[]string{"Content-Encoding", "gzip"}, 415},
	} {
		if status, text := w.post(t, "/v1/completions", body, c.headers...); status != c.status {
			t.Errorf("%q: %d, want %d: %s", c.headers, status, c.status, text)
		}
	}
	for origin, want := range map[string]int{"https://good.example": 204, "https://evil.example": 403} {
		r, _ := http.NewRequest(http.MethodOptions, w.url+"/v1/completions", nil)
		r.Header.Set("Origin", origin)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if allowed := a.Header.Get("Access-Control-Allow-Origin"); a.StatusCode != want ||
			(allowed == origin) != (want == 204) {
			t.Errorf("preflight of %s: %d, %q", origin, a.StatusCode, allowed)
		}
	}
	named := open(t, library(t, talkTemplate), newFake(t, 1), Options{Host: "127.0.0.1", APIKey: "k"})
	if status, _ := named.post(t, "/v1/completions", body, "Host", "trainer", "Authorization",
		"Bearer k"); status != 200 {
		t.Errorf("with the API key any name serves: %d", status)
	}
}

// raw sends bytes as they are and returns what comes until the connection ends.
func (w *site) raw(t testing.TB, send string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(c, send)
	_ = c.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

// TestBrokenHTTP: what is no HTTP, or ends too early, gets an answer or a closed connection, and the server goes on.
func TestBrokenHTTP(t *testing.T) {
	w := open(t, library(t, talkTemplate), newFake(t, 1), Options{})
	const head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for _, c := range []struct{ send, want string }{
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "HTTP/1.1 400 Bad Request"}, // TLS
		{"GET\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 505 HTTP Version Not Supported: unsupported protocol version"},
		{"GET /health HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request: missing required Host header"},
		{"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n",
			"HTTP/1.1 431 Request Header Fields Too Large"},
		{head + "Content-Length: -5\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{head + "Content-Length: 100\r\n\r\n{\"model\":", "HTTP/1.1 400 Bad Request"},
		{head + "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"model\":", "HTTP/1.1 400 Bad Request"},
		{head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}", "HTTP/1.1 400 Bad Request"},
		{head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}", "HTTP/1.1 400 Bad Request"},
		{head + "Transfer-Encoding: nonsense\r\n\r\n{}", "HTTP/1.1 501 Not Implemented"},
		{head + "Content-Length: 104857600\r\n\r\n{", "HTTP/1.1 413 Request Entity Too Large"},
		{"GET /v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 404 Not Found"},
		{"GET /v1/models/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 403 Forbidden"},
		{"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 403 Forbidden"},
	} {
		got, _, _ := strings.Cut(w.raw(t, c.send), "\r\n")
		if got != c.want {
			t.Errorf("%.70q: %q, want %q", c.send, got, c.want)
		}
	}
	// A body of 100 MB in chunks is cut off at the limit.
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(c, head, "Transfer-Encoding: chunked\r\n\r\n")
	chunk := append([]byte("100000\r\n"), bytes.Repeat([]byte("a"), 1<<20)...)
	sent := 0
	for ; sent < 100; sent++ {
		if _, err := c.Write(append(chunk, '\r', '\n')); err != nil {
			break
		}
	}
	if sent == 100 {
		t.Error("100 MB were taken")
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	if line != "" && !strings.HasPrefix(line, "HTTP/1.1 413 ") { // a reset may come first
		t.Errorf("100 MB: %q", line)
	}
	if status, _ := w.get(t, "/health"); status != 200 {
		t.Errorf("the server is gone: %d", status)
	}
}

// TestSlowClients: who sends or reads slowly loses the connection; the slots are there for others meanwhile.
func TestSlowClients(t *testing.T) {
	lib := library(t, talkTemplate)
	impatient := open(t, lib, newFake(t, 1), Options{HeaderTimeout: 50 * time.Millisecond,
		BodyTimeout: 50 * time.Millisecond})
	c, err := net.Dial("tcp", impatient.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /health HT")
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("half a request line keeps its connection: %v", err)
	}
	const slowly = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
		"application/json\r\nContent-Length: 1000\r\n\r\n{"
	if line, _, _ := strings.Cut(impatient.reply(t, slowly), "\r\n"); !strings.HasPrefix(line, "HTTP/1.1 408 ") {
		t.Errorf("a body that does not come: %q", line)
	}
	if line, _, _ := strings.Cut(impatient.reply(t, strings.Replace(slowly, "/v1/completions", "/nowhere", 1)),
		"\r\n"); !strings.HasPrefix(line, "HTTP/1.1 404 ") {
		t.Errorf("a body that nobody reads: %q", line)
	}
	// Others are served while clients send slowly, and while one does not read its stream.
	e := newFake(t, 1)
	e.words, e.maxLen = func(infer.Prompt, string, Sampling, int) string { return strings.Repeat("w", 1000) }, 1<<20
	lib.MaxLen = 1 << 20
	w := open(t, lib, e, Options{})
	const endless = `{"model":"base","prompt":"a","max_tokens":20000,"stream":true}`
	for _, send := range []string{slowly,
		fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n%s", len(endless), endless)} {
		slow, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		fmt.Fprint(slow, send)
	}
	for i := 0; w.scheduler.Stats().PromptTokens == 0; i++ { // the stream that nobody reads has the slot
		if time.Sleep(time.Millisecond); i == 10000 {
			t.Fatal("it never came")
		}
	}
	if status, _ := w.post(t, "/v1/completions", `{"model":"base","prompt":"a","max_tokens":1}`); status != 200 {
		t.Errorf("another client: %d", status)
	}
}

// reply sends bytes and returns what comes, without ending the connection itself.
func (w *site) reply(t testing.TB, send string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(c, send)
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%.40q: the connection is kept: %v", send, err)
	}
	return string(got)
}
