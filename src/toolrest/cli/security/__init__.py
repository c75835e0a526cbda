"""Commands about what is allowed: approvals, audit, doctor, grants, policy, sandbox, trust."""
