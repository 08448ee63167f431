"""Measures how right extracted fields are against labelled documents."""
