"""Written by Django."""
