"""Cost-constrained retrieval for RAG on Ray: ordered chunk combinations under a token budget."""
