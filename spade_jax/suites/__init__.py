"""Evaluation suites: each gives tasks with stable names and scores them one by one.

A suite is data (`suite.Suite`); what it needs of the world comes in as a `suite.Bench`. Results go
to a `sheet.Sheet`, and `board` makes one table over checkpoints of them.
"""
