"""The peers' side of gpu.sh: random-weight models, one training process a case that waits for orders, and what the card can do.

    gpu_peers.py models FOLDER TOKENIZER NAME ...    write models of real shapes, FOLDER/NAME/complete last
    gpu_peers.py serve FOLDER SPEC                   load, five steps, then obey "measure WORK WARM STEPS" lines; answers are lines that begin with "@"
    gpu_peers.py ceilings                            bf16 GEMMs, cuDNN attention and copies at the shapes of the large cases

SPEC is peer:model:WORK[+WORK...]:targets:rank:checkpointing[:option,...]; WORK is BATCHxLENGTH, several share what one process has loaded; peer is unsloth,
peft, axolotl or llamafactory; targets qv, qkvo, all, or parameters of mixtures of experts; checkpointing ckpt (Unsloth: its own kind) or none; options: liger (all of Liger's kernels), ligerce (only its fused cross-entropy), compile (torch.compile of each
layer), graphs (Unsloth's CUDA graphs), kernels (Axolotl's LoRA kernels). Of Axolotl and LLaMA-Factory the model is taken as their
trainers get it. The base is NF4 with double quantisation under bf16 autocast, the adapters fp32, AdamW fused, the gradient's
norm clipped to 1, the loop plain: no trainer and no data loader around it.
"""
import gc
import json
import math
import multiprocessing
import os
import re
import statistics
import sys
import time
from pathlib import Path

TARGETS = {
    "qv": ["q_proj", "v_proj"],
    "qkvo": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
TARGETS["parameters"] = TARGETS["all"]  # of a mixture, from which Unsloth makes target_parameters by itself


def shape(hidden, mlp, layers, heads, kv_heads, vocab, positions, theta, tied=False, kind="Llama", **more):
    """kind is the first part of transformers' class names; more is what its configuration has besides."""
    return dict(more, kind=kind, hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                vocab_size=vocab, max_position_embeddings=positions, rope_theta=theta, tie_word_embeddings=tied)


SHAPES = {
    "tiny": shape(256, 512, 2, 4, 2, 32000, 2048, 10000.0),
    "smollm2-135m": shape(576, 1536, 30, 9, 3, 49152, 8192, 100000.0, tied=True),
    "tinyllama-1.1b": shape(2048, 5632, 22, 32, 4, 32000, 2048, 10000.0),
    "llama-2-7b": shape(4096, 11008, 32, 32, 32, 32000, 4096, 10000.0),
    "qwen3-8b": shape(4096, 12288, 36, 32, 8, 151936, 40960, 1000000.0, kind="Qwen3", head_dim=128, rms_norm_eps=1e-6),
    "gemma-3-4b": shape(2560, 10240, 34, 8, 4, 262208, 131072, 1000000.0, tied=True, kind="Gemma3", head_dim=256, query_pre_attn_scalar=256, sliding_window=1024,
                        layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(34)]),
    "qwen3-30b-a3b": shape(2048, 6144, 48, 32, 4, 151936, 40960, 1000000.0, kind="Qwen3Moe", head_dim=128, moe_intermediate_size=768, num_experts=128,
                           num_experts_per_tok=8, norm_topk_prob=True, rms_norm_eps=1e-6),
}
SHAPES["qwen3-30b-a3b-12l"] = dict(SHAPES["qwen3-30b-a3b"], num_hidden_layers=12)
SHAPES["tiny-gemma"] = dict(SHAPES["gemma-3-4b"], hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                            vocab_size=512, layer_types=SHAPES["gemma-3-4b"]["layer_types"][:6])
SHAPES["tiny-moe"] = dict(SHAPES["qwen3-30b-a3b"], hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                          vocab_size=512, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2)


def parse(spec):
    fields = spec.split(":")
    works = {work: tuple(int(n) for n in work.split("x")) for work in fields[2].split("+")}
    return dict(peer=fields[0], model=fields[1], works=works, length=max(length for _, length in works.values()), targets=fields[3], rank=int(fields[4]),
                ckpt=fields[5] == "ckpt", options=fields[6].split(",") if len(fields) > 6 else [])


SHARD = 2 << 30  # bytes of a file, at most
TILE = 1 << 25  # random numbers that all weights are cut from
tile = None  # their bytes, twice over: what begins anywhere in the first half has TILE numbers


