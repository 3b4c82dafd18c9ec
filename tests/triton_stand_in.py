# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for triton_python_backend_utils as its README documents it."""

import json
import re
import types

import numpy as np

DTYPES = {"TYPE_INT64": np.int64, "TYPE_FP32": np.float32}


class Tensor:
    def __init__(self, name, array):
        assert isinstance(array, np.ndarray) and array.flags.c_contiguous
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG = range(4)

    def __init__(self, message, code=INTERNAL):
        self._message, self._code = message, code

    def code(self):
        return self._code

    def message(self):
        return self._message


class InferenceRequest:
    def __init__(self, inputs):
        self._inputs = inputs

    def inputs(self):
        return self._inputs


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        assert error is None or isinstance(error, TritonError)
        self._outputs, self._error = list(output_tensors), error

    def output_tensors(self):
        return self._outputs

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error


def get_input_tensor_by_name(request, name):
    return next((x for x in request.inputs() if x.name() == name), None)


def module():
    names = (Tensor, TritonError, InferenceRequest, InferenceResponse)
    found = types.ModuleType("triton_python_backend_utils")
    for each in (*names, get_input_tensor_by_name):
        setattr(found, each.__name__, each)
    return found


def parse_config(text):
    """Reads the protobuf text of a config as far as the example uses it.

    Returns a dict of the form that ``initialize`` receives as JSON.
    """
    text = re.sub(r"#.*", "", text)
    tokens = re.findall(r'"[^"]*"|[\w.-]+|[][{}:,]', text)
    config, rest = _message([*tokens, "}"])
    assert not rest
    config["parameters"] = {x["key"]: x["value"] for x in config["parameters"]}
    return json.loads(json.dumps(config))


def _message(tokens):
    fields, repeated = {}, {"input", "output", "instance_group", "parameters"}
    while tokens[0] != "}":
        name, tokens = tokens[0], tokens[1:]
        tokens = tokens[1:] if tokens[0] == ":" else tokens
        value, tokens = _value(tokens)
        if name in repeated:
            fields.setdefault(name, []).extend(
                value if isinstance(value, list) else [value]
            )
        else:
            fields[name] = value
        tokens = tokens[1:] if tokens[0] == "," else tokens
    return fields, tokens[1:]


def _value(tokens):
    first, tokens = tokens[0], tokens[1:]
    if first == "{":
        return _message(tokens)
    if first != "[":
        number = re.fullmatch(r"-?\d+", first)
        return (int(first) if number else first.strip('"')), tokens
    values = []
    while tokens[0] != "]":
        value, tokens = _value(tokens)
        values.append(value)
        tokens = tokens[1:] if tokens[0] == "," else tokens
    return values, tokens[1:]


def check_response(config, response):
    """Compares the tensors of a response with what the config declares."""
    given = {x.name(): x.as_numpy() for x in response.output_tensors()}
    assert given.keys() == {x["name"] for x in config["output"]}
    for declared in config["output"]:
        array = given[declared["name"]]
        assert array.dtype == DTYPES[declared["data_type"]]
        assert array.ndim == len(declared["dims"])
        for size, dim in zip(array.shape, declared["dims"], strict=True):
            assert dim in (-1, size)
    return given
