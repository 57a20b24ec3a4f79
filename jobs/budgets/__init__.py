"""Recall of evidence against tokens: who is compared, on which questions, by what search, and the curves made of it."""
