#!/usr/bin/env python3
"""Lets `trainer serve` answer in the JSON of pydantic's models, and checks every answer with jsonschema and pydantic.

    python3 -m venv venv && venv/bin/pip install openai pydantic email-validator "jsonschema[format]"
    venv/bin/python scripts/schema_check.py --trainer ./trainer --model DIR [--chat-template NAME] [--answers N] [--log FILE]

For each pydantic model N answers are drawn by client.chat.completions.parse, whose schemas are OpenAI's strict ones, and
N by /v1/completions with the schema as pydantic writes it, at temperatures up to 1.5. An answer that max_tokens cut off
is counted and not judged. Exit code 1 where an answer is not allowed, fewer than half were whole, or none of one model.
"""
import argparse
import concurrent.futures
import datetime
import enum
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import jsonschema
import openai
import pydantic
from pydantic import BaseModel, ConfigDict, EmailStr, Field, RootModel, create_model


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 12


class Mixed(enum.Enum):
    WORD = "word"
    NUMBER = 7
    HALF = 0.5
    YES = True


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Point(Strict):
    x: int
    y: int


class Size(Strict):
    width: float
    height: float
    unit: Literal["mm", "cm"] = "mm"


class Cat(Strict):
    kind: Literal["cat"]
    lives: int


class Dog(Strict):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Fish(BaseModel):
    kind: Literal["fish"] = "fish"
    salt: bool


class Tree(Strict):
    value: int
    children: list["Tree"] = []


class Chain(Strict):
    name: str
    next: Optional["Chain"] = None


class Expression(Strict):
    op: Literal["add", "mul"]
    left: Union["Expression", float]
    right: Union["Expression", float]


class Even(Strict):
    odd: Optional["Odd"] = None


class Odd(Strict):
    even: Optional[Even] = None


class Step(BaseModel):
    explanation: str
    output: str


class Pair(NamedTuple):
    a: int
    b: str


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    inside: T


def one(name, kind, **more):
    return create_model(name, value=(kind, ...), **more)


