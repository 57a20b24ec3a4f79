"""Trains and judges the combination reranker: examples, training, mined mistakes, and checks of sense."""
