"""Recipes: all that a training needs under one name, ready-made ones, and the loop that trains them."""
