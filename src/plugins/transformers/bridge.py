"""The Python side of the Transformers plugin: builds a model with the installed `transformers` and
runs it on the program's weights, GEMMs and paged attention (see host.h). weights.py says which tensors a parameter is
made of, check.py compares the loaded model with its class.

The model is built without memory for its parameters. Its nn.Linear modules become HostLinear: the
program loads, shards and multiplies their weights. Other parameters are torch tensors over memory
that the program fills. Attention goes through AttentionInterface of `transformers` into the
program's KV pool. The sequences of a step form one row of tokens, and only the program separates
them: every other module works token by token.
"""

import ctypes
import inspect
import json
import traceback

import sluice_check as check
from sluice_host import CLOSE, FLOAT32, INT32, PROBE, STEP, AttentionCall, Host, HostError, view
from sluice_load import Loader, parameters_without_memory
from sluice_weights import Refused

# Arguments of attention functions that paged attention takes, and those that say nothing new about a causal sequence.
KNOWN_ARGUMENTS = {"softcap", "s_aux", "is_causal"}
SILENT_ARGUMENTS = {
    "dropout", "position_ids", "position_embeddings", "cache_position", "use_cache", "past_key_value", "past_key_values",
    "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "logits_to_keep", "target_dtype",
    "training", "deterministic", "layer_idx", "layer_head_mask", "input_ids", "inputs_embeds",
}


def make_finished_base(torch, output_type):
    class Output(output_type):
        def __getattr__(self, name):
            """Some heads read more than the hidden states (cross attentions, router logits)."""
            if name.startswith("_"):
                raise AttributeError(name)
            return None

    class FinishedBase(torch.nn.Module):
        """Replaces the base model of the head's class: returns the known hidden states."""

        def __init__(self, base):
            super().__init__()
            self.__dict__["base"] = base
            self.hidden = None

        def __getattr__(self, name):
            return getattr(self.__dict__["base"], name)

        def forward(self, *args, **kwargs):
            return Output(last_hidden_state=self.hidden)

    return FinishedBase


