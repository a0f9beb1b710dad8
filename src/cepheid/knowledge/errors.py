"""What can be wrong with knowledge and questions to it; broken files are `Rejected`, with their places."""

from __future__ import annotations


class KnowledgeError(ValueError):
    """Something about knowledge that its user can mend; the text says what and how."""


class TooMuch(KnowledgeError):
    """A question took longer, or found more, than it may."""


class Inconsistent(KnowledgeError):
    """The ontologies and facts contradict each other; the text says which."""
