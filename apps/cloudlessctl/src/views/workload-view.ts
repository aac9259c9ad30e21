import { ReplicaStatus_Phase, WorkloadStatus_Phase } from '@cloudless/api';
import type { Event, ReplicaStatus, Workload } from '@cloudless/api';
import { formatAge, formatLabels, formatTime, formatWord } from '../output/human.js';
import { toneOf } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { imagePullLines } from './container-text.js';
import { runtimeLine } from './container-view.js';
import { eventTable } from './event-view.js';
import {
  failingReplicas,
  failureLines,
  rolloutFields,
  rolloutPhase,
  unsettledReason,
  versionTable,
} from './rollout-view.js';
import { formatFields, formatSections } from './sections.js';
import { specFields, summaryOf } from './spec-view.js';

/**
 * Formats workloads as a table; wide tables add version, rollout, image and command, labels and
 * uid.
 */
export function workloadTable(
  workloads: readonly Workload[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    workloadHeaders(wide),
    workloads.map((workload) => workloadCells(workload, nowMs, style, wide)),
  );
}

/** Returns the headers of a workload table. */
export function workloadHeaders(wide: boolean): readonly string[] {
  return [
    'NAMESPACE',
    'NAME',
    'STATUS',
    'READY',
    'UPDATED',
    'AGE',
    ...(wide ? ['VERSION', 'ROLLOUT', 'RUNS', 'LABELS', 'UID'] : []),
    'REASON',
  ];
}

/** Returns the table row of a workload. */
export function workloadCells(
  workload: Workload,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { namespace, name, spec, status, uid, createdAt } = workload;
  const version = String(status?.version ?? 0);
  const extra = [
    version,
    rolloutPhase(status?.rollout),
    shorten(summaryOf(spec), false),
    formatLabels(spec?.labels ?? {}),
    uid,
  ];
  return [
    namespace,
    name,
    phaseCell(status?.phase ?? WorkloadStatus_Phase.PENDING, style),
    `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0}`,
    String(status?.updatedReplicas ?? 0),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    shorten(status?.reason || unsettledReason(status?.rollout), wide),
  ];
}

/** Formats the description of a workload in sections. */
export function describeWorkload(
  workload: Workload,
  events: readonly Event[],
  nowMs: number,
  style: Style,
): string {
  const { spec, status } = workload;
  return formatSections(style, [
    ['', formatFields(identityFields(workload, nowMs))],
    ['Spec', formatFields(specFields(spec))],
    ['Status', formatFields(statusFields(workload))],
    ['Rollout', rolloutSection(workload, nowMs)],
    ['Replicas', replicaSection(status?.replicas ?? [], nowMs, style)],
    ['Versions', versionTable(status?.versions ?? [], nowMs, style) || '(none)\n'],
    ['Events', eventTable(events, nowMs, style) || '(none)\n'],
  ]);
}

function rolloutSection(workload: Workload, nowMs: number): string {
  const failure = workload.status?.rollout?.failure;
  const lines = failure === undefined ? [] : failureLines(failure);
  return formatFields(rolloutFields(workload, nowMs)) + lines.map((line) => `${line}\n`).join('');
}

function replicaSection(replicas: readonly ReplicaStatus[], nowMs: number, style: Style): string {
  const table = replicaTable(replicas, nowMs, style) || '(none)\n';
  const lines = [
    ...containerLines(replicas),
    ...imagePullLines(replicas, nowMs),
    ...failingReplicas(replicas),
  ];
  return table + lines.map((line) => `${line}\n`).join('');
}

/** Returns process id, runtime id and image digest of each running container. */
function containerLines(replicas: readonly ReplicaStatus[]): readonly string[] {
  return replicas.flatMap(({ id, container }) =>
    container === undefined || container.runtimeId === ''
      ? []
      : [`${id}: ${runtimeLine(container)}`],
  );
}

