import { ReplicaStatus_Phase } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { formatWorkloadName } from '../names.js';
import { toOneLine } from '../output/table.js';
import { padText, wrapText } from '../output/text-width.js';
import { describeBackoff, formatReplicaPhase } from '../views/replica-view.js';
import { describeLimit, formatGate, formatVersions } from '../views/rollout-view.js';
import { drawBar, drawTitle, type Bar, type PictureLine } from './picture.js';
import type { PictureView } from './picture.js';
import { countRollout, getWaitReason } from './rollout-counts.js';

/** Most lines of the reason, and of the gate. */
const MAX_TEXT_LINES = 3;

/**
 * Draws a workload on its way to a generation: title, bars of the replicas, the reason for waiting,
 * the gate of the step, and the replicas that are not ready, as many as fit.
 */
export function drawWorkload(workload: Workload, view: PictureView): readonly PictureLine[] {
  const { style, width, height } = view;
  const { rollout } = workload.status ?? {};
  const head = [
    drawTitle(formatWorkloadName(workload), describeRollout(workload), view),
    ...drawBars(workload, view),
  ];
  const wrap = (text: string): readonly PictureLine[] =>
    text === ''
      ? []
      : wrapText(text, Math.max(20, width - 2))
          .slice(0, MAX_TEXT_LINES)
          .map((line) => [{ text: `  ${line}` }]);
  const reason = toOneLine(getWaitReason(workload));
  const gate = rollout === undefined ? '' : formatGate(rollout, view.nowMs);
  // A workload that settles needs nothing more to happen.
  const limit = reason.startsWith('settling') ? '' : describeLimit(rollout, view.nowMs);
  const tail = [
    ...wrap(reason),
    ...wrap(gate === '' ? '' : `gate ${gate}`),
    ...(limit === '' ? [] : [[{ text: `  ${limit}`, paint: style.dim }]]),
  ];
  // One line stays free for the cursor.
  const room = height - 1 - head.length - tail.length;
  return [...head, ...drawUnready(workload, room, view), ...tail];
}

function describeRollout(workload: Workload): string {
  const { rollout } = workload.status ?? {};
  if (rollout === undefined || rollout.fromVersion === 0) return '';
  const step = rollout.step === 0 ? '' : `, step ${rollout.step} of ${rollout.steps}`;
  return formatVersions(workload) + step;
}

function drawBars(workload: Workload, view: PictureView): readonly PictureLine[] {
  const { green, cyan, yellow } = view.style;
  const { desired, updated, updatedReady, old, ready, minimum } = countRollout(workload);
  const scale = Math.max(1, desired, old);
  const extra = ready > desired ? `, ${ready - desired} extra` : '';
  const isRolling = (workload.status?.rollout?.fromVersion ?? 0) > 0;
  const minimumText = isRolling && minimum > 0 ? `, minimum ${minimum}` : '';
  const bars: Bar[] = [
    {
      ...{ title: 'ready', count: Math.min(ready, desired), scale, paint: green },
      ...(isRolling ? { mark: minimum } : {}),
      text: `${Math.min(ready, desired)} of ${desired}${extra}${minimumText}`,
    },
  ];
  if (isRolling) {
    const starting = updated > updatedReady ? `, ${updated - updatedReady} starting` : '';
    bars.push({
      ...{ title: 'new', count: updatedReady, scale, paint: cyan },
      text: `${updatedReady} of ${desired} ready${starting}`,
    });
  }
  if (isRolling || old > 0)
    bars.push({
      title: isRolling ? 'old' : 'ending',
      count: old,
      scale,
      paint: yellow,
      text: `${old}`,
    });
  return bars.map((bar) => drawBar(bar, view));
}

/** Draws the replicas that are not ready, aligned in columns. */
function drawUnready(
  { status }: Workload,
  room: number,
  { style, nowMs }: PictureView,
): readonly PictureLine[] {
  const unready = (status?.replicas ?? []).filter(isUnready);
  if (unready.length === 0 || room <= 0) return [];
  const shown = unready.length > room ? unready.slice(0, Math.max(0, room - 1)) : unready;
  const cells = shown.map((replica) => [
    replica.id,
    replica.leaving ? 'Stopping' : formatReplicaPhase(replica),
    replica.nodeId === '' ? '-' : replica.nodeId,
    toOneLine(describeBackoff(replica, nowMs) ?? replica.reason),
  ]);
  const widths = [0, 1, 2].map((column) =>
    Math.max(...cells.map((row) => (row[column] ?? '').length)),
  );
  const lines = cells.map(([id = '', phase = '', nodeId = '', reason = '']) => [
    { text: `  ${padText(id, widths[0] ?? 0)}  `, paint: style.dim },
    {
      text: padText(phase, widths[1] ?? 0),
      paint: phase === 'Failed' ? style.red : style.yellow,
    },
    { text: `  ${padText(nodeId, widths[2] ?? 0)}  ${reason}` },
  ]);
  const hidden = unready.length - shown.length;
  if (hidden === 0) return lines;
  const { replicas = [], omittedReplicas = 0 } = status ?? {};
  const scope = omittedReplicas === 0 ? '' : ` of the oldest ${replicas.length} replicas`;
  return [...lines, [{ text: `  and ${hidden} more${scope}`, paint: style.dim }]];
}

function isUnready({ phase, ready, leaving }: ReplicaStatus): boolean {
  return (
    (!ready || leaving) &&
    phase !== ReplicaStatus_Phase.STOPPED &&
    phase !== ReplicaStatus_Phase.SUCCEEDED
  );
}
