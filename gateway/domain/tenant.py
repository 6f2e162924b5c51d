"""Whose a request is: what the operator lets a tenant do. Values only; who is who is tenancy.py's."""

from dataclasses import dataclass, field

from gateway.domain.priority import Priority
from gateway.domain.quota import Quota
from gateway.domain.slo import NO_LEVELS, Levels

DEFAULT_CLASS = "default"
"""Everyone without a key that the operator named."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """`name` is what turns are counted by, `tenant_class` the operator's word for it: the metric label.

    Of two tenants that always wait, one gets so many times more than the other as its `weight` is larger. `priority`
    is that of requests which ask for none, `most_urgent` what those get at most that ask for more. `levels` are by
    priority. `models` are the only ones that it may ask for, None: all. Several may share one `quota`; None: as much as
    there is. `is_named`: its name tells nothing of a key, and may stand in the log. `is_refused`: it is nobody's, and
    not let in.
    """

    name: str = ""
    tenant_class: str = DEFAULT_CLASS
    weight: float = 1.0
    priority: Priority = Priority.DEFAULT
    most_urgent: Priority = Priority.INTERACTIVE
    levels: Levels = NO_LEVELS
    models: frozenset[str] | None = None
    quota: Quota | None = field(default=None, compare=False, repr=False)
    is_named: bool = False
    is_refused: bool = False

    def priority_of(self, asked: Priority | None) -> Priority:
        """What a request gets that asks for this; None: for nothing."""
        return self.priority if asked is None else max(asked, self.most_urgent)

    @property
    def shown_name(self) -> str:
        """As its clients may see it."""
        return self.name if self.is_named else self.tenant_class

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models
