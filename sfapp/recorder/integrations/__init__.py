"""Record training loops of other frameworks: ``lightning``, ``hf`` (Hugging Face), ``nvrx``, ``megatron`` and
``megatron_bridge``.

Each module is imported separately, because each needs an optional dependency.
"""
