"""How workers are started, confined and spoken to; no learner's line runs here."""
