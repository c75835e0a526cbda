"""Approvals: the request, who answers, grants, and questions that wait for an answer."""
