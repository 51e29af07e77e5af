"""Recording inside other people's training loops. Each module is imported by itself, for what it needs is
optional: ``lightning``, ``hf`` (Hugging Face), ``nvrx`` and ``megatron`` (jobs instrumented for those)."""
