import { clone, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Taint_Effect, type Taint, type UpdateNodeRequest } from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import { toEffectiveNode, toTaintKey } from '@cloudless/cluster-state';
import type { NodeChange } from './drain.js';

/**
 * Changes labels, taints, zone or region of a node. Returns undefined when nothing changes.
 * @param nowMs - Wall-clock milliseconds, the time of new taints.
 * @throws kind `invalid` when a taint to remove cannot be parsed.
 */
export function updateNode(
  before: NodeRecord,
  request: UpdateNodeRequest,
  nowMs: number,
): NodeChange | undefined {
  const after = updateNodeRecord(before, request, nowMs);
  if (equals(NodeRecordSchema, before, after)) return undefined;
  const message = `node ${after.id} was changed: ${describeNodeUpdate(before, after)}`;
  return { after, reason: 'NodeUpdated', message };
}

/**
 * Returns a copy of the record with the changes of the request. A removed label or taint stays
 * removed even when the agent reports it; setting it again ends the removal.
 * @param nowMs - Wall-clock milliseconds, the time of taints that are new or have a new value.
 * @throws kind `invalid` when a taint to remove cannot be parsed.
 */
export function updateNodeRecord(
  before: NodeRecord,
  request: UpdateNodeRequest,
  nowMs: number,
): NodeRecord {
  const removals = request.removeTaints.map(parseTaintRemoval);
  const record = clone(NodeRecordSchema, before);
  for (const key of request.removeLabels) {
    delete record.labels[key];
    if (!record.removedLabels.includes(key)) record.removedLabels.push(key);
  }
  Object.assign(record.labels, request.setLabels);
  record.removedLabels = record.removedLabels.filter(
    (key) => !Object.hasOwn(request.setLabels, key),
  );
  updateTaints(record, request, removals);
  stampTaints(before, record, nowMs);
  if (request.zone !== undefined) record.zone = request.zone;
  if (request.region !== undefined) record.region = request.region;
  return record;
}

/**
 * Sets `taintsSince` of `after`: the current time for a taint that is new or has another value than
 * in `before`, otherwise the previous time. NO_EXECUTE taints evict replicas from that time on.
 * @param after - Changed in place.
 * @param nowMs - Wall-clock milliseconds.
 */
export function stampTaints(before: NodeRecord, after: NodeRecord, nowMs: number): void {
  const known = new Map(
    toEffectiveNode(before).taints.map((taint) => [toTaintKey(taint), taint.value]),
  );
  const since: NodeRecord['taintsSince'] = {};
  for (const taint of toEffectiveNode(after).taints) {
    const key = toTaintKey(taint);
    const time = known.get(key) === taint.value ? before.taintsSince[key] : timestampFromMs(nowMs);
    if (time !== undefined) since[key] = time;
  }
  after.taintsSince = since;
}

/**
 * Describes the effective changes of a node for an event: `label a=b set, taint c:NO_SCHEDULE
 * removed, zone is "z" now`. Lists at most {@link MAX_DESCRIBED_CHANGES} changes.
 */
export function describeNodeUpdate(before: NodeRecord, after: NodeRecord): string {
  const [previous, current] = [toEffectiveNode(before), toEffectiveNode(after)];
  const [previousTaints, currentTaints] = [previous, current].map(
    ({ taints }) => new Map(taints.map((taint) => [toTaintKey(taint), taint])),
  );
  const changes = [
    ...Object.entries(current.labels).flatMap(([key, value]) =>
      previous.labels[key] === value ? [] : [`label ${key}=${value} set`],
    ),
    ...Object.keys(previous.labels).flatMap((key) =>
      Object.hasOwn(current.labels, key) ? [] : [`label ${key} removed`],
    ),
    ...[...(currentTaints ?? [])].flatMap(([key, taint]) =>
      previousTaints?.get(key)?.value === taint.value ? [] : [`taint ${formatTaint(taint)} set`],
    ),
    ...[...(previousTaints ?? [])].flatMap(([key, taint]) =>
      currentTaints?.has(key) === true ? [] : [`taint ${formatTaint(taint)} removed`],
    ),
    ...(previous.zone === current.zone ? [] : [`zone is "${current.zone}" now`]),
    ...(previous.region === current.region ? [] : [`region is "${current.region}" now`]),
  ];
  const more = changes.length - MAX_DESCRIBED_CHANGES;
  if (changes.length === 0) return 'only the origin of values, with the same effect';
  return [...changes.slice(0, MAX_DESCRIBED_CHANGES), ...(more > 0 ? [`${more} more`] : [])].join(
    ', ',
  );
}

/** Changes that the text of an event lists, so that the text stays readable. */
const MAX_DESCRIBED_CHANGES = 10;

function formatTaint({ key, value, effect }: Taint): string {
  return `${key}${value === '' ? '' : `=${value}`}:${Taint_Effect[effect]}`;
}

function updateTaints(
  record: NodeRecord,
  request: UpdateNodeRequest,
  removals: readonly TaintRemoval[],
): void {
  const removed = toEffectiveNode(record).taints.filter((taint) =>
    removals.some((removal) => matchesRemoval(taint, removal)),
  );
  record.taints = record.taints.filter(
    (taint) => !removed.some((other) => toTaintKey(other) === toTaintKey(taint)),
  );
  record.removedTaints = [...new Set([...record.removedTaints, ...removed.map(toTaintKey)])];
  for (const taint of request.setTaints) {
    record.taints = [
      ...record.taints.filter((other) => toTaintKey(other) !== toTaintKey(taint)),
      taint,
    ];
    record.removedTaints = record.removedTaints.filter((key) => key !== toTaintKey(taint));
  }
}

/** The taints that a request removes: those with this key and, when given, this effect. */
interface TaintRemoval {
  readonly key: string;
  readonly effect: Taint_Effect | undefined;
}

/**
 * Parses `key` or `key:EFFECT`.
 * @param index - Index in `remove_taints`, for the error.
 */
function parseTaintRemoval(text: string, index: number): TaintRemoval {
  const [key = '', effect] = text.split(':');
  if (effect === undefined) return { key, effect: undefined };
  const known = Taint_Effect[effect as keyof typeof Taint_Effect];
  if (typeof known === 'number') return { key, effect: known };
  throw new InvalidInputError([
    {
      field: `remove_taints[${index}]`,
      message: `"${effect}" is not an effect; use NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE`,
    },
  ]);
}

function matchesRemoval(
  taint: { readonly key: string; readonly effect: Taint_Effect },
  removal: TaintRemoval,
): boolean {
  return (
    taint.key === removal.key && (removal.effect === undefined || taint.effect === removal.effect)
  );
}
