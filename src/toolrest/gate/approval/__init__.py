"""Approvals: the request, the approver, grants, and pending approvals."""
