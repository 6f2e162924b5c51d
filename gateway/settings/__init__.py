"""Every setting, its default and its check. Where values come from is settings_sources.py's.

Nothing here decides about requests: policies.py turns these values into the frozen policies of domain/.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from gateway.domain.output import ReservationRule
from gateway.settings.calibration import CalibrationWay
from gateway.settings.fields import FieldsSettings
from gateway.settings.hand_on import HandOnSettings
from gateway.settings.hub import HubSettings
from gateway.settings.isolation import IsolationSettings
from gateway.settings.keys import KeySettings, TenantsFromSettings
from gateway.settings.ledger import LedgerSettings
from gateway.settings.media import AudioSettings, VideoSettings
from gateway.settings.models import Models
from gateway.settings.pressure import Pressure, PressureSettings
from gateway.settings.responses import ResponsesSettings
from gateway.settings.routes import RouteSettings
from gateway.settings.section import Section, checked
from gateway.settings.sections import (
    MIB,
    BudgetSettings,
    GpuSettings,
    HistorySettings,
    ImageSettings,
    LogSettings,
    QueueSettings,
    ResizeSettings,
    ServerSettings,
    TracingSettings,
)
from gateway.settings.slo import Slo, SloSettings
from gateway.settings.status_page import StatusPageSettings
from gateway.settings.streaming import StreamingSettings
from gateway.settings.tenants import Tenants, TenantSettings
from gateway.settings.tokens import TokenSettings
from gateway.settings.upstreams import Upstreams, UpstreamSettings, given_twice

__all__ = ["MIB", "BudgetSettings", "ImageSettings", "PressureSettings", "Section", "Settings", "TenantSettings"]


class Settings(Section):
    """The whole file."""

    mode: Annotated[
        Literal["enforce", "shadow"],
        Field(
            description="enforce: decide; shadow: requests go on at once, byte for byte, and what would be decided is "
            "only told"
        ),
    ] = "enforce"
    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    upstreams: Upstreams = ()
    images: ImageSettings = ImageSettings()
    videos: VideoSettings = VideoSettings()
    audios: AudioSettings = AudioSettings()
    resize: ResizeSettings = ResizeSettings()
    history: HistorySettings = HistorySettings()
    budget: BudgetSettings = BudgetSettings()
    ledger: LedgerSettings = LedgerSettings()
    queue: QueueSettings = QueueSettings()
    pressure: Pressure = PressureSettings()
    slo: Slo = SloSettings()
    output_reservation: Annotated[
        ReservationRule,
        Field(
            description="KV blocks kept for an answer when it begins. quantile: what three quarters of the model's "
            "answers stay under, learned; max: all that it may have; none: one token"
        ),
    ] = ReservationRule.QUANTILE
    models: Models = ()
    hub: HubSettings = HubSettings()
    calibration: CalibrationWay = "tokenize"
    keys: KeySettings = KeySettings()
    tenants_from: TenantsFromSettings = TenantsFromSettings()
    tenants: Tenants = ()
    isolation: IsolationSettings = IsolationSettings()
    fields: FieldsSettings = FieldsSettings()
    tokens: TokenSettings = TokenSettings()
    hand_on: HandOnSettings = HandOnSettings()
    routes: RouteSettings = RouteSettings()
    streaming: StreamingSettings = StreamingSettings()
    responses: ResponsesSettings = ResponsesSettings()
    status_page: StatusPageSettings = StatusPageSettings()
    log: LogSettings = LogSettings()
    gpu: GpuSettings = GpuSettings()
    tracing: TracingSettings = TracingSettings()

    @property
    def is_shadow(self) -> bool:
        return self.mode == "shadow"

    @property
    def has_keys(self) -> bool:
        """Keys of clients are configured, be there any just now or not."""
        return self.keys.file is not None or any(tenant.key_sha256 for tenant in self.tenants)

    @property
    def tells_tenants_apart(self) -> bool:
        """The operator says who is who, or trusts a proxy that does."""
        return self.has_keys or self.tenants_from.header is not None

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes(cls, value: object, check: ModelWrapValidatorHandler[Self]) -> Self:
        """Those that sections make beside each other too."""
        settings: Self = checked(value, check, given_twice(value))
        return settings
