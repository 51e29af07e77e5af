"""Record training loops of other frameworks: ``lightning``, ``hf`` (Hugging Face), ``nvrx`` and ``megatron``.

Each module is imported separately, because each needs an optional dependency.
"""
