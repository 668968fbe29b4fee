"""Rewrites of contractions and reductions: Winograd, polyphase, batch norms, moments."""
