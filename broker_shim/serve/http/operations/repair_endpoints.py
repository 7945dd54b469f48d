"""The endpoints for branches in doubt, single messages, copies, and definitions."""

from __future__ import annotations

from broker_shim.serve.http import bodies, connection_requests, message_requests, queue_requests
from broker_shim.serve.http.bodies import FateCounts, OrderOutcome, PageQuery, PlacementOrder
from broker_shim.serve.http.endpoints import API, QUEUE, Endpoint
from broker_shim.serve.http.operations import (
    branch_requests,
    copy_requests,
    definition_requests,
    repair_bodies,
    resubmit_requests,
    upkeep_requests,
)
from broker_shim.serve.http.request_models import MOST_LONG_BODY_BYTES
from broker_shim.serve.http.roles import HttpRole

_BRANCHES, _DEFINITIONS = API + "/transactions", API + "/definitions"
_MONITOR, _OPERATOR, _ADMIN = HttpRole.MONITOR, HttpRole.OPERATOR, HttpRole.ADMIN

REPAIR_ENDPOINTS = (
    Endpoint(
        "GET",
        _BRANCHES,
        _MONITOR,
        branch_requests.list_branches,
        repair_bodies.BranchList,
        PageQuery,
    ),
    *(
        Endpoint(
            "POST",
            f"{_BRANCHES}/{{xid}}/{way}",
            _ADMIN,
            run,
            OrderOutcome,
            repair_bodies.BranchQuery,
            conflict=409,
        )
        for way, run in (
            ("commit", branch_requests.commit_branch),
            ("rollback", branch_requests.roll_back_branch),
            ("forget", branch_requests.forget_branch),
        )
    ),
    Endpoint(
        "POST",
        API + "/messages/{message}/resubmit",
        _OPERATOR,
        resubmit_requests.resubmit_message,
        repair_bodies.ResubmitOutcome,
        body=repair_bodies.ResubmitOrder,
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/holders",
        _MONITOR,
        connection_requests.list_holders,
        bodies.HolderList,
        bodies.HolderQuery,
        needs_broker=False,
    ),
    Endpoint("POST", API + "/flush", _OPERATOR, upkeep_requests.flush_log, bodies.FlushAnswer),
    Endpoint(
        "POST",
        QUEUE + "/release",
        _ADMIN,
        queue_requests.release_messages,
        bodies.MessageFates,
        body=bodies.MessagesOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/dead-letter",
        _OPERATOR,
        queue_requests.dead_letter_messages,
        bodies.MessageFates,
        body=bodies.MessagesOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/messages",
        _ADMIN,
        message_requests.put_messages,
        bodies.MessageFates,
        body=bodies.NewMessages,
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
    Endpoint(
        "POST",
        API + "/placements",
        _ADMIN,
        resubmit_requests.place_messages,
        FateCounts,
        body=PlacementOrder,
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
    Endpoint(
        "POST",
        QUEUE + "/replay",
        _OPERATOR,
        copy_requests.replay_messages,
        repair_bodies.ReplayOutcome,
        body=repair_bodies.ReplayOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/export",
        _MONITOR,
        copy_requests.export_messages,
        body=repair_bodies.ExportOrder,
    ),
    Endpoint(
        "GET",
        _DEFINITIONS,
        _MONITOR,
        definition_requests.export_definitions,
        repair_bodies.DefinitionsAnswer,
    ),
    Endpoint(
        "POST",
        _DEFINITIONS,
        _ADMIN,
        definition_requests.import_definitions,
        repair_bodies.DefinitionsOutcome,
        body=repair_bodies.DefinitionsImport,
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
)
