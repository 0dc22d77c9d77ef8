"""Epilogues: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.epilogue.epilogue import EPILOGUE

EXERCISES = chapter(__name__, EPILOGUE)