class Session:
    def __init__(self, host, settings):
        import torch
        import transformers
        from transformers.modeling_outputs import BaseModelOutputWithPast

        self.host, self.torch = host, torch
        self.dtype = getattr(torch, settings["dtype"])
        self.probing, self.layer, self.layers, self.pool = False, 0, 0, None
        self.mask_windows, self.call_windows = set(), set()
        torch.set_num_threads(settings["threads"])
        transformers.AttentionInterface.register("sluice", self.attention)
        if hasattr(transformers, "AttentionMaskInterface"):
            transformers.AttentionMaskInterface.register("sluice", self.mask)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        model = self.build(transformers, settings)
        Loader(torch, host, self.dtype, settings["threads"]).load(model)
        self.base_parent, self.base_name = model, model.base_model_prefix
        self.base = getattr(model, self.base_name, None)
        if self.base is None or self.base is model:
            raise Refused(f"{type(model).__name__} has no base model apart from its head")
        if f"self.{self.base_name}.decoder(" in inspect.getsource(type(model).forward):  # the head passes by the base model
            self.base_parent, self.base_name, self.base = self.base, "decoder", self.base.decoder
        self.finished = make_finished_base(torch, BaseModelOutputWithPast)(self.base)
        self.place(self.finished)
        self.positions = None  # of the running step
        self.tell_positions()
        self.first_position = self.find_first_position(settings["context_length"])
        self.model = model.eval()
        self.base.eval()
        config = model.config.get_text_config()
        self.vocab_size, self.hidden_size = config.vocab_size, config.hidden_size
        where = inspect.getfile(type(model))
        commit = getattr(model.config, "_commit_hash", None)
        described = (
            f"{type(model).__name__} of {where}" + (f" at {commit}" if commit else "") + f", transformers "
            f"{transformers.__version__}, torch {torch.__version__}"
        )
        # ctypes objects must live as long as they may be called.
        self.callbacks = (PROBE(self.guarded(self.probe)), STEP(self.guarded(self.step)))
        host.call("built", config.hidden_size, config.vocab_size, described.encode(), *self.callbacks, close)

    def build(self, transformers, settings):
        arguments = {"trust_remote_code": settings["trust_remote_code"], "local_files_only": True}
        try:
            config = transformers.AutoConfig.from_pretrained(settings["directory"], **arguments, **settings["overrides"])
            with parameters_without_memory(self.torch):
                model = transformers.AutoModelForCausalLM.from_config(
                    config, trust_remote_code=settings["trust_remote_code"], attn_implementation="sluice", dtype=self.dtype
                )
        except KeyError as error:
            raise Refused("its class chooses its attention by itself, not through the table of transformers") from error
        except (ValueError, ImportError, OSError) as error:
            hint = "" if settings["trust_remote_code"] or "trust_remote_code" not in str(error) else (
                "; its repository brings code of its own, which runs only with --trust-remote-code"
            )
            raise Refused(f"transformers {transformers.__version__} cannot build it: {first_line(error)}{hint}") from error
        other = set(getattr(config.get_text_config(), "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
        if getattr(model, "_is_stateful", False) or other:
            what = f"layers of the kinds {sorted(other)}" if other else "a recurrent state"
            raise Refused(f"{type(model).__name__} has {what}, which the fallback cannot page")
        return model

    def place(self, base):
        """Puts a module where the class looks for its base model."""
        self.base_parent._modules[self.base_name] = base

    def tell_positions(self):
        """Decoders of BART's family count positions by themselves, one after the other; their tables get those of the step."""

        def told(module, args, kwargs):
            given = kwargs.get("position_ids")
            if self.positions is not None and given is not None and given.dim() == 1:
                kwargs["position_ids"] = self.positions[0]
            return args, kwargs

        for module in self.base.modules():
            parameters = inspect.signature(module.forward).parameters
            if "past_key_values_length" in parameters and "position_ids" in parameters:
                module.register_forward_pre_hook(told, with_kwargs=True)

    def find_first_position(self, context_length):
        """The first position. RoBERTa's family counts from the row after padding in its table of
        positions, but only if it makes the positions itself."""
        for name, module in self.base.named_modules():
            if name.rpartition(".")[2] == "position_embeddings" and getattr(module, "padding_idx", None) is not None:
                first = module.padding_idx + 1
                if context_length > module.num_embeddings - first:
                    raise Refused(
                        f"its table of positions has {module.num_embeddings} rows, of which sequences begin with row {first}: "
                        f"give --context-length {module.num_embeddings - first} or less"
                    )
                return first
        return 0

    def mask(self, allow_is_causal_skip=True, local_size=None, use_vmap=False, **arguments):
        """A mask function of `transformers`. Paged attention needs no mask, but must know what it says."""
        # A mask of both directions is of cross attention without an encoder, or of layers that say so when they attend.
        if self.probing and "allow_is_bidirectional_skip" not in arguments:
            if use_vmap or not allow_is_causal_skip:
                raise Refused("it changes the causal mask in a way of its own")
            self.mask_windows.add(int(local_size or 0))
        return None

    def attention(self, module, query, key, value, attention_mask=None, scaling=None, sliding_window=None, **arguments):
        """An attention function of `transformers`: query [1, heads, tokens, dim] -> [1, tokens,
        heads, dim]."""
        torch = self.torch
        for name, given in arguments.items():
            if given is not None and given is not False and name not in KNOWN_ARGUMENTS | SILENT_ARGUMENTS:
                raise Refused(f"its attention uses {name}, which the fallback does not have")
        if attention_mask is not None:
            raise Refused("its attention has a mask of its own")
        if arguments.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            raise Refused("its attention is not causal")
        if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
            raise Refused("it attends to other tokens than its own")
        dim = query.shape[-1]
        if value.shape[-1] > dim:
            raise Refused(f"its values are wider than its keys ({value.shape[-1]} and {dim})")
        rows = lambda t: t[0].transpose(0, 1).float().contiguous()
        padded = torch.nn.functional.pad(value, (0, dim - value.shape[-1])) if value.shape[-1] < dim else value
        q, k, v = rows(query), rows(key), rows(padded)
        sinks = arguments.get("s_aux")
        if sinks is not None:
            sinks = sinks.detach().float().contiguous().reshape(-1)
            if len(sinks) != q.shape[1]:
                raise Refused(f"it has {len(sinks)} attention sinks for {q.shape[1]} heads")
        scale = dim**-0.5 if scaling is None else float(scaling)
        window, softcap = int(sliding_window or 0), float(arguments.get("softcap") or 0)
        layer = self.layer
        self.layer += 1
        if self.pool is not None:
            out = self.pool.attend(layer, q, k, v, scale, window, softcap, sinks)
        else:
            out = torch.zeros_like(q)
            call = AttentionCall(
                layer, q.shape[0], q.shape[1], k.shape[1], dim, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), scale,
                window, softcap, None if sinks is None else sinks.data_ptr(),
            )
            self.call_windows.add(window)
            self.host.call("describe" if self.probing else "attend", ctypes.byref(call))
        return out[..., : value.shape[-1]].to(query.dtype).unsqueeze(0), None

    def run_base(self, **inputs):
        self.layer, self.positions = 0, inputs["position_ids"]
        try:
            return self.base(use_cache=False, **inputs).last_hidden_state[0]
        finally:
            self.positions = None

    def probe(self):
        """A pass over one token that discovers the attention layers, then the comparison with the class."""
        self.probing = True
        try:
            ids = self.torch.zeros(1, 1, dtype=self.torch.long)
            hidden = self.run_base(input_ids=ids, position_ids=ids + self.first_position)
            self.layers = self.layer
            if list(hidden.shape) != [1, self.hidden_size]:
                raise Refused(f"its last hidden state has the shape {list(hidden.shape)}; hidden_size is {self.hidden_size}")
            logits = self.head(hidden)
            if self.layer != self.layers:
                raise Refused("its head does not take the hidden states of its base model as they are")
            if list(logits.shape) != [1, self.vocab_size]:
                raise Refused(f"its logits have the shape {list(logits.shape)}; vocab_size is {self.vocab_size}")
        finally:
            self.probing = False
        if lost := self.mask_windows - self.call_windows - {0}:
            raise Refused(f"its masks have a window of {max(lost)} keys that its attention function does not get")
        if self.layers:
            check.compare(self)

    def head(self, hidden):
        """The class's own path from the last hidden states [rows, hidden] to logits."""
        self.finished.hidden = hidden.unsqueeze(0)
        ids = self.torch.zeros(1, hidden.shape[0], dtype=self.torch.long)
        return self.model(input_ids=ids, position_ids=ids, use_cache=False).logits[0]

    def step(self, pointer):
        torch, step = self.torch, pointer.contents
        hidden = view(torch, step.hidden, [step.tokens, self.hidden_size], FLOAT32)
        if step.run_base:
            positions = view(torch, step.positions, [1, step.tokens], INT32).long()
            if step.embeddings:
                embeddings = view(torch, step.embeddings, [1, step.tokens, self.hidden_size], FLOAT32)
                inputs = {"inputs_embeds": embeddings.to(self.dtype)}
            else:
                inputs = {"input_ids": view(torch, step.ids, [1, step.tokens], INT32).long()}
            hidden.copy_(self.run_base(position_ids=positions + self.first_position, **inputs))
        if step.num_rows:
            rows = view(torch, step.rows, [step.num_rows], INT32).long()
            logits = self.head(hidden[rows].to(self.dtype))
            view(torch, step.logits, list(logits.shape), FLOAT32).copy_(logits)

    def guarded(self, function):
        def call(*arguments):
            try:
                with self.torch.inference_mode():
                    function(*arguments)
                return 0
            except BaseException as error:
                report(self.host, error)
                return 1

        return call


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def report(host, error):
    if isinstance(error, HostError):
        return  # the program knows
    if isinstance(error, Refused):
        text = str(error)
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        whose = "" if place.filename.startswith("sluice_") else "its class fails: "
        text = f"{whose}{type(error).__name__} at {place.filename}:{place.lineno}: {first_line(error)}"
    host.table.fail(host.table.self, text.encode(errors="replace"))


sessions = {}  # by the address of the program's table
close = CLOSE(lambda address: sessions.pop(address, None) and None)


def start(address, settings):
    host = Host(address)
    try:
        sessions[address] = Session(host, json.loads(settings))
    except BaseException as error:
        report(host, error)
