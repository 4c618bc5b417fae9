"""Families of models: each file is one rule from a config.json to the layers that own a cache."""
