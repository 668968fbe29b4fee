"""Packages that stand where others are looked for, when `ridgeline run` leads the way here."""
