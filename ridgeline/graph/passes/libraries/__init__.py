"""Recognise what a device's libraries compute, with their epilogues."""
