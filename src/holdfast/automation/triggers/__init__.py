"""Triggers: runs that are started by what happens outside.

A trigger is a definition that all workers share: what to listen to, which agent to start, which of what comes to let
through, and into which queue. There is no process that is in charge: every worker carries out every trigger, and the id
of a run follows from what it is started for, so it is started once.

kind    comes from                      runs are started by
event   `app.emit`                      `events`: whoever finds an event that is due
file    files that match a pattern      `files`: a scan against what is known of each file
nats    a JetStream consumer            `nats`: whoever the server gives the message to

A trigger on HTTP requests (kind `webhook`) belongs to the HTTP server: the server stores what it received with
`events.emit`, so that delivery, filters and counts are those of an event, and answers only after that.

To read: `filters`, `sources` (what users write), `definitions` (what is stored), `starting`, `refused` (what can never
be a run); then `events`, `scanning`, `contents`, `watching` and `files`, `nats`; `registry` puts them together.
`watching` and `nats` need optional packages and are imported when they are needed.
"""

from holdfast.automation.triggers.definitions import TriggerInfo, TriggerNote
from holdfast.automation.triggers.events import Events, emit
from holdfast.automation.triggers.filters import matches
from holdfast.automation.triggers.refused import RefusedStart
from holdfast.automation.triggers.registry import Triggers
from holdfast.automation.triggers.sources import FileChange, FileEvent, NatsMessage, NatsQueue, Source
from holdfast.automation.triggers.starting import SendSignal, StartRun, TriggeredStart

__all__ = [
    "Events",
    "FileChange",
    "FileEvent",
    "NatsMessage",
    "NatsQueue",
    "RefusedStart",
    "SendSignal",
    "Source",
    "StartRun",
    "TriggerInfo",
    "TriggerNote",
    "TriggeredStart",
    "Triggers",
    "emit",
    "matches",
]