MODELS = [
    one("Text", str), one("Whole", int), one("Number", float), one("Flag", bool), one("Nothing", None),
    one("OptionalText", Optional[str]), one("DefaultNone", int, other=(Optional[int], None)),
    one("IntOrText", Union[int, str]), one("IntOrNumber", Union[int, float]), one("TextOrList", Union[str, list[str]]),
    one("ListsOfTwo", Union[list[int], list[str]]), one("ListOfUnion", list[Union[int, float, str, None]]),
    one("Objects", Union[Point, Size]), one("OpenObjects", Union[Fish, Step]), one("ObjectOrText", Union[Point, str, None]),
    one("Pet", Annotated[Union[Cat, Dog, Fish], Field(discriminator="kind")]),
    one("Pets", list[Annotated[Union[Cat, Dog], Field(discriminator="kind")]]),
    one("Literals", Literal["a", "ab", 1, 12, True, None]), one("OneLiteral", Literal["only"]),
    one("Colours", list[Colour]), one("Levels", Level), one("MixedEnum", Mixed), one("DefaultEnum", int, colour=(Colour, Colour.RED)),
    one("Counts", dict[str, int]), one("Places", dict[str, Point]), one("Nested", dict[str, list[Optional[Point]]]),
    one("Anything", Any), one("Tuple", tuple[int, str, bool]), one("Named", Pair), one("Open", list[Any]),
    Tree, Chain, Expression, Even, create_model("Forest", trees=(list[Tree], ...), best=(Optional[Tree], None)),
    create_model("Reasoning", steps=(list[Step], ...), final_answer=(str, ...)), Box[int], Box[Union[Point, list[Box[str]]]],
    create_model("Described", point=(Point, Field(description="where it is", title="Where")), size=(Optional[Size], Field(None, description="how large"))),
    one("Date", datetime.date), one("Time", Optional[datetime.time]), one("Moment", datetime.datetime), one("Span", datetime.timedelta),
    one("Id", uuid.UUID), one("Random", pydantic.UUID4), one("Address4", ipaddress.IPv4Address), one("Address6", ipaddress.IPv6Address),
    one("Mail", EmailStr), one("Host", Annotated[str, Field(json_schema_extra={"format": "hostname"})]),
    one("Days", dict[str, Union[datetime.date, list[datetime.timedelta]]]),
    RootModel[list[Point]], RootModel[Union[Point, list[Size]]], RootModel[dict[str, Union[int, dict[str, bool]]]],
]
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
assert {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"} <= set(FORMATS.checkers)
PROMPT = "Write JSON. A short answer:\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainer", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--chat-template")
    p.add_argument("--answers", type=int, default=6)
    p.add_argument("--max-tokens", type=int, default=450)
    p.add_argument("--log")
    a = p.parse_args()
    command = [a.trainer, "serve", "--model", a.model, "--device", "cpu", "--port", "0", "--served-model-name", "base",
               "--slots", "8", "--max-length", "512", "--json"]
    if a.chat_template:
        command += ["--chat-template", a.chat_template]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("}\n"):
            line = server.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
            text += line
        with open(a.log, "w") if a.log else open(os.devnull, "w") as log:
            bad = check(a, json.loads(text)["url"], log)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    sys.exit(1 if bad else 0)


def check(a, url, log):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600)

    def say(text):
        print(text, flush=True)
        log.write(text + "\n")

    say(f"openai {openai.__version__}, pydantic {pydantic.VERSION}, {len(MODELS)} models, {os.path.basename(a.model)}")
    began, whole, cut, bad, met = time.time(), 0, 0, 0, set()

    # A model that knows only stories ends neither texts nor lists: half of the answers are drawn with a bias towards an end.
    with open(os.path.join(a.model, "tokenizer.json"), encoding="utf-8") as f:
        vocabulary = json.load(f)["model"]["vocab"]
    quotes = {i for text, i in vocabulary.items() if text == "<0x22>" or text.endswith('"') and len(text) < 3}
    brackets = {i for text, i in vocabulary.items() if text in ("<0x7D>", "<0x5D>") or text and not text.strip("]}")}
    ends = {str(i): 25 if i in brackets else 8 for i in quotes | brackets}

    def drawn(i):
        return {"temperature": i % 4 / 2, "seed": i, "max_tokens": a.max_tokens, "logit_bias": ends if i % 2 else {}}

    def parsed(model, i):
        """OpenAI's client reads the answer as the model itself."""
        try:
            got = client.chat.completions.parse(model="base", messages=[{"role": "user", "content": PROMPT}], response_format=model,
                                                **drawn(i))
        except openai.LengthFinishReasonError:
            return None
        assert isinstance(got.choices[0].message.parsed, model)
        return got.choices[0].message.content

    def plain(model, i):
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": model.model_json_schema()}}
        got = client.completions.create(model="base", prompt=PROMPT, **drawn(i),
                                        extra_body={"response_format": schema})
        return got.choices[0].text if got.choices[0].finish_reason == "stop" else None

    def judged(job):
        ask, model, i = job
        try:
            text = ask(model, i)
            if text is not None:
                jsonschema.Draft202012Validator(model.model_json_schema(), format_checker=FORMATS).validate(json.loads(text))
                model.model_validate_json(text)
            return job, text, None
        except Exception as e:  # whatever is wrong is a finding
            return job, None, f"{type(e).__name__}: {str(e)[:300]}"

    roots = [m for m in MODELS if not issubclass(m, RootModel)]  # OpenAI's client sends no others
    jobs = [(parsed, m, i) for m in roots for i in range(a.answers)] + [(plain, m, i) for m in MODELS for i in range(a.answers)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for (ask, model, i), text, error in pool.map(judged, jobs):
            if error:
                bad += 1
                say(f"FAIL  {ask.__name__} {model.__name__} {i}: {error}")
            elif text is None:
                cut += 1
            else:
                whole += 1
                met.add((ask, model))
                log.write(f"ok    {ask.__name__} {model.__name__} {i}: {text}\n")
    missed = [m.__name__ for m in MODELS if (plain, m) not in met]
    say(f"{whole} answers parse and validate, {cut} cut off by max_tokens, {bad} wrong; {time.time() - began:.0f} s")
    if missed:
        say(f"no answer was whole of {' '.join(missed)}")
    return bad or whole < cut or bool(missed)


if __name__ == "__main__":
    main()
