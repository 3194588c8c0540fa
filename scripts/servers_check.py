#!/usr/bin/env python3
"""Treats `trainer serve` and `trainer ui` as hostile clients do, while an honest client goes on asking.

    python3 scripts/servers_check.py --trainer ./trainer --model DIR [--log FILE]

Broken HTTP (random bytes, broken heads, wrong lengths, smuggled requests), clients that send a byte now and then or
never read, bodies of 100 MB with and without a length, paths that lead out of the folder, requests of other sites and of
other names. A server must answer with 4xx or hang up, stay alive, keep its memory, and answer the honest client in
between. Standard library alone; exit code 1 where something differs.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


class Server:
    def __init__(self, name, command, address, honest):
        self.name, self.honest = name, honest
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = []
        for line in self.process.stdout:
            self.output.append(line)
            if m := re.search(address, line):
                self.host, self.port = m[1], int(m[2])
                token = re.search(r"#token=(\w+)", line)  # ui's: with it more is read before a request is refused
                self.head = f"Host: {m[1]}:{m[2]}\r\n" + (f"X-Trainer-Token: {token[1]}\r\n" if token else "")
                break
        else:
            raise SystemExit(f"{name} did not start: {''.join(self.output)}")
        threading.Thread(target=lambda: self.output.extend(self.process.stdout), daemon=True).start()

    def memory(self):
        """MiB that it has held at most."""
        return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def connect(self, timeout=15):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def raw(self, data, timeout=15):
        """The first bytes of the answer to raw bytes; b"" where the server hung up."""
        with self.connect(timeout) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                return s.recv(1 << 16)
            except TimeoutError:
                return b"timeout"
            except OSError:  # it hung up
                return b""

    def ask(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def alive(self):
        return self.process.poll() is None and self.honest(self)


def status(answer):
    m = re.match(rb"HTTP/1\.[01] (\d\d\d)", answer)
    return int(m[1]) if m else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainer", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--requests", type=int, default=2000)
    p.add_argument("--log")
    a = p.parse_args()
    bad = []
    with open(a.log, "w") if a.log else open(os.devnull, "w") as log, tempfile.TemporaryDirectory() as folder:

        def ok(what, good, detail=""):
            if not good:
                bad.append(what)
            text = f"{'ok  ' if good else 'FAIL'}  {what}" + (f": {detail}" if detail else "")
            print(text, flush=True)
            log.write(text + "\n")

        def completes(s):
            body = json.dumps({"model": "base", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0})
            code, text = s.ask("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            return code == 200 and len(json.loads(text)["choices"]) == 1

        serve = [a.trainer, "serve", "--model", a.model, "--device", "cpu", "--port", "0", "--served-model-name", "base", "--slots", "4"]
        ui = [a.trainer, "ui", "--port", "0", "--queue", os.path.join(folder, "queue"), folder]
        for name, command, address, honest, post in [
            ("serve", serve, r"http://([^:/]+):(\d+)/v1", completes, "/v1/chat/completions"),
            ("ui", ui, r"http://([^:/]+):(\d+)", lambda s: s.ask("GET", "/")[0] == 200, "/api/start"),
        ]:
            server = Server(name, command, address, honest)
            try:
                check(a, server, post, lambda what, *rest: ok(f"{server.name}: {what}", *rest))
            finally:
                server.process.send_signal(signal.SIGTERM)
                code = server.process.wait(60)
            ok(f"{name}: SIGTERM ends it", code in (0, 143), str(code))
            ok(f"{name}: no panic in its output", "panic" not in "".join(server.output) and "goroutine" not in "".join(server.output))
    sys.exit(1 if bad else 0)


def check(a, s, post, ok):
    ok("answers", s.alive())
    before = s.memory()
    host = s.head

    r = random.Random(1)
    seeds = [f"GET / HTTP/1.1\r\n{host}\r\n", f"POST {post} HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 17\r\n\r\n" + '{"messages": [{}]}',
             f"GET /v1/models HTTP/1.1\r\n{host}Connection: close\r\n\r\n", f"POST {post} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    codes = {}
    for _ in range(a.requests):
        data = bytearray(r.choice(seeds).encode())
        for _ in range(r.randrange(1, 8)):
            i = r.randrange(len(data) + 1)
            data[i:i + r.randrange(4)] = bytes(r.randrange(256) for _ in range(r.randrange(5)))
        code = status(s.raw(bytes(data)))
        codes[code] = codes.get(code, 0) + 1
    ok(f"{a.requests} broken requests", not any(c and c >= 500 and c != 501 for c in codes) and s.alive(), " ".join(f"{k}: {v}" for k, v in sorted(codes.items(), key=str)))
    for what, text, want in [
        ("random bytes", os.urandom(5000), (None, 400)),
        ("two lengths", f"POST {post} HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 4\r\n\r\n{{}}xx".encode(), (400,)),
        ("a length and chunks", f"POST {post} HTTP/1.1\r\n{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n".encode(), (400, 403, 415)),
        ("a negative length", f"POST {post} HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n".encode(), (400,)),
        ("a head of 1 MB", f"GET / HTTP/1.1\r\n{host}X: {'a' * (1 << 20)}\r\n\r\n".encode(), (None, 431)),
        ("100,000 headers", (f"GET / HTTP/1.1\r\n{host}" + "A: b\r\n" * 100000 + "\r\n").encode(), (None, 431)),
        ("no host", b"GET / HTTP/1.1\r\n\r\n", (400,)), ("two hosts", f"GET / HTTP/1.1\r\n{host}Host: other\r\n\r\n".encode(), (400,)),
        ("HTTP/9.9", f"GET / HTTP/9.9\r\n{host}\r\n".encode(), (505, 400)), ("a NUL in the path", f"GET /\0 HTTP/1.1\r\n{host}\r\n".encode(), (400,)),
        ("CONNECT", f"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n".encode(), (400, 403, 404, 405, 421)),
        ("a chunk that says it is huge", f"POST {post} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx".encode(), (400, 403, 415)),
    ]:
        got = status(s.raw(text))
        ok(what, got in want and s.alive(), str(got))

    for path in ["/../../../../etc/passwd", "/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/../../../../etc/passwd", "/static/..%5c..%5cetc/passwd",
                 "//etc/passwd", "/v1/models/../../../etc/passwd", "/v1/models/%2e%2e%2fetc%2fpasswd", "/runs/../../../../etc/passwd", "/api/runs/..%2f..%2f..%2fetc%2fpasswd",
                 "/api/runs/%2fetc%2fpasswd", "/file?path=/etc/passwd", "/api/file?run=../../../etc&name=passwd", "/....//....//etc/passwd"]:
        answer = s.raw(f"GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n".encode())
        if b"root:" in answer or status(answer) not in (301, 307, 400, 403, 404, 405):
            ok(f"path {path}", False, str(status(answer)))
    ok("14 paths that lead out of the folder", s.alive())

    for what, head, want in [
        ("a page of another site", "Origin: http://evil.example\r\n", (403,)), ("a page without an origin", "Origin: null\r\n", (403,)),
        ("a form of another site", "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n", (403,)),
        ("another port of this host", f"Origin: http://{s.host}:1\r\n", (403,)),
    ]:
        got = status(s.raw(f"POST {post} HTTP/1.1\r\n{host}{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode()))
        ok(what, got in want, str(got))
    for path in ["/", post]:
        got = status(s.raw(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode()))
        ok(f"a name that was made to point here, {path}", got in (403, 421), str(got))
    answer = s.raw(f"OPTIONS {post} HTTP/1.1\r\n{host}Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n".encode())
    ok("a preflight of another site", b"access-control-allow" not in answer.lower(), str(status(answer)))

    for what, chunked in [("a body of 100 MB", False), ("a body of 100 MB in chunks", True)]:
        held = s.memory()
        c = s.connect(60)
        sent = 0
        try:
            length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100000000"
            c.sendall(f"POST {post} HTTP/1.1\r\n{host}Content-Type: application/json\r\n{length}\r\n\r\n".encode())
            block = b" " * 1_000_000
            for _ in range(100):
                c.sendall(b"f4240\r\n" + block + b"\r\n" if chunked else block)
                sent += 1
            if chunked:
                c.sendall(b"0\r\n\r\n")
            got = status(c.recv(4096))
        except (ConnectionError, TimeoutError):
            try:
                got = status(c.recv(4096))
            except OSError:
                got = None
        c.close()
        ok(what, got in (None, 400, 403, 413, 415) and s.memory() - held < 60 and s.alive(), f"{got} after {sent} MB, {s.memory() - held:+.0f} MiB")

    slow = []
    for i in range(400):
        try:
            c = s.connect(5)
            c.sendall(f"POST {post} HTTP/1.1\r\n{host}".encode() if i % 2 else f"POST {post} HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
            slow.append(c)
        except OSError:
            break
    began, answered, gone = time.time(), 0, 0
    while time.time() - began < 60 and gone < len(slow):
        answered += s.alive()
        for c in slow:
            if c.fileno() < 0:
                continue
            try:
                c.sendall(b"X")
                c.setblocking(False)
                try:
                    if c.recv(1000) == b"" or True:
                        gone += 1
                        c.close()
                except BlockingIOError:
                    c.settimeout(5)
            except OSError:
                gone += 1
                c.close()
        time.sleep(1)
    for c in slow:
        c.close()
    ok(f"{len(slow)} slow clients", gone == len(slow) and answered > 0, f"{gone} were hung up on within {time.time() - began:.0f} s, {answered} honest requests answered meanwhile")
    ok("memory", s.memory() - before < 150, f"{before:.0f} MiB at first, {s.memory():.0f} at most")


if __name__ == "__main__":
    main()