def checkpoint_tensors(state):
    """Names and shapes as checkpoints have them: newer transformers keep a layer's experts as one tensor, files keep each expert's."""
    for name, tensor in state.items():
        shape, fused = list(tensor.shape), re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)", name)
        if not fused:
            yield name, shape
        for e in range(shape[0] if fused else 0):
            if fused[2] == "down_proj":
                yield f"{fused[1]}.{e}.down_proj.weight", shape[1:]
            else:
                for part in "gate_proj", "up_proj":
                    yield f"{fused[1]}.{e}.{part}.weight", [shape[1] // 2, shape[2]]


def write_shard(job):
    """One safetensors file: (path, [(name, shape, first number in the tile or None, every number where None)])."""
    path, tensors = job
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _, _ in tensors:
        size = 2 * math.prod(shape)
        header[name] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape, first, constant in tensors:
            left = 2 * math.prod(shape)
            if first is None:
                file.write(constant * (left // 2))
                continue
            while left:
                left -= file.write(tile[2 * first:2 * first + min(left, 2 * TILE)])


def write_models(folder, tokenizer, names):
    """Random weights straight into files, by all cores: a model need not exist in memory, nor on the card."""
    import random

    import torch
    import transformers

    global tile
    half = torch.empty(TILE).normal_(0, 0.02, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    tile = memoryview(torch.cat([half, half]).view(torch.uint8).numpy())
    pool = multiprocessing.get_context("fork").Pool(min(os.cpu_count(), 12))  # has the tile
    for name in names:
        place = Path(folder) / name
        place.mkdir(parents=True, exist_ok=True)
        numbers = dict(SHAPES[name], bos_token_id=1, eos_token_id=2)
        kind = numbers.pop("kind")
        config = (getattr(transformers, f"{kind}TextConfig", None) or getattr(transformers, f"{kind}Config"))(**numbers)
        build = getattr(transformers, f"{kind}ForCausalLM")
        with torch.device("meta"):
            state = build(config).state_dict()
        config.architectures, config.dtype = [f"{kind}ForCausalLM"], torch.bfloat16
        config.save_pretrained(place)
        transformers.GenerationConfig.from_model_config(config).save_pretrained(place)
        rng, shards, size = random.Random(0), [[]], 0
        one = b"\0\0" if kind.startswith("Gemma") else b"\x80\x3f"  # a norm's weight, which Gemma stores less one
        for tensor, shape in checkpoint_tensors(state):
            if tensor == "lm_head.weight" and numbers["tie_word_embeddings"]:
                continue
            if shards[-1] and size + 2 * math.prod(shape) > SHARD:
                shards.append([])
                size = 0
            shards[-1].append((tensor, shape, None if tensor.endswith("norm.weight") else rng.randrange(TILE // 8) * 8, one))
            size += 2 * math.prod(shape)
        files = ["model.safetensors"] if len(shards) == 1 else [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
        pool.map(write_shard, [(str(place / f), tensors) for f, tensors in zip(files, shards)], chunksize=1)
        if len(shards) > 1:
            total = sum(2 * math.prod(t[1]) for tensors in shards for t in tensors)
            index = dict(metadata=dict(total_size=total), weight_map={t[0]: f for f, tensors in zip(files, shards) for t in tensors})
            (place / "model.safetensors.index.json").write_text(json.dumps(index))
        special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}
        transformers.PreTrainedTokenizerFast(tokenizer_file=tokenizer, model_max_length=SHAPES[name]["max_position_embeddings"], **special).save_pretrained(place)
        (place / "complete").touch()
    pool.close()


def load_unsloth(case, place):
    from unsloth import FastLanguageModel

    checkpointing = "unsloth" if case["ckpt"] else False
    model, _ = FastLanguageModel.from_pretrained(place, max_seq_length=max(case["length"], 2048), load_in_4bit=True, use_gradient_checkpointing=checkpointing)
    model = FastLanguageModel.get_peft_model(model, r=case["rank"], lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS[case["targets"]],
                                             use_gradient_checkpointing=checkpointing)
    FastLanguageModel.for_training(model)
    return model


def load_peft(case, place):
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if "liger" in case["options"] or "ligerce" in case["options"]:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        everything = "liger" in case["options"]
        apply_liger_kernel_to_llama(rope=everything, rms_norm=everything, swiglu=everything, fused_linear_cross_entropy=True)
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
    device = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16, device_map={"": device}, attn_implementation="sdpa", quantization_config=four)
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=case["ckpt"], gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=case["rank"], lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS[case["targets"]], task_type="CAUSAL_LM"))
    model.config.use_cache = False
    model.train()
    if "compile" in case["options"]:
        for layer in model.get_base_model().model.layers:
            layer.compile(dynamic=False)
    return model


def load_axolotl(case, place):
    """The model as Axolotl's trainer gets it, with its LoRA kernels: axolotl.loaders, as axolotl.train does."""
    from axolotl.loaders import ModelLoader, load_tokenizer
    from axolotl.utils.config import normalize_config, validate_config
    from axolotl.utils.dict import DictDefault

    fused = "kernels" in case["options"]
    config = DictDefault(dict(
        base_model=place, adapter="qlora", load_in_4bit=True, lora_r=case["rank"], lora_alpha=16, lora_dropout=0.0, lora_target_modules=TARGETS[case["targets"]],
        sequence_len=case["length"], micro_batch_size=next(iter(case["works"].values()))[0], gradient_accumulation_steps=1, num_epochs=1, learning_rate=2e-4, optimizer="adamw_torch_fused",
        bf16=True, attn_implementation="sdpa", gradient_checkpointing=case["ckpt"], output_dir=str(Path.cwd() / "out"), datasets=[dict(path="unused", type="alpaca")],
        lora_mlp_kernel=fused, lora_qkv_kernel=fused, lora_o_kernel=fused))
    config = validate_config(config)
    normalize_config(config)
    model, _ = ModelLoader(config, load_tokenizer(config)).load()
    model.config.use_cache = False
    model.train()
    return model


def load_llamafactory(case, place):
    """The model as LLaMA-Factory's trainer gets it."""
    import torch
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_model, load_tokenizer

    model_args, _, _, finetuning_args, _ = get_train_args(dict(
        stage="sft", do_train=True, model_name_or_path=place, template="empty", dataset="unused", output_dir=str(Path.cwd() / "out"), finetuning_type="lora",
        lora_rank=case["rank"], lora_alpha=16, lora_dropout=0.0, lora_target=",".join(TARGETS[case["targets"]]), quantization_bit=4, quantization_method="bnb",
        double_quantization=True, bf16=torch.cuda.is_available(), flash_attn="sdpa", disable_gradient_checkpointing=not case["ckpt"], enable_liger_kernel="liger" in case["options"]))
    model = load_model(load_tokenizer(model_args)["tokenizer"], model_args, finetuning_args, is_trainable=True)
    model.config.use_cache = False
    model.train()
    return model


LOADERS = dict(unsloth=load_unsloth, peft=load_peft, axolotl=load_axolotl, llamafactory=load_llamafactory)


class Card:
    """Memory in use on the card by the driver's count, of all processes."""

    def __init__(self):
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception as e:  # any failure means no figure
            self.nvml, self.why = None, str(e)

    def used(self):
        return self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used if self.nvml else 0


def say(**answer):
    print("\n@" + json.dumps(answer), flush=True)


def serve(folder, spec):
    began = time.time()
    case = parse(spec)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", UNSLOTH_DISABLE_STATISTICS="1", AXOLOTL_DO_NOT_TRACK="1")
    if "graphs" in case["options"]:
        os.environ["UNSLOTH_BLOCK_CUDAGRAPHS"] = "1"
    if case["peer"] == "unsloth":
        import unsloth  # noqa: F401  before transformers, which it patches
    import torch

    imported = time.time()
    place = Path(folder) / case["model"]
    while not (place / "complete").exists():
        time.sleep(0.2)
    waited = time.time()
    model = LOADERS[case["peer"]](case, str(place))
    gpu = torch.cuda.is_available()
    device, synchronize = ("cuda", torch.cuda.synchronize) if gpu else ("cpu", lambda: None)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=True)
    card = Card()
    vocabulary = SHAPES[case["model"]]["vocab_size"]
    ids = {work: torch.randint(5, vocabulary, (4, *size), generator=torch.Generator().manual_seed(0)).to(device) for work, size in case["works"].items()}
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
    loaded = time.time()

    def step(work, i):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(input_ids=ids[work][i % 4], labels=ids[work][i % 4], use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def peaks(begin=False):
        """torch's peaks since the last begin: bytes of its tensors, and bytes that it took of the card for them."""
        if not gpu:
            return {}
        if begin:
            torch.cuda.reset_peak_memory_stats()
        return dict(allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved(), card_used=card.used())

    def rest():
        """Gives the card what no tensor holds, for those who are measured meanwhile."""
        gc.collect()
        if gpu:
            torch.cuda.empty_cache()

    works, done = {}, 0
    for work in case["works"]:
        try:
            began_work = time.time()
            first = float(step(work, 0).detach())
            synchronize()
            stepped = time.time()
            peaks(begin=True)
            for done in range(1, 5):
                step(work, done)
            synchronize()
            works[work] = dict(first_loss=first, first_step_s=stepped - began_work, **peaks())
        except torch.OutOfMemoryError as e:
            if len(case["works"]) == 1:
                raise
            works[work] = dict(error=str(e)[:300])
            optimizer.zero_grad(set_to_none=True)
        rest()
    say(ready=True, works=works, trainable=sum(p.numel() for p in trained), import_s=imported - began, load_s=loaded - waited,
        note="start-up times of processes that started together")
    done = 5
    for line in sys.stdin:
        work, warm, steps = line.split()[1:]
        warm, steps = int(warm), int(steps)
        for _ in range(warm):
            step(work, done)
            done += 1
        synchronize()
        peaks(begin=True)
        ms, submit = [], []
        for _ in range(steps):
            at = time.perf_counter()
            loss = step(work, done)
            submit.append(1e3 * (time.perf_counter() - at))
            synchronize()
            ms.append(1e3 * (time.perf_counter() - at))
            done += 1
        answer = dict(ms=ms, submit_ms=statistics.median(submit), loss=float(loss.detach()), warm=warm, **peaks())
        rest()
        say(**answer)


def ceilings():
    """Times of what the large cases are made of, by the fastest thing at hand: cuBLAS through torch, cuDNN through SDPA, a device-to-device copy."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)

    side = torch.cuda.Stream()

    def us(run, times=20, group=10):
        """Median, fastest and slowest of one run: alone, or among group in a captured graph (no launch waited for, but a hotter card), whichever is faster."""
        torch.cuda.synchronize()

        def timed(work, count):
            spans = []
            for _ in range(times + 2):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                work()
                b.record()
                b.synchronize()
                spans.append(1e3 * a.elapsed_time(b) / count)
            return [statistics.median(spans[2:]), min(spans[2:]), max(spans[2:])]

        with torch.cuda.stream(side):
            for _ in range(3):
                run()
            alone = timed(run, 1)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                for _ in range(group):
                    run()
            return min(alone, timed(graph.replay, group))

    def normal(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16)

    # 16 values at random, as unpacked NF4 weights have them: how many bits flip decides the card's power, and so its clock
    values = torch.tensor([-1, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1], device="cuda", dtype=torch.bfloat16)

    def frozen(*size):
        return values[torch.randint(0, 16, size, device="cuda")] * 0.05

    out = {"gemm": {}, "attention": {}}
    source, sink = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").fill_(7), torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    out["copy_us"] = us(lambda: sink.copy_(source), group=2)
    out["copy_bytes_per_s"] = 2 * (1 << 31) / out["copy_us"][0] * 1e6
    del source, sink
    for M, pairs in ((8192, ((4096, 4096), (11008, 4096), (4096, 11008), (2048, 2048), (5632, 2048), (2048, 5632), (256, 2048), (32000, 4096), (32000, 2048),
                             (16, 4096), (16, 11008), (16, 2048), (16, 5632), (4096, 16), (11008, 16), (2048, 16), (5632, 16), (256, 16))),
                     (512, ((4096, 4096), (11008, 4096), (4096, 11008), (2048, 2048), (5632, 2048), (2048, 5632)))):
        for N, K in pairs:
            x, w, dy = normal(M, K), normal(N, K) if min(N, K) == 16 or N == 32000 else frozen(N, K), normal(M, N)
            out["gemm"][f"nt {M}x{N}x{K}"] = us(lambda: F.linear(x, w))  # y = x wt
            out["gemm"][f"nn {M}x{K}x{N}"] = us(lambda: dy @ w)  # dx = dy w
            if min(N, K) == 16:
                out["gemm"][f"tn {N}x{K}x{M}"] = us(lambda: dy.t() @ x)  # dw = dyt x
    print(json.dumps(out), flush=True)
    for B, T, H, K, D in ((4, 2048, 32, 32, 128), (4, 2048, 32, 4, 64), (8, 2048, 9, 3, 64), (1, 512, 32, 32, 128), (1, 512, 32, 4, 64), (1, 512, 9, 3, 64)):
        q, k, v = (normal(B, h, T, D).requires_grad_() for h in (H, K, K))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            forward = us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K))
            with torch.cuda.stream(side):  # the stream of a backward is that of its forward
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
                do = torch.randn_like(o)
            backward = us(lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True))
        out["attention"][f"{B}x{T} {H}/{K}x{D}"] = dict(forward=forward, backward=backward)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "models":
        write_models(arguments[0], arguments[1], arguments[2:])
    elif verb == "serve":
        serve(*arguments)
    elif verb == "ceilings":
        ceilings()
    else:
        sys.exit(__doc__)
