import { ReplicaStatus_Phase, getBackoffCause } from '@cloudless/api';
import type { ReplicaStatus } from '@cloudless/api';
import { formatAge, formatCount, formatSpan, formatWord } from '../output/human.js';
import { getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';
import { timestampMs } from '../output/timestamp.js';

/**
 * Formats replicas as a table. `Leaving` and `Stale` are added to the phase. The column FAILED
 * STARTS is present when a replica has some.
 * @param wide - True keeps every column on a narrow terminal. Default: false.
 */
export function formatReplicaTable(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
  style: Style,
  wide = false,
): string {
  const showsFailedStarts = haveFailedStarts(replicas);
  return formatTable(
    getReplicaColumns(showsFailedStarts),
    replicas.map((replica) => [
      replica.id,
      String(replica.slot),
      String(replica.version),
      toReplicaPhaseCell(replica, style),
      replica.ready ? 'yes' : 'no',
      replica.nodeId,
      replica.zone,
      String(replica.restarts),
      ...(showsFailedStarts ? [String(replica.failedStarts)] : []),
      formatAge(replica.createdAt, nowMs),
      replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`).join(','),
      formatReplicaReason(replica, nowMs),
    ]),
    style,
    { wide },
  );
}

/**
 * Returns the line below the replicas of a workload when the answer omitted some: `… and 5 more
 * replicas; list them with: cloudlessctl get replicas --workload default/web`. Empty without any.
 */
export function formatOmittedReplicas(
  omitted: number,
  { namespace, name }: { readonly namespace: string; readonly name: string },
): string {
  if (omitted === 0) return '';
  const count = formatCount(omitted, 'more replica');
  return `… and ${count}; list them with: cloudlessctl get replicas --workload ${namespace}/${name}\n`;
}

/** Returns true when a replica has failed starts, so that a table shows their column. */
export function haveFailedStarts(replicas: readonly ReplicaStatus[]): boolean {
  return replicas.some(({ failedStarts }) => failedStarts > 0);
}

const getReplicaColumns = (showsFailedStarts: boolean): readonly (Column | string)[] => [
  'REPLICA',
  { header: 'SLOT', dropOrder: 1 },
  { header: 'VERSION', dropOrder: 5 },
  'STATUS',
  'READY',
  { header: 'NODE', fit: 'shorten' },
  { header: 'ZONE', dropOrder: 3 },
  { header: 'RESTARTS', dropOrder: 6 },
  ...(showsFailedStarts ? [{ header: 'FAILED STARTS', dropOrder: 6 }] : []),
  { header: 'AGE', dropOrder: 4 },
  { header: 'ENDPOINTS', dropOrder: 2, fit: 'shorten', minWidth: 20 },
  { header: 'REASON', fit: 'wrap' },
];

/**
 * Returns the reason of a replica. After a restart, the result also says how the previous container
 * ended; in back-off, the result is that of {@link describeBackoff}.
 */
export function formatReplicaReason(replica: ReplicaStatus, nowMs: number): string {
  const { reason, lastExitCode, lastEndReason } = replica;
  const backoff = describeBackoff(replica, nowMs);
  if (backoff !== undefined) return backoff;
  if (lastExitCode === undefined && lastEndReason === '') return reason;
  const isOnlyExitCode = lastEndReason === '' || lastEndReason === `exit code ${lastExitCode}`;
  return `${reason} (${isOnlyExitCode ? `last exit code ${lastExitCode}` : `last ended: ${lastEndReason}`})`.trimStart();
}

/**
 * Describes a replica in back-off: `next start in 38s; exit code 1 (3 restarts, 1 failed start)`.
 * Undefined for any other replica. The time comes from the clock of the node: when the time has
 * passed by the clock of this machine, the next start is due.
 */
export function describeBackoff(replica: ReplicaStatus, nowMs: number): string | undefined {
  const { nextStartAt } = replica;
  if (nextStartAt === undefined) return undefined;
  const remainingMs = timestampMs(nextStartAt) - nowMs;
  const start = remainingMs > 0 ? `next start in ${formatSpan(remainingMs)}` : 'next start due';
  const cause = getBackoffCause(replica);
  return `${start}${cause === '' ? '' : `; ${cause}`} (${formatRestarts(replica)})`;
}

/**
 * Formats `3 restarts`, `1 restart, 2 failed starts` or, when no container was restarted, `2 failed
 * starts`.
 */
function formatRestarts({ restarts, failedStarts }: ReplicaStatus): string {
  if (failedStarts === 0) return formatCount(restarts, 'restart');
  const failed = formatCount(failedStarts, 'failed start');
  return restarts === 0 ? failed : `${formatCount(restarts, 'restart')}, ${failed}`;
}

/** Returns the phase of a replica as a word for people; `BackOff` for a replica in back-off. */
export function formatReplicaPhase({ phase, nextStartAt }: ReplicaStatus): string {
  return nextStartAt === undefined ? formatWord(ReplicaStatus_Phase[phase] ?? '') : 'BackOff';
}

/** Returns the cell of a phase; `Leaving` and `Stale` are added to the phase. */
export function toReplicaPhaseCell(replica: ReplicaStatus, style: Style): Cell {
  const { phase, ready, leaving, stale } = replica;
  const marks = `${leaving ? ',Leaving' : ''}${stale ? ',Stale' : ''}`;
  const tone = phase === ReplicaStatus_Phase.FAILED ? 'bad' : ready && !stale ? 'good' : 'busy';
  return {
    text: formatReplicaPhase(replica) + marks,
    paint: getToneColour(style, tone),
  };
}