/** Formats replicas as a table. */
export function replicaTable(
  replicas: readonly ReplicaStatus[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'REPLICA',
      'SLOT',
      'VERSION',
      'STATUS',
      'READY',
      'NODE',
      'ZONE',
      'RESTARTS',
      'AGE',
      'ENDPOINTS',
      'REASON',
    ],
    replicas.map((replica) => [
      replica.id,
      String(replica.slot),
      String(replica.version),
      replicaPhaseCell(replica, style),
      replica.ready ? 'yes' : 'no',
      replica.nodeId,
      replica.zone,
      String(replica.restarts),
      formatAge(replica.createdAt, nowMs),
      replica.endpoints.map(({ portName, ip, port }) => `${portName}=${ip}:${port}`).join(','),
      reasonOf(replica),
    ]),
  );
}

/** Returns the reason of a replica, with the end of its previous container after a restart. */
function reasonOf({ reason, lastExitCode, lastEndReason }: ReplicaStatus): string {
  if (lastExitCode === undefined && lastEndReason === '') return reason;
  const isCode = lastEndReason === '' || lastEndReason === `exit code ${lastExitCode}`;
  return `${reason} (${isCode ? `last exit code ${lastExitCode}` : `last ended: ${lastEndReason}`})`.trimStart();
}

type Field = readonly [string, string];

function identityFields(
  { namespace, name, uid, generation, createdAt, deletionRequestedAt, spec }: Workload,
  nowMs: number,
): Field[] {
  return [
    ['Name', name],
    ['Namespace', namespace],
    ['Uid', uid],
    ['Generation', String(generation)],
    [
      'Created',
      createdAt === undefined
        ? ''
        : `${formatTime(createdAt)} (${formatAge(createdAt, nowMs)} ago)`,
    ],
    [
      'Deletion',
      deletionRequestedAt === undefined
        ? ''
        : `requested ${formatAge(deletionRequestedAt, nowMs)} ago`,
    ],
    ['Labels', formatLabels(spec?.labels ?? {})],
    ['Annotations', formatLabels(spec?.annotations ?? {})],
  ];
}

function statusFields({ status, generation }: Workload): Field[] {
  if (status === undefined) return [];
  const behind =
    status.observedGeneration < generation ? `${status.observedGeneration} (of ${generation})` : '';
  return [
    ['Phase', formatWord(WorkloadStatus_Phase[status.phase])],
    ['Reason', status.reason],
    ['Observed', behind],
    [
      'Ready',
      `${status.readyReplicas} of ${status.desiredReplicas} (${status.totalReplicas} live, ${status.updatedReplicas} updated)`,
    ],
    ['Succeeded', status.succeededReplicas === 0 ? '' : String(status.succeededReplicas)],
    ['Version', String(status.version)],
    [
      'Active version',
      status.activeVersion === 0 || status.activeVersion === status.version
        ? ''
        : String(status.activeVersion),
    ],
    ['Min available', String(status.minAvailable)],
  ];
}

function phaseCell(phase: WorkloadStatus_Phase, style: Style): Cell {
  const good = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.SUCCEEDED;
  const tone = phase === WorkloadStatus_Phase.FAILED ? 'bad' : good ? 'good' : 'busy';
  return { text: formatWord(WorkloadStatus_Phase[phase] ?? ''), paint: toneOf(style, tone) };
}

function replicaPhaseCell({ phase, ready, leaving, stale }: ReplicaStatus, style: Style): Cell {
  const marks = `${leaving ? ',Leaving' : ''}${stale ? ',Stale' : ''}`;
  const tone = phase === ReplicaStatus_Phase.FAILED ? 'bad' : ready && !stale ? 'good' : 'busy';
  return { text: formatWord(ReplicaStatus_Phase[phase] ?? '') + marks, paint: toneOf(style, tone) };
}

/** Maximum length of a reason in a table; `describe` and wide tables show the whole reason. */
const MAX_REASON = 60;

function shorten(reason: string, wide: boolean): string {
  return wide || reason.length <= MAX_REASON ? reason : `${reason.slice(0, MAX_REASON - 1)}…`;
}
