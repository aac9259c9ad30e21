import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  GetSecretAuditLogResponseSchema,
  SecretAuditEntrySchema,
  iterateAfter,
  iterateBefore,
  paginateIndex,
  type Event,
  type GetSecretAuditLogRequest,
  type GetSecretAuditLogResponse,
  type SecretAuditEntry,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import { toSecretKey } from './secret-lookup.js';

/** Returns one page of the audit records about a secret, which may have been deleted. */
export function readSecretAuditLog(
  view: ClusterView,
  request: GetSecretAuditLogRequest,
): GetSecretAuditLogResponse {
  const key = toSecretKey(request);
  const { oldestFirst } = request;
  const sinceMs = request.since === undefined ? undefined : timestampMs(request.since);
  const events = view.auditEventsOfSecret(key);
  const { items, nextPageToken } = paginateIndex(
    (after) => (oldestFirst ? iterateAfter : iterateBefore)(events, ({ id }) => id, after),
    ({ id }) => id,
    request,
    {
      filter: ['secret audit log', key, oldestFirst, sinceMs === undefined ? '' : String(sinceMs)],
    },
    ({ time }) => sinceMs === undefined || (time !== undefined && timestampMs(time) >= sinceMs),
  );
  return create(GetSecretAuditLogResponseSchema, {
    entries: items.map((event) => toEntry(event, key)),
    nextPageToken,
    revision: view.revision,
  });
}

function toEntry(
  { id, time, reason, replicaId, count, audit }: Event,
  key: string,
): SecretAuditEntry {
  const { principal = '', address = '', result = '', cause = '', traceId = '' } = audit ?? {};
  return create(SecretAuditEntrySchema, {
    ...{ id, principal, address, result, cause, traceId, replicaId, operation: reason },
    version: audit?.secretVersions[audit.secrets.indexOf(key)] ?? 0,
    tokenId: audit?.accessTokenId ?? '',
    audience: audit?.audience ?? '',
    count: Math.max(1, count),
    ...definedFields({ time }),
  });
}
