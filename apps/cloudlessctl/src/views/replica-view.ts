import { ReplicaStatus_Phase } from '@cloudless/api';
import type { ReplicaStatus } from '@cloudless/api';
import { formatAge, formatWord } from '../output/human.js';
import { getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';

/**
 * Formats replicas as a table. `Leaving` and `Stale` are added to the phase.
 * @param wide - True keeps every column on a narrow terminal. Default: false.
 */
export function formatReplicaTable(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
  style: Style,
  wide = false,
): string {
  return formatTable(
    REPLICA_COLUMNS,
    replicas.map((replica) => [
      replica.id,
      String(replica.slot),
      String(replica.version),
      toReplicaPhaseCell(replica, style),
      replica.ready ? 'yes' : 'no',
      replica.nodeId,
      replica.zone,
      String(replica.restarts),
      formatAge(replica.createdAt, nowMs),
      replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`).join(','),
      formatReplicaReason(replica),
    ]),
    style,
    { wide },
  );
}

const REPLICA_COLUMNS: readonly (Column | string)[] = [
  'REPLICA',
  { header: 'SLOT', dropOrder: 1 },
  { header: 'VERSION', dropOrder: 5 },
  'STATUS',
  'READY',
  { header: 'NODE', fit: 'shorten' },
  { header: 'ZONE', dropOrder: 3 },
  { header: 'RESTARTS', dropOrder: 6 },
  { header: 'AGE', dropOrder: 4 },
  { header: 'ENDPOINTS', dropOrder: 2, fit: 'shorten', minWidth: 20 },
  { header: 'REASON', fit: 'wrap' },
];

/**
 * Returns the reason of a replica. After a restart, the result also says how the previous container
 * ended.
 */
export function formatReplicaReason({
  reason,
  lastExitCode,
  lastEndReason,
}: ReplicaStatus): string {
  if (lastExitCode === undefined && lastEndReason === '') return reason;
  const isOnlyExitCode = lastEndReason === '' || lastEndReason === `exit code ${lastExitCode}`;
  return `${reason} (${isOnlyExitCode ? `last exit code ${lastExitCode}` : `last ended: ${lastEndReason}`})`.trimStart();
}

/** Returns the cell of a phase; `Leaving` and `Stale` are added to the phase. */
export function toReplicaPhaseCell(
  { phase, ready, leaving, stale }: ReplicaStatus,
  style: Style,
): Cell {
  const marks = `${leaving ? ',Leaving' : ''}${stale ? ',Stale' : ''}`;
  const tone = phase === ReplicaStatus_Phase.FAILED ? 'bad' : ready && !stale ? 'good' : 'busy';
  return {
    text: formatWord(ReplicaStatus_Phase[phase] ?? '') + marks,
    paint: getToneColour(style, tone),
  };
}
